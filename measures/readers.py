"""Video readers compared (pyav, torchcodec, decord): speed, exact frames, and behaviour on damaged files.

    python -m measures.readers [--out docs/readers.md]

Every reader runs in a worker process of `DecodePool`, so that one that hangs is killed and the next file is read.
The long video is written once, to `.cache/benchmarks` (a few minutes), the others every time.
"""

import argparse
import asyncio
import importlib.util
import os
import shlex
import statistics
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

from measures.machine import describe_machine, markdown_table
from paravt_infer.errors import VideoError
from paravt_infer.video.pool import DecodePool
from paravt_infer.video.sampling import FrameSizing, sample_times
from paravt_infer.video.types import VideoIndex
from paravt_training.world.damaged_video import inflate_duration, overwrite_with_noise, remux, truncate
from paravt_training.world.numbered_video import draw_number, read_number, write_numbered_video

READERS = {"pyav": "av", "torchcodec": "torchcodec", "decord": "decord"}
"""Reader to the package it needs."""
LONG_VIDEO = Path(".cache/benchmarks/long.mp4")
ROUNDS = 3
DEADLINE = 20.0
X264 = "x264-params"
X265 = {"x265-params": "log-level=none:bframes=4:open-gop=1"}
OPEN_GOP = {X264: "bframes=3:open-gop=1:b-pyramid=normal"}

