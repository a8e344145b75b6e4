"""Videos whose every frame carries its own number, so that a reader's answer can be checked to the frame."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

COLUMNS, ROWS = 6, 4
"""The number's 20 low bits, black or white, fill the cells row by row; four fixed corners show which way is up."""
_CORNERS = {(0, 0): 1, (0, COLUMNS - 1): 0, (ROWS - 1, 0): 1, (ROWS - 1, COLUMNS - 1): 1}
_CELLS = [(r, c) for r in range(ROWS) for c in range(COLUMNS) if (r, c) not in _CORNERS]


def picture(number: int, width: int, height: int) -> NDArray[np.uint8]:
    """The picture that says `number`.  # [height, width, 3]"""
    grid = np.zeros((ROWS, COLUMNS), dtype=np.uint8)
    for cell, bit in _CORNERS.items():
        grid[cell] = bit
    for position, cell in enumerate(_CELLS):
        grid[cell] = number >> position & 1
    rows, columns = np.arange(height) * ROWS // height, np.arange(width) * COLUMNS // width
    return np.repeat((grid[rows][:, columns] * 200 + 27).astype(np.uint8)[..., None], 3, axis=2)


def read_number(pixels: NDArray[np.uint8]) -> int:
    """The number a picture says, or -1 where it is no such picture or not the right way up."""
    height, width = pixels.shape[:2]
    grey = pixels.mean(axis=2)
    bits = np.zeros((ROWS, COLUMNS), dtype=int)
    for row in range(ROWS):
        for column in range(COLUMNS):
            y, x = int((row + 0.5) * height / ROWS), int((column + 0.5) * width / COLUMNS)
            value = grey[max(0, y - 2) : y + 3, max(0, x - 2) : x + 3].mean()
            if 90 < value < 165:
                return -1
            bits[row, column] = value > 127
    if any(bits[cell] != bit for cell, bit in _CORNERS.items()):
        return -1
    return sum(int(bits[cell]) << position for position, cell in enumerate(_CELLS))


def write_numbered(
    path: Path,
    *,
    frames: int = 250,
    fps: int = 25,
    size: tuple[int, int] = (192, 128),
    codec: str = "libx264",
    gop: int = 50,
    times: Sequence[float] | None = None,
    rotation: int = 0,
    options: dict[str, str] | None = None,
    sound: bool = False,
) -> Path:
    """Write a video of numbered frames and return its path.

    Args:
        times: seconds at which each frame is shown, for a variable frame rate; `frames` and `fps` otherwise.
        rotation: degrees clockwise that a player must turn the picture (mp4 and mov only).
        options: the encoder's own.
        sound: whether to add a silent sound track.
    """
    width, height = size
    unit = Fraction(1, 1000) if times is not None else Fraction(1, fps)
    stamps = [round(t * 1000) for t in times] if times is not None else list(range(frames))
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=fps)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.time_base = stream.time_base = unit
        stream.codec_context.gop_size = gop
        stream.codec_context.options = options or {}
        silence: Any = container.add_stream("aac", rate=16000) if sound else None
        for number, stamp in enumerate(stamps):
            shown = picture(number, width, height)
            turned = np.ascontiguousarray(np.rot90(shown, rotation // 90)) if rotation else shown
            if rotation in (90, 270) and number == 0:
                stream.width, stream.height = height, width
            frame = av.VideoFrame.from_ndarray(turned, format="rgb24")
            frame.pts, frame.time_base = stamp, unit
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if silence is not None:
            quiet = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), "fltp", "mono")
            quiet.sample_rate, quiet.pts = 16000, 0
            container.mux(silence.encode(quiet))
            container.mux(silence.encode())
    if rotation:
        _set_rotation(path, rotation)
    return path


def _set_rotation(path: Path, rotation: int) -> None:
    """Write the display matrix into the track header of an mp4 file: the muxer offers no way to."""
    data = bytearray(path.read_bytes())
    at = data.index(b"tkhd") + 4 + 40  # a version 0 box: 40 bytes before the matrix
    one, w = 0x10000, 0x40000000
    a, b, c, d = {90: (0, one, -one, 0), 180: (-one, 0, 0, -one), 270: (0, -one, one, 0)}[rotation]
    struct.pack_into(">9i", data, at, a, b, 0, c, d, 0, 0, 0, w)
    path.write_bytes(bytes(data))
