"""A pool of decoding workers with a deadline for every request. A late or dead worker is replaced."""

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from queue import LifoQueue
from typing import Any

from paravt_infer.errors import VideoError
from paravt_infer.video.readers import DEFAULT_READER, RGBArray, get_reader
from paravt_infer.video.types import VideoIndex


class _Worker:
    """One worker process and its pipe. Used by one thread at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "paravt_infer.video.worker", str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.connection = Connection(ours.detach())

    def call(self, seconds: float, function: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """The worker's answer, or TimeoutError / EOFError / OSError when there is none."""
        end = time.monotonic() + seconds
        # Sending and receiving can wait as long as decoding can: a long index does not fit into the pipe.
        late = threading.Timer(seconds, self.process.kill)
        late.start()
        try:
            self.connection.send((seconds, function, arguments))
            return self.connection.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            if time.monotonic() >= end:
                raise TimeoutError from None
            raise
        finally:
            late.cancel()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class DecodePool:
    """Decodes in worker processes, so that nothing here blocks the event loop or hangs it.

    Example::

        async with DecodePool() as pool:
            index = await pool.index("film.mp4")
            pictures = await pool.read(index, [0, 25], (224, 128))
    """

    def __init__(self, *, workers: int | None = None, reader: str = DEFAULT_READER, deadline: float = 120.0):
        """
        Args:
            workers: processes; by default one a core, at most 8.
            reader: `pyav`, `decord` or `torchcodec`.
            deadline: seconds a request may take before its worker is killed.
        """
        get_reader(reader)  # an unknown name is an error here, not in a worker
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.reader = reader
        self.deadline = deadline
        self.decodes = 0
        """Read requests that reached a worker: what the cache did not answer."""
        self.killed = 0
        """Workers that were late or died, each replaced."""
        self._idle: LifoQueue[_Worker | None] = LifoQueue()  # a running worker is taken first
        self._alive: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(self.workers):
            self._idle.put(None)  # a place for a worker; the process starts with the first request
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")

    async def index(self, path: str) -> VideoIndex:
        """The file's frames and facts. Raises VideoError."""
        result: VideoIndex = await self._run("index", (path,), path)
        return result

    async def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        """The frames `numbers` at `size` (width, height). Raises VideoError, also past the deadline."""
        self.decodes += 1
        arguments = (self.reader, index, list(numbers), size)
        result: list[RGBArray] = await self._run("read", arguments, index.info.path)
        return result

    async def _run(self, function: str, arguments: tuple[Any, ...], path: str) -> Any:
        if self._closed:
            raise VideoError(f"{path}: decoding was stopped")
        loop = asyncio.get_running_loop()
        ok, result = await loop.run_in_executor(self._threads, self._call, function, arguments, path)
        if not ok:
            raise VideoError(result)
        return result

    def _call(self, function: str, arguments: tuple[Any, ...], path: str) -> tuple[bool, Any]:
        worker = self._idle.get()  # never waits: there are as many places as threads
        try:
            if worker is not None and worker.process.poll() is not None:  # killed from outside while idle
                self._replace(worker)
                worker = None
            worker = worker or self._start()
            return worker.call(self.deadline, function, arguments)
        except (TimeoutError, EOFError, OSError) as error:
            if worker is not None:
                self._replace(worker)
                worker = None
            if self._closed:
                return False, f"{path}: decoding was stopped"
            if isinstance(error, TimeoutError):
                return (
                    False,
                    f"{path}: decoding took over {self.deadline:g} s and was stopped; try another reader",
                )
            return False, f"{path}: the decoder crashed on it; try another copy or reader"
        finally:
            self._idle.put(worker)

    def _start(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise EOFError  # a request that was still waiting for a place
            worker = _Worker()
            self._alive.add(worker)
        return worker

    def _replace(self, worker: _Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        self.killed += not self._closed
        worker.kill()

    async def close(self) -> None:
        """Ends all workers, busy ones too."""
        self._closed = True
        with self._lock:
            processes = [worker.process for worker in self._alive]
        for process in processes:
            process.kill()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        for worker in list(self._alive):
            worker.kill()
        self._alive.clear()

    async def __aenter__(self) -> "DecodePool":
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
