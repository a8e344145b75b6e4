"""A proxy in front of a server that drops, breaks or refuses some of the generations that pass through it."""

import asyncio
import itertools
from types import TracebackType

import httpx


class Proxy:
    """Every `every`-th generation meets the next of `faults`: `drop`, `garbage`, or a status such as `500`."""

    def __init__(self, target: str, *, faults: list[str] | None = None, every: int = 0):
        self.target = target
        self.seen = self.faulted = 0
        self._faults = itertools.cycle(faults or [])
        self._every = every if faults else 0

    async def __aenter__(self) -> "Proxy":
        self._client = httpx.AsyncClient(timeout=300)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        await self._client.aclose()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
            headers = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            status, answer = await self._answer(method, path, body)
            if status:
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n"
                    "connection: close\r\n\r\n".encode()
                    + answer
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; status 0 drops the connection."""
        if path == "/generate":
            self.seen += 1
            if self._every and self.seen % self._every == 0:
                self.faulted += 1
                fault = next(self._faults)
                if fault == "drop":
                    return 0, b""
                if fault == "garbage":
                    return 200, b'{"text": "cut he'
                return int(fault), b'{"error": {"message": "made by the test"}}'
        sent = {"content-type": "application/json"}
        reply = await self._client.request(method, self.target + path, content=body, headers=sent)
        return reply.status_code, reply.content
