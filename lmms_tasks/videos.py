"""Where the benchmarks' videos are, from command-line flags, and which videos rows ask about."""

from collections.abc import Iterable
from pathlib import Path

from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import Benchmark, Doc, VideoRoots
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question


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


def distinct_videos(benchmark: Benchmark, docs: Iterable[Doc], roots: VideoRoots) -> list[Question]:
    """One question for each video that these rows ask about, with the video's path and that of existing subtitles.

    Raises:
        SettingsError: a row cannot be read.
    """
    questions = (benchmark.item(doc, roots).question for doc in docs)
    return list({question.video: question for question in questions}.values())
