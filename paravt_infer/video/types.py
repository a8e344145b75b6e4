"""The data types of the video package: facts about a file, its index, and frames with their times."""

import hashlib
import io
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """Facts about a video file, from its packets and not only from its header."""

    path: str
    duration: float
    """Seconds from the first frame to the end of the last one that is really in the file."""
    container_duration: float
    """Seconds according to the header, or 0; more than `duration` if the file is truncated."""
    fps: float
    """Average frames per second."""
    variable_rate: bool
    frames: int
    width: int
    """Pixels as displayed, after rotation."""
    height: int
    rotation: int
    """Clockwise rotation for display, in degrees: 0, 90, 180 or 270."""
    codec: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class VideoIndex:
    """The frames of a file in display order; maps times to frames."""

    info: VideoInfo
    times: NDArray[np.float64]
    """Seconds since the first frame, ascending.  # [frames]"""
    pts: NDArray[np.int64]
    """Their timestamps in units of the stream's time base.  # [frames]"""
    keys: NDArray[np.int64]
    """Timestamps of key frames, ascending: where decoding can start.  # [key frames]"""
    unreliable_pts: bool = False
    """Whether decoded frames have wrong timestamps, so that they can only be identified by counting."""

    def frame_at(self, time: float) -> int:
        """The number of the frame on screen at `time` seconds (the first one for earlier times)."""
        # Half a millisecond of tolerance: a window may start at a frame's time, rounded.
        return max(0, int(np.searchsorted(self.times, time + 5e-4, side="right")) - 1)


@dataclass(frozen=True)
class Frame:
    """One frame of a video and its time."""

    time: float
    """Seconds since the video's first frame, from the file's timestamps."""
    pixels: NDArray[np.uint8] = field(repr=False)
    """RGB.  # [height, width, 3]"""

    @property
    def width(self) -> int:
        return int(self.pixels.shape[1])

    @property
    def height(self) -> int:
        return int(self.pixels.shape[0])

    @cached_property
    def png(self) -> bytes:
        """The frame as PNG, which is lossless: every backend sees the same pixels."""
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(self.pixels).save(buffer, format="PNG", compress_level=1)
        return buffer.getvalue()

    @cached_property
    def digest(self) -> str:
        """A hash of the pixels, for the record: 12 hex digits."""
        return hashlib.sha256(self.pixels.tobytes()).hexdigest()[:12]
