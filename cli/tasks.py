"""`paravt tasks`: the benchmarks' tasks for lmms-eval, where their videos are expected, and which are missing."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from paravt_cli import options as shared
from paravt_cli.benchmarks import write_fixture
from paravt_infer.console import say, stderr

if TYPE_CHECKING:
    from lmms_tasks.tasks.base import Benchmark, Doc, VideoRoots


def tasks(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="TASK", help="Only these tasks, with each missing video.")
    ] = None,
    videos: shared.VideosOption = None,
    path: Annotated[bool, typer.Option("--path", help="Print the folder for lmms-eval's --include_path.")] = False,
    fixture: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write small generated data to DIR; print its include path.")
    ] = None,
) -> None:
    """List the benchmarks' tasks: data set, split, video folder, number of missing videos."""
    from lmms_tasks.tasks import BENCHMARKS, INCLUDE, get_benchmark
    from lmms_tasks.tasks.base import ALL_VIDEOS
    from lmms_tasks.videos import parse_video_roots

    if path:
        print(INCLUDE)
    elif fixture:
        fixture = fixture.absolute()
        with stderr().status("writing rows and videos"):
            include = write_fixture(fixture)
        say(f"their videos: set {ALL_VIDEOS}={fixture}, or give the model paravt videos={fixture}")
        print(include)
    else:
        roots = parse_video_roots(videos or [])
        for benchmark in [get_benchmark(name) for name in names] if names else BENCHMARKS.values():
            with stderr().status(f"looking for the videos of {benchmark.task}"):
                lines = list(_lines(benchmark, roots, each=bool(names)))
            print("\n".join(lines))
        if not names:
            print(f"paravt_table1{'':16}all of them")


def _lines(benchmark: "Benchmark", roots: "VideoRoots", *, each: bool) -> Iterator[str]:
    """Lines about a task; with `each`, one for every missing video."""
    from lmms_tasks.videos import distinct_videos

    yield f"{benchmark.task:29}{benchmark.title}: {benchmark.hub}, split {benchmark.split}"
    yield f"  videos in {roots.folder(benchmark)} ({benchmark.variable})"
    rows = _loaded_rows(benchmark)
    if rows is None:
        yield "  not counted yet: lmms-eval loads the rows when the task first runs"
        return
    questions = distinct_videos(benchmark, rows, roots)
    missing = [question.video for question in questions if not Path(question.video).is_file()]
    count = sum(question.subtitles is not None for question in questions)
    subtitled = f"; {count:,} have subtitles" if benchmark.subtitles else ""
    yield f"  {len(missing):,} of {len(questions):,} are missing{subtitled}"
    if each:
        yield from (f"    {video}" for video in missing)


def _loaded_rows(benchmark: "Benchmark") -> "Iterable[Doc] | None":
    """The rows of a split from lmms-eval's cache; None if they are not in it. Never downloads."""
    import os

    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    try:
        import datasets  # type: ignore[import-untyped]

        datasets.utils.logging.set_verbosity_error()
        cache = os.environ.get("LMMS_EVAL_DATASETS_CACHE")
        return datasets.load_dataset(benchmark.hub, split=benchmark.split, cache_dir=cache)  # type: ignore[no-any-return]
    except (ImportError, OSError, ValueError):
        return None
