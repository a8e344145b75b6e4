"""Readers: an open file and frame numbers in, pictures out. One index for all of them, read by PyAV.

The index comes from the packets alone (nothing is decoded), so every reader is asked for the same frames by
number and every frame has the file's own time. `measures.readers` measures which reader is fast and right.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import VideoError, suggestion
from paravt_infer.video.types import VideoIndex, VideoInfo

RGBArray = NDArray[np.uint8]
"""RGB.  # [height, width, 3]"""


class Reader(Protocol):
    """Decodes frames of a file by their number in display order."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        """The frames `numbers` (ascending), rotated for display and resized to `size` (width, height).

        Raises:
            VideoError: a frame cannot be decoded.
        """


@contextmanager
def _open(path: str) -> Any:
    """A PyAV container with a video stream, or a VideoError that says which fault it is."""
    file = Path(path)
    if not file.exists():
        raise VideoError(f"{path}: no such file; check the path")
    if not file.is_file():
        raise VideoError(f"{path}: not a file; name one video file")
    if file.stat().st_size == 0:
        raise VideoError(f"{path}: the file is empty (0 bytes); copy or download it again")
    try:
        # With its protocol named, "12:30.mp4" is a file and not the protocol "12".
        container = av.open(f"file:{path}", metadata_errors="ignore")
    except av.error.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"{path}: not a video, or cut off before its index ({reason}); try another copy") from None
    except OSError as error:
        raise VideoError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    with container:
        stream = _pictures(container)
        if stream is None:
            raise VideoError(f"{path}: has no video stream (sound or text only); name a file with pictures")
        if stream.codec_context is None:
            raise VideoError(f"{path}: its codec is unknown here; convert it to H.264, or update PyAV")
        yield container


def _pictures(container: Any) -> Any:
    """The first video stream that is not a cover picture, or None."""
    cover = av.stream.Disposition.attached_pic
    return next((stream for stream in container.streams.video if not stream.disposition & cover), None)


def _stamp(packet: Any) -> int | None:
    """The timestamp of the packet's frame, in the stream's unit."""
    return packet.dts if packet.pts is None else packet.pts  # type: ignore[no-any-return]


def read_index(path: str) -> VideoIndex:
    """What the file is and when each of its frames is shown, from its packets.

    Raises:
        VideoError: missing, empty, not a video, without a video stream, or without a single decodable frame.
    """
    first = _first_frame(path)
    with _open(path) as container:
        stream = _pictures(container)
        stamps, keys, last_length, in_order = _packet_times(container, stream)
        if not len(stamps):
            raise VideoError(f"{path}: holds no frame that can be decoded; try another copy")
        # Whole numbers as long as possible: 400 frames of a tenth of a second last 40 seconds, not 40.00000000000001.
        ticks, per_second = stream.time_base.numerator, stream.time_base.denominator
        times = (stamps - stamps[0]) * ticks / per_second
        gaps = np.diff(times)
        usual = float(np.median(gaps)) if len(gaps) else 1 / float(stream.average_rate or 25)
        # A muxer may give the last frame the rest of the file's time; longer than this is no frame's length.
        last = (
            last_length
            if 0 < last_length * ticks / per_second <= max(usual * 10, 10.0)
            else round(usual * per_second / ticks)
        )
        duration = int(stamps[-1] - stamps[0] + last) * ticks / per_second
        # FFmpeg counts the display matrix counter-clockwise; people turn pictures clockwise.
        rotation = -int(first.rotation) % 360
        width, height = (first.width, first.height)[:: -1 if rotation in (90, 270) else 1]
        info = VideoInfo(
            path=path,
            duration=duration,
            container_duration=max(0.0, (container.duration or 0) / av.time_base),
            fps=len(stamps) / duration,
            variable_rate=bool(len(gaps) and gaps.max() > 1.5 * gaps.min() + 2 * ticks / per_second),
            frames=len(stamps),
            width=width,
            height=height,
            rotation=rotation,
            codec=stream.codec_context.codec.canonical_name,
            size_bytes=Path(path).stat().st_size,
        )
        # AVI has no presentation times: with B frames, FFmpeg gives the times of decoding to the wrong frames.
        counted = in_order and "avi" in container.format.name and bool(stream.codec_context.has_b_frames)
        return VideoIndex(info=info, times=times, pts=stamps, keys=keys, counted=counted)


def _packet_times(container: Any, stream: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int, bool]:
    """Timestamps of all frames and of the key frames, ascending; the last frame's length in the same unit;
    whether the packets come in the order of their timestamps."""
    lengths: dict[int, int] = {}
    keys: list[int] = []
    with suppress(av.error.FFmpegError):  # a file cut in the middle: what came before the cut counts
        for packet in container.demux(stream):
            stamp = _stamp(packet)
            if packet.size == 0 or stamp is None or packet.is_corrupt:
                continue
            if packet.is_keyframe:
                keys.append(stamp)
            # Earlier ones refer to pictures that are not in the file; an edit list cuts the discarded ones off.
            if keys and stamp >= keys[0] and not packet.is_discard:
                lengths[stamp] = packet.duration or 0
    stamps = np.array(sorted(lengths), dtype=np.int64)
    last_length = lengths[int(stamps[-1])] if len(stamps) else 0
    return stamps, np.unique(np.array(keys, dtype=np.int64)), last_length, list(lengths) == sorted(lengths)


def _first_frame(path: str) -> Any:
    """The first frame that decodes: proof that this is a video, its true size and rotation."""
    reason = "no picture came out"
    with _open(path) as container:
        try:
            for frame in container.decode(_pictures(container)):
                return frame
        except (av.error.FFmpegError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise VideoError(f"{path}: holds no frame that can be decoded ({reason}); try another copy")


class PyAVReader:
    """Exact and, of the three, the fastest: decodes only what the asked frames depend on.

    Groups of pictures without an asked frame are jumped over, and so are frames that no other one refers to.
    What follows damage in a group builds on a broken picture and is never handed out.
    """

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        wanted = {int(index.pts[n]) for n in numbers}
        with _open(index.info.path) as container:
            stream = _pictures(container)
            stream.codec_context.thread_type = "AUTO"
            stream.codec_context.thread_count = 2
            if index.counted:
                found = _count(container, stream, index, wanted, size)
            else:
                found = _jump(container, stream, index, wanted, size)
        missing = wanted - found.keys()
        if missing:
            at = index.times[np.searchsorted(index.pts, min(missing))]
            raise VideoError(
                f"{index.info.path}: {len(missing)} of {len(wanted)} frames cannot be decoded, the first at "
                f"{at:.1f} s; the file is damaged there, try another copy"
            )
        return [found[int(index.pts[n])] for n in numbers]


def _jump(
    container: Any, stream: Any, index: VideoIndex, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames, by timestamp, from the groups of pictures that hold them."""
    found: dict[int, RGBArray] = {}
    # A key frame with intra refresh is whole only some frames later; the group before it has what is missing.
    for back in (0, 1):
        groups: dict[int, set[int]] = {}
        for stamp in wanted - found.keys():
            key = max(0, int(np.searchsorted(index.keys, stamp, side="right")) - 1 - back)
            groups.setdefault(key, set()).add(stamp)
        for key in sorted(groups):
            found |= _group(container, stream, index, key, groups[key], size)
    return found


