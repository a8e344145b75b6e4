"""`paravt tasks`: the benchmarks' tasks for lmms-eval, where their videos are looked for, and which are missing."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lmms_tasks.tasks.base import Benchmark, Doc, VideoRoots


def tasks(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TASK]...", help="Only these, with each missing video.")
    ] = None,
    videos: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Where videos are: FOLDER for all, mlvu:FOLDER for one. Repeat it."),
    ] = None,
    path: Annotated[bool, typer.Option("--path", help="Print what --include_path of lmms-eval takes.")] = False,
    fixture: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write small generated rows and videos into DIR; print their include path."),
    ] = None,
) -> None:
    """List the benchmarks' tasks: data set, split, where videos are looked for, how many are missing."""
    from rich.console import Console

    from lmms_tasks.tasks import BENCHMARKS, INCLUDE, get_benchmark
    from lmms_tasks.tasks.base import ALL_VIDEOS
    from lmms_tasks.videos import parse_video_roots

    console = Console(stderr=True)
    if path:
        print(INCLUDE)
    elif fixture:
        fixture = fixture.absolute()
        with console.status("writing rows and videos"):
            include = write_fixture(fixture)
        hint = f"their videos: set {ALL_VIDEOS}={fixture}, or give the model paravt videos={fixture}"
        console.print(hint, markup=False, highlight=False, soft_wrap=True)
        print(include)
    else:
        roots = parse_video_roots(videos or [])
        for one in [get_benchmark(name) for name in names] if names else BENCHMARKS.values():
            with console.status(f"looking for the videos of {one.task}"):
                lines = list(_lines(one, roots, each=bool(names)))
            print("\n".join(lines))
        if not names:
            print(f"paravt_table1{'':16}all of them")


def write_fixture(folder: Path) -> Path:
    """Write the generated data of all tasks into `folder`; returns the include path of their task files."""
    from lmms_tasks.fixture import write_tasks
    from paravt_infer.errors import SettingsError
    from paravt_training.world.seven import write_seven

    try:
        write_seven(folder)
    except OSError as error:
        raise SettingsError(f"{folder}: cannot be written ({error.strerror}); choose another folder") from None
    return write_tasks(folder)


def _lines(benchmark: "Benchmark", roots: "VideoRoots", *, each: bool) -> Iterator[str]:
    """What is said of a task; with `each`, every missing video too."""
    from lmms_tasks.videos import distinct_videos

    yield f"{benchmark.task:29}{benchmark.title}: {benchmark.hub}, split {benchmark.split}"
    yield f"  videos in {roots.folder(benchmark)} ({benchmark.variable})"
    rows = _loaded_rows(benchmark)
    if rows is None:
        yield "  not counted yet: lmms-eval loads the rows at the task's first run"
        return
    questions = distinct_videos(benchmark, rows, roots)
    missing = [question.video for question in questions if not Path(question.video).is_file()]
    count = sum(question.subtitles is not None for question in questions)
    subtitled = f"; {count:,} have subtitles" if benchmark.subtitles else ""
    yield f"  {len(missing):,} of {len(questions):,} are missing{subtitled}"
    if each:
        yield from (f"    {video}" for video in missing)


def _loaded_rows(benchmark: "Benchmark") -> "Iterable[Doc] | None":
    """A split's rows, where lmms-eval has loaded them before; None where not. Never downloads."""
    import os

    os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1")
    try:
        import datasets  # type: ignore[import-untyped]

        datasets.utils.logging.set_verbosity_error()
        kept = os.environ.get("LMMS_EVAL_DATASETS_CACHE")
        rows: Any = datasets.load_dataset(benchmark.hub, split=benchmark.split, cache_dir=kept)
    except (ImportError, OSError, ValueError):
        return None
    docs: Iterable[Doc] = rows
    return docs
