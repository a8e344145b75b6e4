"""Frames for all who ask: identical requests share one decode, and a cache bounded in bytes keeps the results."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Hashable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame, VideoIndex, VideoInfo

T = TypeVar("T")


class VideoStore:
    """The one way to frames in this project. Close it, or the pool given to it, when done.

    Example::

        store = VideoStore(DecodePool())
        info = await store.probe("film.mp4")
        frames = await store.frames("film.mp4", [0.0, 12.0], FrameSizing(multiple=32))
    """

    def __init__(self, pool: DecodePool, *, cache_bytes: int = 512 * 1024 * 1024):
        self.pool = pool
        self.cache_bytes = cache_bytes
        self.held_bytes = 0
        self._cache: OrderedDict[Hashable, tuple[int, Any]] = OrderedDict()
        self._flights: dict[Hashable, asyncio.Task[Any]] = {}

    async def probe(self, path: str) -> VideoInfo:
        """What the file is. Raises VideoError."""
        return (await self._index(path)).info

    async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
        """The frames on screen at `times` (seconds), each once and in order, with their true times.

        Raises:
            VideoError: the file or one of the frames cannot be read, or not before the deadline.
        """
        identity = _identity(path)
        index = await self._index(path)
        numbers = sorted({index.frame_at(time) for time in times})
        size = sizing.fit(index.info.width, index.info.height)

        async def decode() -> list[Frame]:
            pictures = await self.pool.read(index, numbers, size)
            return [Frame(float(index.times[n]), p) for n, p in zip(numbers, pictures, strict=True)]

        key = (*identity, tuple(numbers), size)
        # A frame is kept as pixels and, once a server asked for it, as PNG too.
        return await self._shared(key, decode, lambda got: 2 * sum(frame.pixels.nbytes for frame in got))

    async def _index(self, path: str) -> VideoIndex:
        return await self._shared(
            _identity(path),
            lambda: self.pool.index(path),
            lambda index: index.pts.nbytes + index.times.nbytes + index.keys.nbytes,
        )

    async def _shared(self, key: Hashable, make: Callable[[], Coroutine[Any, Any, T]], weigh: Callable[[T], int]) -> T:
        if key in self._cache:
            self._cache.move_to_end(key)
            return self._cache[key][1]  # type: ignore[no-any-return]
        flight = self._flights.get(key)
        if flight is None:
            flight = asyncio.create_task(make())  # type: ignore[arg-type]
            self._flights[key] = flight
            flight.add_done_callback(lambda done: self._land(key, done, weigh))
        # Shielded: one who stops waiting must not take the frames from the others.
        return await asyncio.shield(flight)

    def _land(self, key: Hashable, flight: asyncio.Task[T], weigh: Callable[[T], int]) -> None:
        self._flights.pop(key, None)
        if flight.cancelled() or flight.exception() is not None:
            return  # a failure is not kept: the file may be mended before it is asked for again
        weight = weigh(flight.result())
        self._cache[key] = (weight, flight.result())
        self.held_bytes += weight
        while self.held_bytes > self.cache_bytes and self._cache:
            _, (dropped, _) = self._cache.popitem(last=False)
            self.held_bytes -= dropped

    async def close(self) -> None:
        """Ends the workers and forgets the frames."""
        for flight in self._flights.values():
            flight.cancel()
        self._cache.clear()
        self.held_bytes = 0
        await self.pool.close()


def _identity(path: str) -> tuple[str, int, int]:
    """Names a file's content: a file written anew is another one."""
    try:
        status = Path(path).stat()
    except OSError:
        return path, 0, 0
    return path, status.st_mtime_ns, status.st_size
