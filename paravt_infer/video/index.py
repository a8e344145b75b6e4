"""The index of a video file: what it is, and when each of its frames is shown, from its packets alone.

Nothing but the first frame is decoded. Every reader is asked for frames by their number in this index, so that a frame
has the same time, the file's own, whichever reader decodes it.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import VideoError
from paravt_infer.video.types import VideoIndex, VideoInfo


@contextmanager
def open_container(path: str) -> Iterator[Any]:
    """A PyAV container with a video stream. Raises VideoError with the reason if there is none."""
    file = Path(path)
    if not file.exists():
        raise VideoError(f"{path}: no such file; check the path")
    if not file.is_file():
        raise VideoError(f"{path}: not a file; give the path of one video file")
    if file.stat().st_size == 0:
        raise VideoError(f"{path}: the file is empty (0 bytes); copy or download it again")
    try:
        # With the prefix, "12:30.mp4" is a file and not a URL of the protocol "12".
        container = av.open(f"file:{path}", metadata_errors="ignore")
    except av.error.FFmpegError as error:
        reason = error.strerror or type(error).__name__
        raise VideoError(f"{path}: not a video, or truncated before its index ({reason}); try another copy") from None
    except OSError as error:
        raise VideoError(f"{path}: cannot read ({error.strerror}); check its permissions") from None
    with container:
        stream = video_stream(container)
        if stream is None:
            raise VideoError(f"{path}: has no video stream (audio or text only); choose a video file")
        if stream.codec_context is None:
            raise VideoError(f"{path}: its codec is not supported; convert it to H.264, or update PyAV")
        yield container


def video_stream(container: Any) -> Any:
    """The first video stream that is not cover art, or None."""
    cover = av.stream.Disposition.attached_pic
    return next((stream for stream in container.streams.video if not stream.disposition & cover), None)


def packet_timestamp(packet: Any) -> int | None:
    """The timestamp of the packet's frame, in units of the stream's time base."""
    return packet.dts if packet.pts is None else packet.pts  # type: ignore[no-any-return]


def read_index(path: str) -> VideoIndex:
    """Index a video file.

    Raises:
        VideoError: missing, empty, not a video, no video stream, or no decodable frame.
    """
    first = _first_frame(path)
    with open_container(path) as container:
        stream = video_stream(container)
        stamps, keys, last_length, in_order = _packet_times(container, stream)
        if not len(stamps):
            raise VideoError(f"{path}: has no decodable frame; try another copy")
        # Integers as long as possible: 400 frames of 0.1 seconds last 40 seconds, not 40.00000000000001.
        ticks, per_second = stream.time_base.numerator, stream.time_base.denominator
        times = (stamps - stamps[0]) * ticks / per_second
        gaps = np.diff(times)
        usual = float(np.median(gaps)) if len(gaps) else 1 / float(stream.average_rate or 25)
        # A muxer may give the last frame the rest of the file's duration: then assume the usual length.
        if not 0 < last_length * ticks / per_second <= max(usual * 10, 10.0):
            last_length = round(usual * per_second / ticks)
        duration = int(stamps[-1] - stamps[0] + last_length) * ticks / per_second
        # FFmpeg's rotation is counter-clockwise.
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
        # AVI has no presentation times: with B frames, FFmpeg assigns decoding times to the wrong frames.
        unreliable = in_order and "avi" in container.format.name and bool(stream.codec_context.has_b_frames)
        return VideoIndex(info=info, times=times, pts=stamps, keys=keys, unreliable_pts=unreliable)


def _packet_times(container: Any, stream: Any) -> tuple[NDArray[np.int64], NDArray[np.int64], int, bool]:
    """Ascending timestamps of all frames and of key frames, the last frame's length, and whether packets are in order.

    All in units of the stream's time base. Packets are in order if their timestamps ascend.
    """
    lengths: dict[int, int] = {}
    keys: list[int] = []
    with suppress(av.error.FFmpegError):  # a truncated file: use what comes before the cut
        for packet in container.demux(stream):
            stamp = packet_timestamp(packet)
            if packet.size == 0 or stamp is None or packet.is_corrupt:
                continue
            if packet.is_keyframe:
                keys.append(stamp)
            # Frames before the first key frame cannot be decoded; discarded ones are cut off by an edit list.
            if keys and stamp >= keys[0] and not packet.is_discard:
                lengths[stamp] = packet.duration or 0
    stamps = np.array(sorted(lengths), dtype=np.int64)
    last_length = lengths[int(stamps[-1])] if len(stamps) else 0
    return stamps, np.unique(np.array(keys, dtype=np.int64)), last_length, list(lengths) == sorted(lengths)


def _first_frame(path: str) -> Any:
    """The first decoded frame: shows that the file is a video, and its true size and rotation."""
    reason = "the decoder returned none"
    with open_container(path) as container:
        try:
            for frame in container.decode(video_stream(container)):
                return frame
        except (av.error.FFmpegError, ValueError) as error:
            reason = getattr(error, "strerror", None) or str(error)
    raise VideoError(f"{path}: has no decodable frame ({reason}); try another copy")
