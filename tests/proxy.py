"""A proxy in front of a server that drops, delays, breaks or refuses some of what passes through it."""

import asyncio
import hashlib
import itertools
import json
import random
from collections import Counter
from types import TracebackType

import httpx

AT_MOST = 3
"""Drawn faults that one request meets: a client that asks five times gets through."""


class Proxy:
    """Passes requests on, but for those that meet a fault: of generations every `every`-th, or a `share` of all.

    Faults: `drop` (the connection closes without an answer), `delay`, `break` (half the answer comes), `garbage`, or a
    status such as `503`, in turns. Whether one is made of a share is drawn from the request and how often it was asked,
    so that the order in which requests come does not decide it.
    """

    def __init__(
        self, target: str, *, faults: list[str] | None = None, every: int = 0, share: float = 0.0, seed: int = 0
    ):
        self.target = target
        self.seen = self.faulted = 0
        """Generations, and faults of any request."""
        self.met: Counter[str] = Counter()
        """Fault to how often it was made."""
        self.episodes: set[str] = set()
        """Ids of the rollouts whose generations passed."""
        self.asked: Counter[str] = Counter()
        """Requests that faults of a share are drawn for, to how often each came."""
        self.drawn = 0
        """Draws of a share."""
        self.every = every if faults else 0
        self._faults, self._share, self._seed = faults or [], share, seed
        self._turns = itertools.cycle(self._faults)
        self._serving: set[asyncio.Task[None]] = set()

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

    async def settled(self) -> None:
        """Returns when all is answered that was asked before, also what a killed process had just sent."""
        await self._client.get(self.url + "/model_info")  # connections are taken in the order in which they were made
        while self._serving:
            await asyncio.wait(self._serving)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
            method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
            headers = dict(line.split(": ", 1) for line in head.decode().split("\r\n")[1:] if ": " in line)
            headers = {name.lower(): value for name, value in headers.items()}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            fault = self._fault(path, body)
            status, answer = await self._answer(fault, method, path, body)
            if status:
                writer.write(
                    f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {len(answer)}\r\n"
                    "connection: close\r\n\r\n".encode()
                    + answer[: len(answer) // 2 if fault == "break" else None]
                )
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError, httpx.TransportError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    def _fault(self, path: str, body: bytes) -> str | None:
        asked = json.loads(body) if body else {}
        if path == "/generate":
            self.seen += 1
            self.episodes.add(asked.pop("rid", "").split("-")[0])
            if self.every and self.seen % self.every == 0:
                return self._made(next(self._turns))
        if self._share:
            name = hashlib.sha256((path + json.dumps(asked, sort_keys=True)).encode()).hexdigest()
            self.asked[name] += 1
            if self.asked[name] <= AT_MOST:
                self.drawn += 1
                if random.Random(f"{self._seed} {name} {self.asked[name]}").random() < self._share:
                    return self._made(next(self._turns))
        return None

    def _made(self, fault: str) -> str:
        self.faulted += 1
        self.met[fault] += 1
        return fault

    async def _answer(self, fault: str | None, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        """Status and body; status 0 drops the connection."""
        if fault == "drop":
            return 0, b""
        if fault == "garbage":
            return 200, b'{"text": "cut he'
        if fault == "delay":
            await asyncio.sleep(0.3)
        elif fault and fault != "break":
            return int(fault), b'{"error": {"message": "made by the test"}}'
        sent = {"content-type": "application/json"}
        reply = await self._client.request(method, self.target + path, content=body, headers=sent)
        return reply.status_code, reply.content
