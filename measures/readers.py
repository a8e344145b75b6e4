"""Which reader is fast, which gives the right frames, and which survives a damaged file: pyav, torchcodec, decord.

    python -m measures.readers [--out docs/readers.md]

Every reader works in a worker process of `DecodePool`, so that one that hangs is killed and the next file is read.
The long film is written once, to `.cache/benchmarks` (a few minutes), the others anew each time.
"""

import argparse
import asyncio
import importlib.metadata
import importlib.util
import os
import platform
import shlex
import statistics
import struct
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import av
import numpy as np
from rich.console import Console
from rich.table import Table

from paravt_infer.errors import VideoError
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.types import VideoIndex
from paravt_training.world.numbered import picture, read_number, write_numbered

READERS = {"pyav": "av", "torchcodec": "torchcodec", "decord": "decord"}
"""Our names and the packages'."""
LONG = Path(".cache/benchmarks/long.mp4")
ROUNDS = 3
DEADLINE = 20.0
X264 = "x264-params"
X265 = {"x265-params": "log-level=none:bframes=4:open-gop=1"}
OPEN = {X264: "bframes=3:open-gop=1:b-pyramid=normal"}

FILMS: dict[str, tuple[str, dict[str, Any]]] = {
    "H.264, B frames": ("h264.mp4", {"options": {X264: "bframes=3"}}),
    "H.264, open groups of pictures": ("open.mp4", {"options": OPEN}),
    "the same in mkv": ("open.mkv", {"options": OPEN}),
    "the same in mpegts": ("open.ts", {"options": OPEN}),
    "H.264, intra refresh": ("refresh.mp4", {"options": {X264: "intra-refresh=1:bframes=0"}}),
    "H.264, B frames, avi": ("h264.avi", {"options": {X264: "bframes=3"}}),
    "HEVC": ("hevc.mp4", {"codec": "libx265", "options": X265}),
    "HEVC, mpegts": ("hevc.ts", {"codec": "libx265", "options": X265}),
    "AV1": ("av1.mp4", {"codec": "libsvtav1", "options": {"preset": "8", "b": "0", "crf": "25"}}),
    "VP9": ("vp9.webm", {"codec": "libvpx-vp9", "options": {"deadline": "realtime", "cpu-used": "8"}}),
    "MPEG-4 part 2": ("mpeg4.mp4", {"codec": "mpeg4", "options": {"bf": "2"}}),
    "MPEG-2, program stream": ("mpeg2.mpg", {"codec": "mpeg2video", "options": {"bf": "2"}}),
    "variable frame rate": (
        "variable.mp4",
        {"times": [0, 0.04, 0.5, 0.51, 2, 7, 7.5] + [8 + n / 25 for n in range(200)]},
    ),
    "first frame at 5 s": ("late.mkv", {"times": [5 + n / 25 for n in range(250)]}),
    "turned by 90": ("turned90.mp4", {"rotation": 90}),
    "turned by 180": ("turned180.mp4", {"rotation": 180}),
    "with sound": ("sound.mp4", {"sound": True}),
    "one frame": ("one.mp4", {"frames": 1}),
}


# Files that are hard to read.


def remuxed(source: Path, to: Path, *, later: float = 0.0, **options: str) -> Path:
    """The same packets in another file, which starts `later` seconds into them: the cut is no key frame's place."""
    with av.open(str(source)) as given, av.open(str(to), "w", options=options) as made:
        stream = given.streams.video[0]
        copy = made.add_stream_from_template(stream)
        ticks = round(later / float(stream.time_base))
        for packet in given.demux(stream):
            if packet.size:
                packet.pts, packet.dts = packet.pts - ticks, packet.dts - ticks
                packet.stream = copy
                made.mux(packet)
    return to


def cut(source: Path, to: Path, *, part: float, behind: bytes = b"") -> Path:
    """The first `part` of the file's bytes; with `behind`, all bytes up to those and that part of the rest."""
    data = source.read_bytes()
    start = data.index(behind)
    to.write_bytes(data[: start + int((len(data) - start) * part)])
    return to


def with_noise(source: Path, to: Path, *, at: float, length: int) -> Path:
    """The file with `length` bytes, from `at` of it on, replaced by noise."""
    data = bytearray(source.read_bytes())
    start = int(len(data) * at)
    data[start : start + length] = np.random.default_rng(length + start).bytes(length)
    to.write_bytes(bytes(data))
    return to


