"""Readers decode frames of a video file by their number in its index: PyAV, decord and torchcodec.

`measures.readers` compares their speed and correctness.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import VideoError, first_line, suggestion
from paravt_infer.video.index import open_container, packet_timestamp, video_stream
from paravt_infer.video.types import VideoIndex

RGBArray = NDArray[np.uint8]
"""RGB.  # [height, width, 3]"""


class Reader(Protocol):
    """Decodes frames by their number in display order."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        """The frames `numbers` (ascending), rotated for display and resized to `size` (width, height).

        Raises:
            VideoError: a frame cannot be decoded.
        """


class PyAVReader:
    """Exact, and the fastest of the three: it decodes only what the wanted frames depend on.

    It skips groups of pictures (GOPs) without a wanted frame, and frames that no other frame refers to. After damage in
    a GOP, its later frames depend on a broken one and are not returned.
    """

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        wanted = {int(index.pts[n]) for n in numbers}
        with open_container(index.info.path) as container:
            stream = video_stream(container)
            stream.codec_context.thread_type = "AUTO"
            stream.codec_context.thread_count = 2
            decode = _decode_all if index.unreliable_pts else _decode_gops
            found = decode(container, stream, index, wanted, size)
        missing = wanted - found.keys()
        if missing:
            first = index.times[np.searchsorted(index.pts, min(missing))]
            raise VideoError(
                f"{index.info.path}: {len(missing)} of {len(wanted)} frames cannot be decoded, the first at "
                f"{first:.1f} s; the file is damaged there, try another copy"
            )
        return [found[int(index.pts[n])] for n in numbers]


def _decode_gops(
    container: Any, stream: Any, index: VideoIndex, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames, by timestamp, from the GOPs that contain them."""
    found: dict[int, RGBArray] = {}
    # With intra refresh, a picture is complete only some frames after the key frame: then also decode the GOP before.
    for back in (0, 1):
        gops: dict[int, set[int]] = {}
        for stamp in wanted - found.keys():
            key = max(0, int(np.searchsorted(index.keys, stamp, side="right")) - 1 - back)
            gops.setdefault(key, set()).add(stamp)
        for key in sorted(gops):
            found |= _decode_gop(container, stream, index, key, gops[key], size)
    return found


