"""Videos whose every frame shows its own number, so that a reader can be checked to the frame."""

import struct
from collections.abc import Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

COLUMNS, ROWS = 6, 4
"""The number's 20 low bits, black or white, fill the cells row by row; four fixed corners show which side is up."""
_CORNERS = {(0, 0): 1, (0, COLUMNS - 1): 0, (ROWS - 1, 0): 1, (ROWS - 1, COLUMNS - 1): 1}
_CELLS = [(r, c) for r in range(ROWS) for c in range(COLUMNS) if (r, c) not in _CORNERS]


def draw_number(number: int, width: int, height: int) -> NDArray[np.uint8]:
    """The image that shows `number`.  # [height, width, 3]"""
    grid = np.zeros((ROWS, COLUMNS), dtype=np.uint8)
    for cell, bit in _CORNERS.items():
        grid[cell] = bit
    for position, cell in enumerate(_CELLS):
        grid[cell] = number >> position & 1
    rows, columns = np.arange(height) * ROWS // height, np.arange(width) * COLUMNS // width
    return np.repeat((grid[rows][:, columns] * 200 + 27).astype(np.uint8)[..., None], 3, axis=2)


def read_number(pixels: NDArray[np.uint8]) -> int:
    """The number an image shows; -1 if it shows none or is not upright.  # [height, width, 3]"""
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


def write_numbered_video(
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
        rotation: degrees clockwise that a player must rotate the image (mp4 and mov only).
        options: of the encoder.
        sound: whether to add a silent audio track.
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
        audio: Any = container.add_stream("aac", rate=16000) if sound else None
        for number, stamp in enumerate(stamps):
            image = draw_number(number, width, height)
            if rotation:
                image = np.ascontiguousarray(np.rot90(image, rotation // 90))
            if rotation in (90, 270) and number == 0:
                stream.width, stream.height = height, width
            frame = av.VideoFrame.from_ndarray(image, format="rgb24")
            frame.pts, frame.time_base = stamp, unit
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
        if audio is not None:
            silence = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), "fltp", "mono")
            silence.sample_rate, silence.pts = 16000, 0
            container.mux(audio.encode(silence))
            container.mux(audio.encode())
    if rotation:
        _set_rotation(path, rotation)
    return path


def _set_rotation(path: Path, rotation: int) -> None:
    """Write the display matrix into the track header of an mp4 file, which the muxer cannot do."""
    data = bytearray(path.read_bytes())
    offset = data.index(b"tkhd") + 4 + 40  # a version 0 box: 40 bytes before the matrix
    one, w = 0x10000, 0x40000000
    a, b, c, d = {90: (0, one, -one, 0), 180: (-one, 0, 0, -one), 270: (0, -one, one, 0)}[rotation]
    struct.pack_into(">9i", data, offset, a, b, 0, c, d, 0, 0, 0, w)
    path.write_bytes(bytes(data))
