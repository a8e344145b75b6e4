"""Where the benchmarks' videos are, from command-line flags, and which of them are missing."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import Benchmark, Doc, VideoRoots
from paravt_infer.errors import SettingsError


def parse_video_roots(flags: Iterable[str] = ()) -> VideoRoots:
    """Roots from flags: ``FOLDER`` for all benchmarks, ``mlvu:FOLDER`` or ``paravt_mlvu:FOLDER`` for one.

    Raises:
        SettingsError: no such benchmark or no such folder.
    """
    benchmarks = dict.fromkeys(benchmark.name for benchmark in BENCHMARKS.values())
    folders = {}
    for flag in flags:
        name, colon, folder = flag.rpartition(":")
        if not colon or name not in {"", *BENCHMARKS, *benchmarks}:
            name, folder = "", flag
        path = Path(folder).expanduser()
        if not path.is_dir():
            known = ", ".join(benchmarks)
            raise SettingsError(
                f"videos {flag!r}: no such folder; give FOLDER, or benchmark:FOLDER with one of {known}"
            )
        folders[name] = path
    return VideoRoots(folders=folders)


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoAvailability:
    """How many of the videos that rows ask about exist."""

    count: int
    missing: tuple[str, ...]
    """Paths that were tried and do not exist, each once."""
    subtitled: int
    """Videos whose subtitles exist."""


def check_videos(benchmark: Benchmark, docs: Iterable[Doc], roots: VideoRoots) -> VideoAvailability:
    """Which videos of these rows exist. Raises SettingsError where a row cannot be read."""
    questions = {item.question.video: item.question for item in (benchmark.item(doc, roots) for doc in docs)}
    return VideoAvailability(
        count=len(questions),
        missing=tuple(video for video in questions if not Path(video).is_file()),
        subtitled=sum(question.subtitles is not None for question in questions.values()),
    )