def _group(
    container: Any, stream: Any, index: VideoIndex, key: int, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames that follow key frame number `key`, up to the last one or to where the file is damaged."""
    found: dict[int, RGBArray] = {}
    context = stream.codec_context
    context.flush_buffers()
    skip = "DEFAULT" if context.name == "libdav1d" else "NONREF"  # dav1d cannot change it from frame to frame
    with suppress(av.error.FFmpegError, ValueError):
        for packet in _packets_from(container, stream, index, key):
            if packet is not None:
                context.skip_frame = "DEFAULT" if packet.pts is None or packet.pts in wanted else skip
            for frame in context.decode(packet):
                if frame.pts in wanted and not frame.is_corrupt:
                    found[frame.pts] = _picture(frame, index.info.rotation, size)
                if frame.pts is not None and frame.pts >= max(wanted):
                    return found
    return found


def _packets_from(container: Any, stream: Any, index: VideoIndex, key: int) -> Iterator[Any]:
    """Packets from key frame number `key` to the file's end or its first damage; None ends them."""
    # MPEG-TS seeks to somewhere after the asked place: then from an earlier one, or from the very start.
    for target in (index.keys[key], index.keys[max(0, key - 1)], index.pts[0] - 60 / stream.time_base):
        started = False
        with suppress(av.error.FFmpegError):
            container.seek(int(target), stream=stream, backward=True, any_frame=False)
            for packet in container.demux(stream):
                stamp = _stamp(packet)
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


def _count(
    container: Any, stream: Any, index: VideoIndex, wanted: set[int], size: tuple[int, int]
) -> dict[int, RGBArray]:
    """The wanted frames, known by how many came before them: all of the file is decoded up to the last one."""
    found: dict[int, RGBArray] = {}
    with suppress(av.error.FFmpegError, ValueError):
        for stamp, frame in zip(index.pts, container.decode(stream), strict=False):
            if stamp in wanted:
                found[int(stamp)] = _picture(frame, index.info.rotation, size)
            if len(found) == len(wanted):
                break
    return found


def _picture(frame: Any, rotation: int, size: tuple[int, int]) -> RGBArray:
    """A decoded frame as RGB at its final size; resized before it is turned, which is cheaper."""
    width, height = size if rotation in (0, 180) else size[::-1]
    # Naming the target's colours makes PyAV 15 heed the source's own (BT.709 in most HD files).
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


def rotate(picture: RGBArray, rotation: int) -> RGBArray:
    """`picture` turned clockwise by `rotation` degrees."""
    turned: RGBArray = np.ascontiguousarray(np.rot90(picture, k=-(rotation // 90))) if rotation else picture
    return turned


def _resized(pictures: Sequence[RGBArray], rotation: int, size: tuple[int, int]) -> list[RGBArray]:
    from PIL import Image

    images = (Image.fromarray(rotate(picture, rotation)) for picture in pictures)
    return [np.asarray(image.resize(size, Image.Resampling.BICUBIC)) for image in images]


class DecordReader:
    """decord 0.6.0. It can hang for ever on some files (only the worker's deadline ends it) and reads no AV1."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        try:
            import decord
        except ImportError:
            raise VideoError("the decord reader is not installed: pip install 'paravt-infer[decord]'") from None
        try:
            reader = decord.VideoReader(str(Path(index.info.path).absolute()), num_threads=2)
            pictures = reader.get_batch([int(n) for n in numbers]).asnumpy()
        except (RuntimeError, IndexError, decord.DECORDError) as error:
            line = str(error).strip().splitlines()[-1][:200] if str(error).strip() else type(error).__name__
            raise VideoError(f"{index.info.path}: decord cannot read it ({line}); use the pyav reader") from None
        return _resized(list(pictures), 0, size)  # decord has turned them


class TorchcodecReader:
    """torchcodec. It needs FFmpeg's shared libraries on the machine."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[RGBArray]:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError):
            raise VideoError(
                "the torchcodec reader cannot start: pip install 'paravt-infer[torchcodec]' and FFmpeg's libraries"
            ) from None
        try:
            path = str(Path(index.info.path).absolute())
            decoder = VideoDecoder(path, dimension_order="NHWC", num_ffmpeg_threads=2, seek_mode="exact")
            pictures = decoder.get_frames_at([int(n) for n in numbers]).data.numpy()
        except (RuntimeError, ValueError, IndexError) as error:
            line = str(error).strip().splitlines()[0][:200]
            raise VideoError(f"{index.info.path}: torchcodec cannot read it ({line}); use the pyav reader") from None
        # Newer versions turn the picture themselves; a picture in display shape needs no more turning.
        turned = pictures.shape[1:3] == (index.info.height, index.info.width)
        return _resized(list(pictures), 0 if turned else index.info.rotation, size)


READERS: dict[str, type[Reader]] = {
    "pyav": PyAVReader,
    "decord": DecordReader,
    "torchcodec": TorchcodecReader,
}
DEFAULT_READER = "pyav"


def get_reader(name: str) -> Reader:
    """The reader called `name`.

    Raises:
        VideoError: no such reader.
    """
    if name not in READERS:
        raise VideoError(f"unknown reader {name!r}{suggestion(name, READERS)}")
    return READERS[name]()