def claiming(source: Path, to: Path, *, times_as_long: int) -> Path:
    """An mp4 or mkv file whose header claims so many times its true duration (and number of frames, in mp4)."""
    data = bytearray(source.read_bytes())
    if source.suffix == ".mkv":
        place = data.index(b"\x44\x89\x88") + 3  # the element Duration, eight bytes long
        struct.pack_into(">d", data, place, struct.unpack_from(">d", data, place)[0] * times_as_long)
    else:
        for box, offset in ((b"mvhd", 20), (b"mdhd", 20), (b"tkhd", 24), (b"stts", 12)):
            place = data.index(box) + offset
            struct.pack_into(">I", data, place, struct.unpack_from(">I", data, place)[0] * times_as_long)
    to.write_bytes(bytes(data))
    return to


def hard_files(folder: Path) -> dict[str, Path]:
    good = write_numbered(folder / "good.mp4", options={X264: "bframes=3"})
    mkv = write_numbered(folder / "good.mkv", options=OPEN)
    front = remuxed(good, folder / "front.mp4", movflags="faststart")
    return {
        "header claims 3 times the frames, mp4": claiming(good, folder / "claims.mp4", times_as_long=3),
        "header claims 3 times the duration, mkv": claiming(mkv, folder / "claims.mkv", times_as_long=3),
        "cut off at 60 %, index in front, mp4": cut(front, folder / "cut.mp4", part=0.6, behind=b"mdat"),
        "cut off at 60 %, mkv": cut(mkv, folder / "cut.mkv", part=0.6),
        "cut off at 60 %, index at the end, mp4": cut(good, folder / "lost.mp4", part=0.6),
        "300 bytes of noise, mp4": with_noise(good, folder / "noise.mp4", at=0.5, length=300),
        "300 bytes of noise, mkv": with_noise(mkv, folder / "noise.mkv", at=0.5, length=300),
    }


# Measuring.


