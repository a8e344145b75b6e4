"""A small chat endpoint in a thread: the judge's side of the tests."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any


@dataclass
class JudgeServer:
    """Where it is, and what it was sent."""

    url: str
    sent: list[dict[str, Any]] = field(default_factory=list)

    @property
    def prompts(self) -> list[str]:
        """What was asked."""
        return [body["messages"][0]["content"][0]["text"] for body in self.sent]


@contextmanager
def judge_server(says: Callable[[str], str | int]) -> Iterator[JudgeServer]:
    """An endpoint that answers a prompt with what `says` makes of it: a text, or an HTTP status."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.answer(200, {"data": [{"id": "small-judge"}]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            running.sent.append(body)
            said = says(body["messages"][0]["content"][0]["text"])
            if isinstance(said, int):
                self.answer(said, {"error": {"message": "no such judge"}})
            else:
                self.answer(200, {"choices": [{"message": {"content": said}, "finish_reason": "stop"}]})

        def answer(self, status: int, body: dict[str, Any]) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    running = JudgeServer(f"http://127.0.0.1:{server.server_port}")
    thread = Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield running
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
