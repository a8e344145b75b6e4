"""The interface of frame sources: video files (`VideoStore`), or anything else with frames at given times."""

from collections.abc import Sequence
from typing import Protocol

from paravt_infer.video.sampling import FrameSizing
from paravt_infer.video.types import Frame, VideoInfo


class FrameSource(Protocol):
    """A source of video frames for the engine."""

    @property
    def name(self) -> str:
        """Identifies the source in records: for files the reader, such as `pyav`."""

    async def probe(self, path: str) -> VideoInfo:
        """Facts about the video.

        Raises:
            VideoError: the video cannot be read.
        """

    async def frames(self, path: str, times: Sequence[float], sizing: FrameSizing) -> list[Frame]:
        """The frames on screen at `times` (seconds), each once and in order, with their actual times.

        Raises:
            VideoError: the video or one of the frames cannot be decoded, or not before the deadline.
        """

    async def close(self) -> None:
        """Stop workers and free memory."""
