"""The videos these tests ask for frames: every frame carries its own number. And files that hold none."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import av
import numpy as np

from benchmarks.numbered import write_numbered
from paravt_infer.video.sampling import FrameSizing

Films = Callable[[str], str]
"""What the fixture `films` is: a film's name in, its path out."""

SIZING = FrameSizing(multiple=32)
"""Keeps a picture of 192x128 as it is."""


@dataclass(frozen=True)
class Film:
    """How `write_numbered` makes it, and when each of its frames is shown."""

    file: str
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def times(self) -> list[float]:
        """Seconds since the first frame."""
        given = self.arguments.get("times")
        if given is not None:
            return [time - given[0] for time in given]
        return [number / 25 for number in range(self.arguments.get("frames", 250))]


def _x264(**options: object) -> dict[str, Any]:
    return {"options": {"x264-params": ":".join(f"{key.replace('_', '-')}={value}" for key, value in options.items())}}


_OPEN = _x264(bframes=3, open_gop=1, b_pyramid="normal")
_X265 = {"codec": "libx265", "options": {"x265-params": "log-level=none:bframes=4:open-gop=1", "preset": "ultrafast"}}
_AV1 = {"codec": "libsvtav1", "options": {"preset": "8", "b": "0", "crf": "25"}}
_VARIABLE = [0.0, 0.04, 0.5, 0.51, 2.0, 2.04, 2.08, 7.0, 7.5, 30.0, 30.04] + [31 + n / 25 for n in range(100)]

FILMS = {
    "h264": Film("h264.mp4", _x264(bframes=3)),
    "h264 without B frames": Film("plain.mov", _x264(bframes=0)),
    "h264, open groups": Film("open.mp4", _OPEN),
    "h264, open groups, mkv": Film("open.mkv", _OPEN),
    "h264, open groups, mpegts": Film("open.ts", _OPEN),
    "h264, intra refresh": Film("refresh.mp4", _x264(intra_refresh=1, bframes=0)),
    "h264 with B frames in avi": Film("h264.avi", _x264(bframes=3)),
    "hevc": Film("hevc.mp4", _X265),
    "hevc, mpegts": Film("hevc.ts", _X265),
    "av1": Film("av1.mp4", _AV1),
    "vp9": Film("vp9.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
    "mpeg4": Film("mpeg4.mp4", {"codec": "mpeg4", "options": {"bf": "2"}}),
    "mpeg4, avi": Film("mpeg4.avi", {"codec": "mpeg4"}),
    "mpeg2, program stream": Film("mpeg2.mpg", {"codec": "mpeg2video", "options": {"bf": "2"}}),
    "variable rate": Film("variable.mp4", {"times": _VARIABLE}),
    "variable rate, mkv": Film("variable.mkv", {"times": _VARIABLE}),
    "first frame at 5 s": Film("late.mp4", {"times": [5 + n / 25 for n in range(100)]}),
    "first frame at 5 s, mkv": Film("late.mkv", {"times": [5 + n / 25 for n in range(100)]}),
    "turned by 90": Film("turned90.mp4", {"rotation": 90}),
    "turned by 180": Film("turned180.mp4", {"rotation": 180}),
    "turned by 270": Film("turned270.mp4", {"rotation": 270}),
    "194x130": Film("even.mp4", {"size": (194, 130)}),
    "193x131": Film("odd.mp4", {"size": (193, 131), "codec": "mpeg4"}),
    "with sound": Film("sound.mp4", {"sound": True}),
    "five frames": Film("five.mp4", {"frames": 5}),
    "one frame": Film("one.mp4", {"frames": 1}),
}


def write(name: str, folder: Path) -> Path:
    """The film called `name`, as a file in `folder`."""
    film = FILMS[name]
    return write_numbered(folder / film.file, **film.arguments)


def without_frames(to: Path) -> Path:
    """A file with a header for pictures, and none in it."""
    with av.open(str(to), "w") as container:
        stream = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 192, 128, "yuv420p"
        container.start_encoding()
    return to


def sound_only(to: Path, *, cover: bool = False) -> Path:
    """A little silence and, for those who ask, the picture on its cover."""
    with av.open(str(to), "w") as container:
        sound: Any = container.add_stream("aac", rate=16000)
        if cover:
            art: Any = container.add_stream("png", rate=1)
            art.width, art.height, art.pix_fmt = 64, 64, "rgb24"
            art.disposition = av.stream.Disposition.attached_pic.value
            container.mux(art.encode(av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), dtype=np.uint8), "rgb24")))
            container.mux(art.encode())
        quiet = av.AudioFrame.from_ndarray(np.zeros((1, 1024), dtype=np.float32), "fltp", "mono")
        quiet.sample_rate, quiet.pts = 16000, 0
        container.mux(sound.encode(quiet))
        container.mux(sound.encode())
    return to


def single_colour(to: Path, yuv: tuple[int, int, int], **tags: str) -> Path:
    """Ten frames that hold these values alone, and the encoder's word on what they mean."""
    parameters = ":".join(f"{key}={value}" for key, value in tags.items())
    planes = [np.full((rows, 192), value, dtype=np.uint8) for rows, value in zip((128, 32, 32), yuv, strict=True)]
    with av.open(str(to), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = 192, 128, "yuv420p"
        stream.codec_context.options = {"x264-params": parameters, "crf": "5"}
        for number in range(10):
            frame = av.VideoFrame.from_ndarray(np.concatenate(planes), format="yuv420p")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return to


def replaced(source: Path, to: Path, old: bytes, new: bytes) -> Path:
    """The file with the bytes `old` wherever they stand replaced by `new`."""
    to.write_bytes(source.read_bytes().replace(old, new))
    return to
