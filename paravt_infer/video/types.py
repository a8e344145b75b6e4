"""What the video package hands out: what a file is, and frames with their true times."""

import hashlib
import io
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, kw_only=True)
class VideoInfo:
    """What a video file is, read from its packets and not only from its header."""

    path: str
    duration: float
    """Seconds from the first frame's time to the end of the last one that is really there."""
    container_duration: float
    """Seconds the header claims; 0 where it claims nothing. More than `duration` in a truncated file."""
    fps: float
    """Average frames a second."""
    variable_rate: bool
    frames: int
    width: int
    """Pixels as displayed, rotation applied."""
    height: int
    rotation: int
    """Degrees the picture is turned clockwise for display: 0, 90, 180 or 270."""
    codec: str
    size_bytes: int


@dataclass(frozen=True, kw_only=True)
class VideoIndex:
    """The file's frames in display order: what turns a time into a frame."""

    info: VideoInfo
    times: NDArray[np.float64]
    """Seconds since the first frame, ascending.  # [frames]"""
    pts: NDArray[np.int64]
    """The same frames' timestamps in the stream's own unit.  # [frames]"""
    keys: NDArray[np.int64]
    """Timestamps of key frames, ascending: where decoding can start.  # [key frames]"""
    counted: bool = False
    """Whether the decoder's timestamps are wrong, so that only a count from the first frame on names a frame."""

    def frame_at(self, time: float) -> int:
        """The number of the frame on screen at `time` seconds (the first one for earlier times)."""
        # Half a millisecond of grace: a window may name a frame's own time, rounded.
        return max(0, int(np.searchsorted(self.times, time + 5e-4, side="right")) - 1)


@dataclass(frozen=True)
class Frame:
    """One picture and when it is shown."""

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
        """The frame as PNG: lossless, so that every backend sees the same pixels."""
        from PIL import Image

        buffer = io.BytesIO()
        Image.fromarray(self.pixels).save(buffer, format="PNG", compress_level=1)
        return buffer.getvalue()

    @cached_property
    def digest(self) -> str:
        """Twelve hex digits that name the pixels, for the record."""
        return hashlib.sha256(self.pixels.tobytes()).hexdigest()[:12]
