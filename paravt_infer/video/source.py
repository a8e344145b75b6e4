"""Where frames come from: files (`VideoStore`), or anything else that can show a video's frames at given times."""

from collections.abc import Sequence
from typing import Protocol

from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame, VideoInfo


class FrameSource(Protocol):
    """What the engine needs of a source of frames."""

    @property
    def name(self) -> str:
        """What makes the frames, for the record: a reader's name, such as `pyav`."""

    async def probe(self, path: str) -> VideoInfo:
        """What the video is.

        Raises:
            VideoError: it cannot be read.
        """

    async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
        """The frames on screen at `times` (seconds), each once and in order, with their true times.

        Raises:
            VideoError: the video or one of the frames cannot be read, or not before the deadline.
        """

    async def close(self) -> None:
        """Stop workers and free memory."""
