"""Damaged copies of video files, to see how readers cope: cut, overwritten, remuxed, or with a header that lies."""

import struct
from pathlib import Path

import av
import numpy as np


def remux(source: Path, out: Path, *, offset: float = 0.0, **options: str) -> Path:
    """The same packets in another file, which starts `offset` seconds into them, at a key frame or not.

    Args:
        options: of the muxer, such as ``movflags="faststart"``.
    """
    with av.open(str(source)) as original, av.open(str(out), "w", options=options) as copy:
        stream = original.streams.video[0]
        target = copy.add_stream_from_template(stream)
        ticks = round(offset / float(stream.time_base))
        for packet in original.demux(stream):
            if packet.size:
                packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
                packet.stream = target
                copy.mux(packet)
    return out


def truncate(source: Path, out: Path, *, fraction: float, after: bytes = b"") -> Path:
    """The first `fraction` of the file's bytes; with `after`, everything up to it and that fraction of the rest."""
    data = source.read_bytes()
    start = data.index(after)
    out.write_bytes(data[: start + int((len(data) - start) * fraction)])
    return out


def overwrite_with_noise(source: Path, out: Path, *, at: float, length: int) -> Path:
    """The file with `length` bytes of noise in place of its own, from the fraction `at` of it on."""
    data = bytearray(source.read_bytes())
    start = int(len(data) * at)
    data[start : start + length] = np.random.default_rng(length + start).bytes(length)
    out.write_bytes(bytes(data))
    return out


def inflate_duration(source: Path, out: Path, *, factor: int) -> Path:
    """An mp4 or mkv file whose header claims `factor` times its duration (and number of frames, in mp4)."""
    data = bytearray(source.read_bytes())
    if source.suffix == ".mkv":
        offset = data.index(b"\x44\x89\x88") + 3  # the element Duration, eight bytes long
        struct.pack_into(">d", data, offset, struct.unpack_from(">d", data, offset)[0] * factor)
    else:
        for box, field in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24), (b"stts", 12)):
            offset = data.index(box) + field
            struct.pack_into(">I", data, offset, struct.unpack_from(">I", data, offset)[0] * factor)
    out.write_bytes(bytes(data))
    return out
