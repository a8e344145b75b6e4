"""Frames of the sample world without files: drawn on request, as a video of the scene would show them."""

from collections.abc import Callable, Sequence
from threading import Lock

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from paravt_infer.errors import VideoError
from paravt_infer.video.cache import SingleFlightCache
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.store import CACHE_BYTES, frames_nbytes
from paravt_infer.video.types import Frame, VideoInfo
from paravt_training.world.scene import Scene

SIZE = 256
"""The width and height in pixels that `probe` reports."""
MAX_SCENES = 4096
"""Scenes that are kept; the least recently used go first."""


class DrawnFrames:
    """The `FrameSource` of the sample world: after `add`, a name is the path of a scene's video.

    Args:
        augment: the augmentation of a scene's images; none by default.
        cache_bytes: memory for drawn frames.
    """

    name = "sample_world"

    def __init__(
        self,
        augment: Callable[[Scene], Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] | None = None,
        *,
        cache_bytes: int = CACHE_BYTES,
    ):
        self.augment = augment
        self.drawn = 0
        """Images drawn so far; requests for the same frames share them."""
        self.cache = SingleFlightCache(cache_bytes)
        self._scenes: LRUCache[str, Scene] = LRUCache(MAX_SCENES)
        self._lock = Lock()  # scenes are added and read on different threads

    def add(self, path: str, scene: Scene) -> None:
        """Make `path` the video of `scene`."""
        with self._lock:
            self._scenes[path] = scene

    async def probe(self, path: str) -> VideoInfo:
        """The video that `path` stands for. Raises VideoError."""
        scene = self._scene(path)
        return VideoInfo(
            path=path,
            duration=float(scene.duration),
            container_duration=float(scene.duration),
            fps=1.0,
            variable_rate=False,
            frames=scene.duration,
            width=SIZE,
            height=SIZE,
            rotation=0,
            codec="drawn",
            size_bytes=0,
        )

    async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
        """The frames on screen at `times` (seconds). Raises VideoError."""
        scene, size = self._scene(path), sizing.fit(SIZE, SIZE)
        seconds = tuple(sorted({min(int(time + 5e-4), scene.duration - 1) for time in times}))

        async def draw() -> list[Frame]:
            augment = self.augment(scene) if self.augment else lambda image: image
            self.drawn += len(seconds)
            return [Frame(float(time), augment(scene.render(float(time), size))) for time in seconds]

        return await self.cache.get((path, seconds, size), draw, frames_nbytes)

    async def close(self) -> None:
        """Drop the cached frames."""
        self.cache.clear()

    def _scene(self, path: str) -> Scene:
        try:
            with self._lock:
                return self._scenes[path]
        except KeyError:
            raise VideoError(f"{path}: not a scene of the sample world; add it first") from None
