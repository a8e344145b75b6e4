"""Which frames to sample from the video or a window, and in what size."""

import math
from dataclasses import dataclass

from paravt_infer.errors import SettingsError


def sample_times(start: float, end: float, *, fps: float, limit: int) -> list[float]:
    """Times from `start` (included) to `end` in seconds at `fps`, uniformly thinned to at most `limit`.

    The same rule for the overview (0 to the duration, 64 frames) and for a window (16 frames): paper section 3.1.1 and
    "Base Model" of its appendix. Always at least one time.

    >>> sample_times(10, 14, fps=1, limit=16)
    [10.0, 11.0, 12.0, 13.0]
    >>> sample_times(0, 100, fps=1, limit=4)
    [0.0, 33.0, 66.0, 99.0]
    """
    if limit < 1 or not fps > 0:
        raise SettingsError(f"frames must be at least 1 and fps above 0, not {limit} and {fps}")
    count = max(1, math.ceil((end - start) * fps - 1e-6))
    if count <= limit:
        picked: list[float] = [float(i) for i in range(count)]
    elif limit == 1:
        picked = [float((count - 1) // 2)]
    else:
        picked = [float(round(i * (count - 1) / (limit - 1))) for i in range(limit)]
    return [float(start) + i / fps for i in picked]


@dataclass(frozen=True, kw_only=True)
class FrameSizing:
    """The allowed frame sizes: both sides are multiples of `multiple`, and the area is within the pixel bounds.

    `multiple` is patch size times merge size of the model's image processor. Its bounds clamp the requested ones, as a
    server would otherwise resize the frame again.
    """

    multiple: int
    min_pixels: int = 784
    max_pixels: int = 50176

    def fit(self, width: int, height: int) -> tuple[int, int]:
        """(width, height) in pixels for a frame of this size, keeping its aspect ratio as far as the grid allows.

        >>> FrameSizing(multiple=32).fit(640, 360)
        (288, 160)
        """
        if width < 1 or height < 1:
            raise SettingsError(f"a frame of {width}x{height} pixels has no size")
        unit = self.multiple
        area = min(max(width * height, self.min_pixels), self.max_pixels)
        scale = math.sqrt(area / (width * height))
        wide, high = (max(1, round(side * scale / unit)) for side in (width, height))
        # Rounding can exceed the bounds by a row or a column, for extreme aspect ratios by more.
        while wide * high * unit * unit > self.max_pixels and max(wide, high) > 1:
            wide, high = (wide - 1, high) if wide >= high else (wide, high - 1)
        while wide * high * unit * unit < self.min_pixels:
            wide, high = (wide + 1, high) if wide * height <= high * width else (wide, high + 1)
        return wide * unit, high * unit

    def tokens(self, width: int, height: int) -> int:
        """Visual tokens of a frame of this (fitted) size."""
        return visual_tokens(width, height, self.multiple)


def visual_tokens(width: int, height: int, multiple: int) -> int:
    """Visual tokens of a frame: one per square of `multiple` (patch size times merge size) pixels.

    >>> visual_tokens(288, 160, 32)
    45
    """
    return (width // multiple) * (height // multiple)
