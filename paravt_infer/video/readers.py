"""Readers: an open file and frame numbers in, pictures out. One index for all of them, read by PyAV.

The index comes from the packets alone (nothing is decoded), so every reader is asked for the same frames by
number and every frame has the file's own time. `benchmarks.readers` measures which reader is fast and right.
"""

from collections.abc import Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import av
import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import VideoError
from paravt_infer.video.types import VideoIndex, VideoInfo

Picture = NDArray[np.uint8]
"""RGB.  # [height, width, 3]"""


class Reader(Protocol):
    """Decodes frames of a file by their number in display order."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[Picture]:
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
        container = av.open(path, metadata_errors="ignore")
    except av.error.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"{path}: not a video, or cut off before its index ({reason}); try another copy") from None
    except OSError as error:
        raise VideoError(f"{path}: cannot be read ({error.strerror}); check its permissions") from None
    with container:
        if not container.streams.video:
            raise VideoError(f"{path}: has no video stream (sound or text only); name a file with pictures")
        yield container


def read_index(path: str) -> VideoIndex:
    """What the file is and when each of its frames is shown, from its packets.

    Raises:
        VideoError: missing, empty, not a video, without a video stream, or without a single decodable frame.
    """
    first = _first_frame(path)
    with _open(path) as container:
        stream = container.streams.video[0]
        stamps, keys, last_length = _packet_times(container, stream)
        if not len(stamps):
            raise VideoError(f"{path}: holds no frame that can be decoded; try another copy")
        unit = float(stream.time_base)
        times = (stamps - stamps[0]) * unit
        gaps = np.diff(times)
        usual = float(np.median(gaps)) if len(gaps) else 1 / float(stream.average_rate or 25)
        # A muxer may give the last frame the rest of the file's time; longer than this is no frame's length.
        duration = float(times[-1]) + min(last_length * unit or usual, max(usual * 10, 10.0))
        # FFmpeg counts the display matrix counter-clockwise; people turn pictures clockwise.
        rotation = -int(first.rotation) % 360
        width, height = (first.width, first.height)[:: -1 if rotation in (90, 270) else 1]
        info = VideoInfo(
            path=path,
            duration=duration,
            container_duration=max(0.0, (container.duration or 0) / av.time_base),
            fps=len(stamps) / duration,
            variable_rate=bool(len(gaps) and gaps.max() > 1.5 * gaps.min() + 2 * unit),
            frames=len(stamps),
            width=width,
            height=height,
            rotation=rotation,
            codec=stream.codec_context.codec.canonical_name,
            size_bytes=Path(path).stat().st_size,
        )
        return VideoIndex(info=info, times=times, pts=stamps, keys=keys)


def _packet_times(container: Any, stream: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int]:
    """Timestamps of all frames and of the key frames, ascending, and the last frame's length in the same unit."""
    lengths: dict[int, int] = {}
    keys: list[int] = []
    with suppress(av.error.FFmpegError):  # a file cut in the middle: what came before the cut counts
        for packet in container.demux(stream):
            stamp = packet.dts if packet.pts is None else packet.pts
            if packet.size == 0 or stamp is None or packet.is_discard:
                continue
            if packet.is_keyframe:
                keys.append(stamp)
            if keys and stamp >= keys[0]:  # earlier ones refer to pictures that are not in the file
                lengths[stamp] = packet.duration or 0
    stamps = np.array(sorted(lengths), dtype=np.int64)
    return stamps, np.unique(np.array(keys, dtype=np.int64)), lengths[int(stamps[-1])] if len(stamps) else 0