def write_long(path: Path, *, minutes: int = 10, width: int = 640, height: int = 360) -> Path:
    """Numbered frames over a moving texture: a flat picture would cost a decoder nothing. H.264, 25 a second."""
    noise = np.random.default_rng(0)
    coarse = noise.integers(-24, 25, (height // 4, width // 4)).repeat(4, axis=0).repeat(4, axis=1)
    texture = coarse + noise.integers(-6, 7, (height, width))
    colourless = np.full((height // 2, width), 128, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_suffix(".part.mp4")
    with av.open(str(unfinished), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.options = {"preset": "fast", X264: "keyint=250:min-keyint=250:scenecut=0"}
        for number in range(minutes * 60 * 25):
            moved = np.roll(texture, (number, 2 * number), (0, 1))
            grey = (picture(number, width, height)[..., 0] + moved).clip(0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(np.concatenate([grey, colourless]), format="yuv420p")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return unfinished.rename(path)


@dataclass
class Result:
    """A table: what is compared, a row for each case, a cell for each reader."""

    title: str
    note: str
    rows: dict[str, dict[str, str]]


async def speed(pools: dict[str, DecodePool], film: Path) -> Result:
    """Frames a second, the median of some rounds in which the readers take turns."""
    index = await next(iter(pools.values())).index(str(film))
    overview = sample_times(0, index.info.duration, fps=1, limit=64)
    windows = [sample_times(start, start + 16, fps=1, limit=16) for start in (47.3, 151.9, 288.8, 402.2, 533.6)]
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for case, spans in (("64 uniform frames", [overview]), ("5 windows of 16 frames", windows)):
            for name, pool in pools.items():
                began = time.perf_counter()
                for span in spans:
                    await ask(pool, index, [index.frame_at(moment) for moment in span])
                seconds.setdefault((case, name), []).append(time.perf_counter() - began)
    rows: dict[str, dict[str, str]] = {}
    for (case, name), taken in seconds.items():
        rate = (64 if case.startswith("64") else 80) / statistics.median(taken)
        beside = statistics.median(seconds[case, "decord"]) / statistics.median(taken) if "decord" in pools else None
        rows.setdefault(case, {})[name] = f"{rate:.1f}" + (f" ({beside:.2f}×)" if beside else "")
    return Result(
        "Speed",
        "Frames a second (and how many times decord's) from 10 minutes of H.264, 640x360, 25 frames a second, a key "
        f"frame every 250; the median of {ROUNDS} rounds in which the readers take turns.",
        rows,
    )


async def right_frames(pools: dict[str, DecodePool], folder: Path) -> Result:
    """How many of the frames that came back are the ones asked for."""
    rows: dict[str, dict[str, str]] = {}
    for case, (file, arguments) in FILMS.items():
        path = write_numbered(folder / file, **arguments)
        for name, pool in pools.items():
            rows.setdefault(case, {})[name] = await outcome(pool, path, arguments.get("times"))
    return Result("Right frames", "Every seventh frame, 16 from the middle and the last one.", rows)


async def on_hard_files(pools: dict[str, DecodePool], folder: Path) -> Result:
    """The same of files that are not as they should be."""
    rows: dict[str, dict[str, str]] = {}
    for case, path in hard_files(folder).items():
        for name, pool in pools.items():
            rows.setdefault(case, {})[name] = await outcome(pool, path)
    return Result(
        "Hard files",
        f"All asked frames right, some wrong, an error (right where a frame is lost) or a hang ({DEADLINE:g} s).",
        rows,
    )


async def outcome(pool: DecodePool, path: Path, times: Sequence[float] | None = None) -> str:
    """What becomes of an overview and a window of a film whose frames are shown at `times`, or 25 a second."""
    killed = pool.killed
    try:
        index = await pool.index(str(path))
        overview, middle = range(0, index.info.frames, 7), index.info.frames // 2
        asked = sorted({*overview, *range(middle, min(middle + 16, index.info.frames)), index.info.frames - 1})
        right = await ask(pool, index, asked, times)
        return "right" if right == len(asked) else f"{len(asked) - right} of {len(asked)} wrong"
    except VideoError as error:
        return "hang" if "took over" in str(error) else "crash" if pool.killed > killed else "error"


async def ask(pool: DecodePool, index: VideoIndex, numbers: Sequence[int], times: Sequence[float] | None = None) -> int:
    """How many of those frames come back with the number that their time says."""
    pictures = await pool.read(index, numbers, FrameSizing(multiple=32).fit(index.info.width, index.info.height))
    shown = np.arange(20_000) / 25 if times is None else np.array(times) - times[0]
    truth = [int(np.abs(shown - index.times[number]).argmin()) for number in numbers]
    return sum(read_number(got) == number for number, got in zip(truth, pictures, strict=True))


# Reporting.


def machine() -> list[str]:
    """What the numbers were measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    cpu = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.machine())
    versions = [f"{name} {version(name)}" for name in ("av", "torchcodec", "torch", "decord", "numpy")]
    codec = ".".join(map(str, av.library_versions["libavcodec"]))
    return [
        f"{cpu}, {os.cpu_count()} cores",
        f"Python {platform.python_version()}; {', '.join(versions)}; av's own libavcodec {codec}",
    ]


def version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def cells(row: dict[str, str]) -> Iterable[str]:
    return (row.get(name, "not installed") for name in READERS)


def markdown(results: Sequence[Result]) -> str:
    command = shlex.join(["python", "-m", "measures.readers", *sys.argv[1:]])
    lines = ["# Readers compared", "", f"Written by `{command}`.", "", *(f"- {line}" for line in machine())]
    for result in results:
        lines += [
            "",
            f"## {result.title}",
            "",
            result.note,
            "",
            f"| | {' | '.join(READERS)} |",
            "|---" * (len(READERS) + 1) + "|",
        ]
        lines += [f"| {case} | {' | '.join(cells(row))} |" for case, row in result.rows.items()]
    return "\n".join(lines) + "\n"


def show(results: Sequence[Result]) -> None:
    console = Console()
    console.print(*machine(), sep="\n")
    for result in results:
        console.print("", result.note, sep="\n")
        table = Table(result.title, *READERS)
        for case, row in result.rows.items():
            table.add_row(case, *cells(row))
        console.print(table)


async def measure(film: Path) -> list[Result]:
    pools = {
        name: DecodePool(workers=1, reader=name, deadline=DEADLINE)
        for name, package in READERS.items()
        if importlib.util.find_spec(package)
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, pool in list(pools.items()):  # also starts the worker and loads the library
                one = await pool.index(str(write_numbered(Path(folder) / "start.mp4", frames=1)))
                try:
                    await ask(pool, one, [0])
                except VideoError as error:
                    print(error, file=sys.stderr)
                    await pools.pop(name).close()
            results = [await right_frames(pools, Path(folder)), await on_hard_files(pools, Path(folder))]
            for pool in pools.values():
                pool.deadline = 600
            return [await speed(pools, film), *results]
    finally:
        for pool in pools.values():
            await pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="also write the tables there, as Markdown")
    arguments = parser.parse_args()
    os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder reports its settings otherwise
    results = asyncio.run(measure(LONG if LONG.exists() else write_long(LONG)))
    show(results)
    if arguments.out:
        arguments.out.write_text(markdown(results))


if __name__ == "__main__":
    main()