VIDEOS: dict[str, tuple[str, dict[str, Any]]] = {
    "H.264, B frames": ("h264.mp4", {"options": {X264: "bframes=3"}}),
    "H.264, open groups of pictures": ("open.mp4", {"options": OPEN_GOP}),
    "the same in mkv": ("open.mkv", {"options": OPEN_GOP}),
    "the same in mpegts": ("open.ts", {"options": OPEN_GOP}),
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


def damaged_files(folder: Path) -> dict[str, Path]:
    """What is wrong with each file, and its path."""
    good = write_numbered_video(folder / "good.mp4", options={X264: "bframes=3"})
    mkv = write_numbered_video(folder / "good.mkv", options=OPEN_GOP)
    front = remux(good, folder / "front.mp4", movflags="faststart")
    return {
        "header claims 3 times the frames, mp4": inflate_duration(good, folder / "claims.mp4", factor=3),
        "header claims 3 times the duration, mkv": inflate_duration(mkv, folder / "claims.mkv", factor=3),
        "cut off at 60 %, index in front, mp4": truncate(front, folder / "cut.mp4", fraction=0.6, after=b"mdat"),
        "cut off at 60 %, mkv": truncate(mkv, folder / "cut.mkv", fraction=0.6),
        "cut off at 60 %, index at the end, mp4": truncate(good, folder / "lost.mp4", fraction=0.6),
        "300 bytes of noise, mp4": overwrite_with_noise(good, folder / "noise.mp4", at=0.5, length=300),
        "300 bytes of noise, mkv": overwrite_with_noise(mkv, folder / "noise.mkv", at=0.5, length=300),
    }


def write_long_video(path: Path, *, minutes: int = 10, width: int = 640, height: int = 360) -> Path:
    """H.264, 25 frames per second: numbers over a moving texture, as flat images would cost a decoder nothing."""
    noise = np.random.default_rng(0)
    coarse = noise.integers(-24, 25, (height // 4, width // 4)).repeat(4, axis=0).repeat(4, axis=1)
    texture = coarse + noise.integers(-6, 7, (height, width))
    chroma = np.full((height // 2, width), 128, dtype=np.uint8)
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_suffix(".part.mp4")
    with av.open(str(scratch), "w") as container:
        stream: Any = container.add_stream("libx264", rate=25)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        stream.codec_context.options = {"preset": "fast", X264: "keyint=250:min-keyint=250:scenecut=0"}
        for number in range(minutes * 60 * 25):
            shifted = np.roll(texture, (number, 2 * number), (0, 1))
            grey = (draw_number(number, width, height)[..., 0] + shifted).clip(0, 255).astype(np.uint8)
            frame = av.VideoFrame.from_ndarray(np.concatenate([grey, chroma]), format="yuv420p")
            frame.pts = number
            container.mux(stream.encode(frame))
        container.mux(stream.encode())
    return scratch.rename(path)


@dataclass
class ReaderTable:
    """A comparison: one row per case, one cell per reader."""

    title: str
    note: str
    rows: dict[str, dict[str, str]]


async def speed(pools: dict[str, DecodePool], video: Path) -> ReaderTable:
    """Frames per second, the median of `ROUNDS` rounds in which the readers alternate."""
    index = await next(iter(pools.values())).index(str(video))
    overview = sample_times(0, index.info.duration, fps=1, limit=64)
    windows = [sample_times(start, start + 16, fps=1, limit=16) for start in (47.3, 151.9, 288.8, 402.2, 533.6)]
    seconds: dict[tuple[str, str], list[float]] = {}
    for _ in range(ROUNDS):
        for case, spans in (("64 uniform frames", [overview]), ("5 windows of 16 frames", windows)):
            for name, pool in pools.items():
                began = time.perf_counter()
                for span in spans:
                    await count_right(pool, index, [index.frame_at(moment) for moment in span])
                seconds.setdefault((case, name), []).append(time.perf_counter() - began)
    rows: dict[str, dict[str, str]] = {}
    for (case, name), taken in seconds.items():
        rate = (64 if case.startswith("64") else 80) / statistics.median(taken)
        ratio = statistics.median(seconds[case, "decord"]) / statistics.median(taken) if "decord" in pools else None
        rows.setdefault(case, {})[name] = f"{rate:.1f}" + (f" ({ratio:.2f}×)" if ratio else "")
    return ReaderTable(
        "Speed",
        "Frames per second (and the speed-up over decord) from 10 minutes of H.264, 640x360, 25 frames per second, a "
        f"key frame every 250 frames. Median of {ROUNDS} rounds in which the readers alternate.",
        rows,
    )


async def exact_frames(pools: dict[str, DecodePool], folder: Path) -> ReaderTable:
    """Whether the frames that were read are those requested."""
    rows: dict[str, dict[str, str]] = {}
    for case, (file, arguments) in VIDEOS.items():
        path = write_numbered_video(folder / file, **arguments)
        for name, pool in pools.items():
            rows.setdefault(case, {})[name] = await outcome(pool, path, arguments.get("times"))
    return ReaderTable("Exact frames", "Read: every seventh frame, 16 from the middle, and the last one.", rows)


async def on_damaged_files(pools: dict[str, DecodePool], folder: Path) -> ReaderTable:
    """The same on damaged files."""
    rows: dict[str, dict[str, str]] = {}
    for case, path in damaged_files(folder).items():
        for name, pool in pools.items():
            rows.setdefault(case, {})[name] = await outcome(pool, path)
    return ReaderTable(
        "Damaged files",
        "All requested frames right, some wrong, an error (correct where a frame is lost), or a hang "
        f"({DEADLINE:g} s).",
        rows,
    )


async def outcome(pool: DecodePool, path: Path, times: Sequence[float] | None = None) -> str:
    """The result of reading an overview and a window; frames are shown at `times`, by default 25 per second."""
    killed = pool.killed
    try:
        index = await pool.index(str(path))
        overview, middle = range(0, index.info.frames, 7), index.info.frames // 2
        numbers = sorted({*overview, *range(middle, min(middle + 16, index.info.frames)), index.info.frames - 1})
        right = await count_right(pool, index, numbers, times)
        return "right" if right == len(numbers) else f"{len(numbers) - right} of {len(numbers)} wrong"
    except VideoError as error:
        return "hang" if "took over" in str(error) else "crash" if pool.killed > killed else "error"


async def count_right(
    pool: DecodePool, index: VideoIndex, numbers: Sequence[int], times: Sequence[float] | None = None
) -> int:
    """How many of these frames show the number that belongs to their time."""
    images = await pool.read(index, numbers, FrameSizing(multiple=32).fit(index.info.width, index.info.height))
    shown = np.arange(20_000) / 25 if times is None else np.array(times) - times[0]
    expected = [int(np.abs(shown - index.times[number]).argmin()) for number in numbers]
    return sum(read_number(image) == number for number, image in zip(expected, images, strict=True))


def versions() -> list[str]:
    """The machine and the packages, and the FFmpeg library inside PyAV."""
    codec = ".".join(map(str, av.library_versions["libavcodec"]))
    return [describe_machine("av", "torchcodec", "torch", "decord", "numpy"), f"libavcodec {codec} in av"]


def cells(row: dict[str, str]) -> Iterable[str]:
    return (row.get(name, "not installed") for name in READERS)


def render_markdown(results: Sequence[ReaderTable]) -> str:
    command = shlex.join(["python", "-m", "measures.readers", *sys.argv[1:]])
    lines = ["# Video readers compared", "", f"Measured with `{command}` on:", ""]
    lines += [f"- {line}" for line in versions()]
    for result in results:
        table = markdown_table(["", *READERS], [[case, *cells(row)] for case, row in result.rows.items()])
        lines += ["", f"## {result.title}", "", result.note, "", table.rstrip()]
    return "\n".join(lines) + "\n"


def show(results: Sequence[ReaderTable]) -> None:
    console = Console()
    console.print(*versions(), sep="\n")
    for result in results:
        console.print("", result.note, sep="\n")
        table = Table(result.title, *READERS)
        for case, row in result.rows.items():
            table.add_row(case, *cells(row))
        console.print(table)


async def measure(video: Path) -> list[ReaderTable]:
    pools = {
        name: DecodePool(workers=1, reader=name, deadline=DEADLINE)
        for name, package in READERS.items()
        if importlib.util.find_spec(package)
    }
    try:
        with tempfile.TemporaryDirectory() as folder:
            for name, pool in list(pools.items()):  # also starts the worker and loads the library
                index = await pool.index(str(write_numbered_video(Path(folder) / "start.mp4", frames=1)))
                try:
                    await count_right(pool, index, [0])
                except VideoError as error:
                    print(error, file=sys.stderr)
                    await pools.pop(name).close()
            results = [await exact_frames(pools, Path(folder)), await on_damaged_files(pools, Path(folder))]
            for pool in pools.values():
                pool.deadline = 600
            return [await speed(pools, video), *results]
    finally:
        for pool in pools.values():
            await pool.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, help="also write the tables to this file, as Markdown")
    options = parser.parse_args()
    os.environ.setdefault("SVT_LOG", "1")  # the AV1 encoder reports its settings otherwise
    results = asyncio.run(measure(LONG_VIDEO if LONG_VIDEO.exists() else write_long_video(LONG_VIDEO)))
    show(results)
    if options.out:
        options.out.write_text(render_markdown(results))


if __name__ == "__main__":
    main()
