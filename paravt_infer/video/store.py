"""Frames of video files: decoded in worker processes, once for everyone who asks, and cached up to a limit."""

from collections.abc import Sequence
from pathlib import Path

from paravt_infer.video.cache import SingleFlightCache
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame, VideoIndex, VideoInfo

CACHE_BYTES = 512 * 1024 * 1024


class VideoStore:
    """The `FrameSource` of files.

    Args:
        pool: decodes; closed with the store.
        cache_bytes: what decoded frames may take up in memory.

    Example::

        store = VideoStore(DecodePool())
        info = await store.probe("film.mp4")
        frames = await store.frames("film.mp4", [0.0, 12.0], FrameSizing(multiple=32))
        await store.close()
    """

    def __init__(self, pool: DecodePool, *, cache_bytes: int = CACHE_BYTES):
        self.pool = pool
        self.cache = SingleFlightCache(cache_bytes)

    @property
    def name(self) -> str:
        return self.pool.reader

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

        return await self.cache.get((*identity, tuple(numbers), size), decode, frames_nbytes)

    async def _index(self, path: str) -> VideoIndex:
        return await self.cache.get(
            _identity(path),
            lambda: self.pool.index(path),
            lambda index: index.pts.nbytes + index.times.nbytes + index.keys.nbytes,
        )

    async def close(self) -> None:
        """Stop the workers and forget the frames."""
        self.cache.clear()
        await self.pool.close()


def frames_nbytes(frames: Sequence[Frame]) -> int:
    """Bytes that frames take up: as pixels and, once a server has asked for them, as PNG too."""
    return 2 * sum(frame.pixels.nbytes for frame in frames)


def _identity(path: str) -> tuple[str, int, int]:
    """Identifies a file's content: a file that is written again is another one."""
    try:
        status = Path(path).stat()
    except OSError:
        return path, 0, 0
    return path, status.st_mtime_ns, status.st_size