def _decode_gop(
    container: Any, stream: Any, index: VideoIndex, key: int, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames after key frame number `key`, up to the last one or the first damage."""
    found: dict[int, RGBArray] = {}
    context = stream.codec_context
    context.flush_buffers()
    skip = "DEFAULT" if context.name == "libdav1d" else "NONREF"  # dav1d cannot change it between frames
    with suppress(av.error.FFmpegError, ValueError):
        for packet in _packets_from(container, stream, index, key):
            if packet is not None:
                context.skip_frame = "DEFAULT" if packet.pts is None or packet.pts in wanted else skip
            for frame in context.decode(packet):
                if frame.pts in wanted and not frame.is_corrupt:
                    found[frame.pts] = _to_rgb(frame, index.info.rotation, size)
                if frame.pts is not None and frame.pts >= max(wanted):
                    return found
    return found


def _packets_from(container: Any, stream: Any, index: VideoIndex, key: int) -> Iterator[Any]:
    """Packets from key frame number `key` to the end of the file or its first damage, and a final None."""
    # MPEG-TS may seek beyond the target: then from the previous key frame, or from the start.
    for target in (index.keys[key], index.keys[max(0, key - 1)], index.pts[0] - 60 / stream.time_base):
        started = False
        with suppress(av.error.FFmpegError):
            container.seek(int(target), stream=stream, backward=True, any_frame=False)
            for packet in container.demux(stream):
                stamp = packet_timestamp(packet)
                if not started and packet.is_keyframe and stamp is not None:
                    started = stamp == index.keys[key]
                    if stamp > index.keys[key]:
                        break
                if started:
                    if packet.is_corrupt or not packet.size:
                        break
                    yield packet
        if started:
            break
    yield None


def _decode_all(
    container: Any, stream: Any, index: VideoIndex, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames, identified by counting: decodes everything up to the last one."""
    found: dict[int, RGBArray] = {}
    with suppress(av.error.FFmpegError, ValueError):
        for stamp, frame in zip(index.pts, container.decode(stream), strict=False):
            if stamp in wanted:
                found[int(stamp)] = _to_rgb(frame, index.info.rotation, size)
            if len(found) == len(wanted):
                break
    return found


def _to_rgb(frame: Any, rotation: int, size: tuple[int, int]) -> RGBArray:
    """A decoded frame as RGB in its final size; resized before it is rotated, which is cheaper."""
    width, height = size if rotation in (0, 180) else size[::-1]
    # With a target colour space, PyAV 15 respects that of the source (BT.709 in most HD files).
    rgb = frame.reformat(
        width=width,
        height=height,
        format="rgb24",
        interpolation="BICUBIC",
        dst_colorspace="ITU601",
        src_color_range=frame.color_range,
        dst_color_range="JPEG",
    )
    return rotate(rgb.to_ndarray(), rotation)


def rotate(image: RGBArray, rotation: int) -> RGBArray:
    """`image` rotated clockwise by `rotation` degrees, a multiple of 90."""
    rotated: RGBArray = np.ascontiguousarray(np.rot90(image, k=-(rotation // 90))) if rotation else image
    return rotated


def _resize(images: Sequence[RGBArray], rotation: int, size: tuple[int, int]) -> list[RGBArray]:
    from PIL import Image

    rotated = (Image.fromarray(rotate(image, rotation)) for image in images)
    return [np.asarray(image.resize(size, Image.Resampling.BICUBIC)) for image in rotated]


class DecordReader:
    """decord 0.6.0. It can hang on some files, until the worker's deadline, and does not decode AV1."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        try:
            import decord
        except ImportError:
            raise VideoError("the decord reader is not installed: pip install 'paravt-infer[decord]'") from None
        try:
            reader = decord.VideoReader(str(Path(index.info.path).absolute()), num_threads=2)
            images = reader.get_batch([int(n) for n in numbers]).asnumpy()
        except (RuntimeError, IndexError, decord.DECORDError) as error:
            line = str(error).strip().splitlines()[-1][:200] if str(error).strip() else type(error).__name__
            raise VideoError(f"{index.info.path}: decord cannot decode it ({line}); use the pyav reader") from None
        return _resize(list(images), 0, size)  # decord has rotated them


class TorchcodecReader:
    """torchcodec. It needs FFmpeg's shared libraries."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError):
            raise VideoError(
                "the torchcodec reader is not available: pip install 'paravt-infer[torchcodec]' and FFmpeg's libraries"
            ) from None
        try:
            path = str(Path(index.info.path).absolute())
            decoder = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=2, seek_mode="exact")
            images = decoder.get_frames_at([int(n) for n in numbers]).data.numpy()
        except (RuntimeError, ValueError, IndexError) as error:
            line = first_line(error)
            raise VideoError(f"{index.info.path}: torchcodec cannot decode it ({line}); use the pyav reader") from None
        # Newer versions rotate the images themselves.
        rotated = images.shape[1:3] == (index.info.height, index.info.width)
        return _resize(list(images), 0 if rotated else index.info.rotation, size)


READERS: dict[str, type[Reader]] = {"pyav": PyAVReader, "decord": DecordReader, "torchcodec": TorchcodecReader}
DEFAULT_READER = "pyav"


def get_reader(name: str) -> Reader:
    """The reader called `name`.

    Raises:
        VideoError: unknown reader.
    """
    if name not in READERS:
        raise VideoError(f"unknown reader {name!r}{suggestion(name, READERS)}")
    return READERS[name]()
