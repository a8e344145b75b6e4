"""The frame source of video files: decodes in worker processes, with a shared, size-bounded cache."""

from collections.abc import Sequence
from pathlib import Path

from paravt_infer.video.cache import SingleFlightCache
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame, VideoIndex, VideoInfo

CACHE_BYTES = 512 * 1024 * 1024


class VideoStore:
    """A `FrameSource` of video files.

    Args:
        pool: decodes frames; closed with the store.
        cache_bytes: maximum memory of cached frames.

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
        """Facts about the file. Raises VideoError."""
        return (await self._index(path)).info

    async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
        """The frames on screen at `times` (seconds), each once and in order, with their actual times.

        Raises:
            VideoError: the file or one of the frames cannot be decoded, or not before the deadline.
        """
        identity = _identity(path)
        index = await self._index(path)
        numbers = sorted({index.frame_at(time) for time in times})
        size = sizing.fit(index.info.width, index.info.height)

        async def decode() -> list[Frame]:
            images = await self.pool.read(index, numbers, size)
            return [Frame(float(index.times[n]), image) for n, image in zip(numbers, images, strict=True)]

        return await self.cache.get((*identity, tuple(numbers), size), decode, frames_nbytes)

    async def _index(self, path: str) -> VideoIndex:
        return await self.cache.get(
            _identity(path),
            lambda: self.pool.index(path),
            lambda index: index.pts.nbytes + index.times.nbytes + index.keys.nbytes,
        )

    async def close(self) -> None:
        """Stop the workers and clear the cache."""
        self.cache.clear()
        await self.pool.close()


def frames_nbytes(frames: Sequence[Frame]) -> int:
    """Memory of frames in bytes: their pixels and, once a backend has needed them, their PNGs."""
    return 2 * sum(frame.pixels.nbytes for frame in frames)


def _identity(path: str) -> tuple[str, int, int]:
    """Identifies a version of a file by its path, modification time and size."""
    try:
        status = Path(path).stat()
    except OSError:
        return path, 0, 0
    return path, status.st_mtime_ns, status.st_size