def _first_frame(path: str) -> Any:
    """The first frame that decodes: proof that this is a video, its true size and rotation."""
    reason = "no picture came out"
    with _open(path) as container:
        try:
            for frame in container.decode(container.streams.video[0]):
                return frame
        except (av.error.FFmpegError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise VideoError(f"{path}: holds no frame that can be decoded ({reason}); try another copy")


class PyAVReader:
    """Exact and, of the three, the fastest: decodes only what the asked frames depend on.

    Frames that no other frame refers to are skipped unless asked for, and groups of pictures without an
    asked frame are jumped over.
    """

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[Picture]:
        wanted = {int(index.pts[n]) for n in numbers}
        with _open(index.info.path) as container:
            stream = container.streams.video[0]
            stream.codec_context.thread_type = "AUTO"
            stream.codec_context.thread_count = 2
            found = self._pass(container, stream, index, sorted(wanted), size)
        if found.keys() < wanted:
            # Some files seek wrongly (bad index, open groups of pictures): read them from the start once.
            with _open(index.info.path) as container:
                found |= self._sweep(container, wanted - found.keys(), index, size)
        missing = wanted - found.keys()
        if missing:
            at = index.times[np.searchsorted(index.pts, min(missing))]
            raise VideoError(
                f"{index.info.path}: {len(missing)} of {len(wanted)} frames cannot be decoded, the first at "
                f"{at:.1f} s; the file is damaged there, try another copy"
            )
        return [found[int(index.pts[n])] for n in numbers]

    def _pass(
        self, container: Any, stream: Any, index: VideoIndex, wanted: list[int], size: tuple[int, int]
    ) -> dict[int, Picture]:
        """One forward pass over the groups of pictures that hold a wanted frame."""
        found: dict[int, Picture] = {}
        groups: dict[int, set[int]] = {}
        for stamp in wanted:
            key = int(index.keys[max(0, int(np.searchsorted(index.keys, stamp, side="right")) - 1)])
            groups.setdefault(key, set()).add(stamp)
        for key, stamps in groups.items():
            left = set(stamps)
            try:
                stream.codec_context.flush_buffers()
                container.seek(key, stream=stream, backward=True, any_frame=False)
                for packet in container.demux(stream):
                    if packet.size and packet.pts is not None:
                        stream.codec_context.skip_frame = "DEFAULT" if packet.pts in stamps else "NONREF"
                    for frame in packet.decode():
                        if frame.pts in left and not frame.is_corrupt:
                            left.discard(frame.pts)
                            found[frame.pts] = _picture(frame, index.info.rotation, size)
                    if not left:
                        break
            except (av.error.FFmpegError, ValueError):
                continue  # the sweep has a second look
        return found

    def _sweep(self, container: Any, wanted: set[int], index: VideoIndex, size: tuple[int, int]) -> dict[int, Picture]:
        found: dict[int, Picture] = {}
        stream = container.streams.video[0]
        for packet in container.demux(stream):
            try:
                frames = packet.decode()
            except (av.error.FFmpegError, ValueError):
                continue
            for frame in frames:
                if frame.pts in wanted:
                    found[frame.pts] = _picture(frame, index.info.rotation, size)
            if len(found) == len(wanted):
                break
        return found


def _picture(frame: Any, rotation: int, size: tuple[int, int]) -> Picture:
    """A decoded frame as RGB at its final size; resized before it is turned, which is cheaper."""
    width, height = size if rotation in (0, 180) else size[::-1]
    picture = frame.reformat(width=width, height=height, format="rgb24", interpolation="BICUBIC").to_ndarray()
    return turn(picture, rotation)


def turn(picture: Picture, rotation: int) -> Picture:
    """`picture` turned clockwise by `rotation` degrees."""
    turned: Picture = np.ascontiguousarray(np.rot90(picture, k=-(rotation // 90))) if rotation else picture
    return turned


def _resized(pictures: Sequence[Picture], rotation: int, size: tuple[int, int]) -> list[Picture]:
    from PIL import Image

    images = (Image.fromarray(turn(picture, rotation)) for picture in pictures)
    return [np.asarray(image.resize(size, Image.Resampling.BICUBIC)) for image in images]


class DecordReader:
    """decord 0.6.0. It can hang for ever on some files (only the worker's deadline ends it) and reads no AV1."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[Picture]:
        try:
            import decord
        except ImportError:
            raise VideoError("the decord reader is not installed: pip install 'paravt-infer[decord]'") from None
        try:
            reader = decord.VideoReader(index.info.path, num_threads=2)
            pictures = reader.get_batch([int(n) for n in numbers]).asnumpy()
        except (RuntimeError, IndexError, decord.DECORDError) as error:
            line = str(error).strip().splitlines()[-1][:200] if str(error).strip() else type(error).__name__
            raise VideoError(f"{index.info.path}: decord cannot read it ({line}); use the pyav reader") from None
        return _resized(list(pictures), index.info.rotation, size)


class TorchcodecReader:
    """torchcodec. It needs FFmpeg's shared libraries on the machine."""

    def read(self, index: VideoIndex, numbers: Sequence[int], size: tuple[int, int]) -> list[Picture]:
        try:
            from torchcodec.decoders import VideoDecoder
        except (ImportError, RuntimeError, OSError):
            raise VideoError(
                "the torchcodec reader cannot start: pip install 'paravt-infer[torchcodec]' and FFmpeg's libraries"
            ) from None
        try:
            decoder = VideoDecoder(index.info.path, dimension_order="NHWC", num_ffmpeg_threads=2, seek_mode="exact")
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
        raise VideoError(f"no reader called {name!r}; there are {', '.join(READERS)}")
    return READERS[name]()
