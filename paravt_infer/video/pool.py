"""A pool of decoding processes with a deadline for every request. A late or dead worker is replaced."""

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
from typing import Any, Self

from paravt_infer.errors import VideoError
from paravt_infer.video.readers import DEFAULT_READER, RGBArray, get_reader
from paravt_infer.video.types import VideoIndex


class _Worker:
    """One worker process and its pipe; used by one thread at a time."""

    def __init__(self) -> None:
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, "-m", "paravt_infer.video.worker", str(theirs.fileno())]
            self.process = subprocess.Popen(command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL)
        self.connection = Connection(ours.detach())

    def request(self, seconds: float, function: str, arguments: tuple[Any, ...]) -> tuple[bool, Any]:
        """The worker's reply. Raises TimeoutError, EOFError or OSError if there is none."""
        deadline = time.monotonic() + seconds
        # Sending can block, too: a long index does not fit into the pipe.
        timer = threading.Timer(seconds, self.process.kill)
        timer.start()
        try:
            self.connection.send((seconds, function, arguments))
            return self.connection.recv()  # type: ignore[no-any-return]
        except (EOFError, OSError):
            if time.monotonic() >= deadline:
                raise TimeoutError from None
            raise
        finally:
            timer.cancel()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self.connection.close()


class DecodePool:
    """Decodes in worker processes, so that decoding cannot block the event loop.

    Example::

        async with DecodePool() as pool:
            index = await pool.index("film.mp4")
            images = await pool.read(index, [0, 25], (224, 128))
    """

    def __init__(self, *, workers: int | None = None, reader: str = DEFAULT_READER, deadline: float = 120.0):
        """
        Args:
            workers: number of processes; by default one per core, up to 8.
            reader: `pyav`, `decord` or `torchcodec`.
            deadline: seconds after which the worker of a request is killed.

        Raises:
            VideoError: unknown reader.
        """
        get_reader(reader)  # an unknown name is reported here, not by a worker
        self.workers = workers or min(8, os.cpu_count() or 1)
        self.reader = reader
        self.deadline = deadline
        self.decodes = 0
        """Read requests so far."""
        self.killed = 0
        """Workers that were replaced because they were late or died."""
        self._idle: LifoQueue[_Worker | None] = LifoQueue()  # LIFO: started workers are used first
        self._alive: set[_Worker] = set()
        self._lock = threading.Lock()
        self._closed = False
        for _ in range(self.workers):
            self._idle.put(None)  # the process is started by the first request
        self._threads = ThreadPoolExecutor(self.workers, thread_name_prefix="decode")

    async def index(self, path: str) -> VideoIndex:
        """The file's index. Raises VideoError."""
        result: VideoIndex = await self._run("index", (path,), path)
        return result

    async def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        """The frames `numbers` at `size` (width, height). Raises VideoError, also after the deadline."""
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
        worker = self._idle.get()  # never waits: there are as many entries as threads
        try:
            if worker is not None and worker.process.poll() is not None:  # killed from outside while idle
                self._replace(worker)
                worker = None
            worker = worker or self._start()
            return worker.request(self.deadline, function, arguments)
        except (TimeoutError, EOFError, OSError) as error:
            if worker is not None:
                self._replace(worker)
                worker = None
            if self._closed:
                return False, f"{path}: decoding was stopped"
            if isinstance(error, TimeoutError):
                return False, f"{path}: decoding took over {self.deadline:g} s and was stopped; try another reader"
            return False, f"{path}: the decoder crashed; try another copy or reader"
        finally:
            self._idle.put(worker)

    def _start(self) -> _Worker:
        with self._lock:
            if self._closed:
                raise EOFError  # handled by _call
            worker = _Worker()
            self._alive.add(worker)
        return worker

    def _replace(self, worker: _Worker) -> None:
        with self._lock:
            self._alive.discard(worker)
        self.killed += not self._closed
        worker.kill()

    async def close(self) -> None:
        """Stop all workers, including busy ones."""
        self._closed = True
        with self._lock:
            processes = [worker.process for worker in self._alive]
        for process in processes:
            process.kill()
        await asyncio.get_running_loop().run_in_executor(None, self._threads.shutdown)
        for worker in list(self._alive):
            worker.kill()
        self._alive.clear()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()
