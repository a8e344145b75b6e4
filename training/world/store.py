"""Frames of the sample world without files: drawn when they are asked for, as a video of the scene would show them."""

from collections import OrderedDict
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import VideoError
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.store import VideoStore
from paravt_infer.video.types import Frame, VideoInfo
from paravt_training.world.scene import Scene

SIZE = 256
"""Pixels that the drawn video is said to be wide and high."""
SCENES = 4096
"""Scenes that are remembered."""


class DrawnFrames(VideoStore):
    """Takes the place of a store of files: `add` names a scene, and its name is a video's path from then on.

    Args:
        wear: what recording does to a picture, by the scene; nothing by default.
    """

    def __init__(self, wear: Callable[[Scene], Callable[[NDArray[np.uint8]], NDArray[np.uint8]]] | None = None):
        super().__init__(DecodePool())  # it starts no worker before it is asked for one
        self.wear = wear
        self.drawn = 0
        """Pictures drawn so far: requests for the same ones share them."""
        self._scenes: OrderedDict[str, Scene] = OrderedDict()

    def add(self, path: str, scene: Scene) -> None:
        """Let `path` be a video of `scene`."""
        self._scenes[path] = scene
        self._scenes.move_to_end(path)
        if len(self._scenes) > SCENES:
            self._scenes.popitem(last=False)

    async def probe(self, path: str) -> VideoInfo:
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
        scene, size = self._scene(path), sizing.fit(SIZE, SIZE)
        whole = tuple(sorted({min(int(time + 5e-4), scene.duration - 1) for time in times}))

        async def draw() -> list[Frame]:
            wear = self.wear(scene) if self.wear else lambda picture: picture
            self.drawn += len(whole)
            return [Frame(float(time), wear(scene.picture(float(time), size))) for time in whole]

        return await self._shared((path, whole, size), draw, lambda got: 2 * sum(frame.pixels.nbytes for frame in got))

    def _scene(self, path: str) -> Scene:
        try:
            return self._scenes[path]
        except KeyError:
            raise VideoError(f"{path}: no scene of the sample world has this name") from None
