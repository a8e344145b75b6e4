"""Shared by the benchmark commands: lmms-eval, task files, generated data and the sample world's questions."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from lmms_tasks.results import EvalItem

SAMPLE_WORLD = "sample_world"
"""The task of the sample world's 500 test questions, which need no data."""


def load_lmms_eval() -> tuple[Any, Any]:
    """The modules `lmms_tasks.adapter` and `lmms_tasks.evaluate`, which need lmms-eval.

    Raises:
        SettingsError: lmms-eval is not installed.
    """
    import logging
    import os

    os.environ.setdefault("TQDM_DISABLE", "1")  # the sweep has its own progress bar
    try:
        from loguru import logger

        from lmms_tasks import adapter, evaluate
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed: pip install 'paravt-infer[eval]'") from None
    logger.remove()  # lmms-eval's own log repeats what the command prints
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    return adapter, evaluate


def task_files(videos: Sequence[str], fixture: Path | None) -> tuple[Path, list[str]]:
    """The include path of the task files and the folders of their videos: the real ones, or generated in `fixture`."""
    from lmms_tasks.tasks import INCLUDE

    if fixture is None:
        return INCLUDE, list(videos)
    folder = fixture.absolute()
    return write_fixture(folder), [*videos, str(folder)]


def write_fixture(folder: Path) -> Path:
    """Generate rows and videos of every task in `folder`. Returns the include path of their task files.

    Raises:
        SettingsError: the folder cannot be written.
    """
    from lmms_tasks.fixture import write_tasks
    from paravt_training.world.benchmark_fixture import write_benchmarks

    write_benchmarks(folder)
    return write_tasks(folder)


def load_task_items(
    names: Sequence[str], videos: Sequence[str], *, fixture: Path | None, limit: int | None, world: Path
) -> "list[EvalItem]":
    """The questions of the named tasks, at most `limit` of each.

    Args:
        world: folder for the videos of `SAMPLE_WORLD`, which are written where they are missing.
    """
    items = sample_world_items(world)[:limit] if SAMPLE_WORLD in names else []
    if tasks := [name for name in names if name != SAMPLE_WORLD]:
        from lmms_tasks.videos import parse_video_roots

        _, evaluation = load_lmms_eval()
        include, roots = task_files(videos, fixture)
        items += evaluation.load_items(tasks, parse_video_roots(roots), include=include, limit=limit)
    return items


def sample_world_items(folder: Path) -> "list[EvalItem]":
    """The sample world's test questions; their videos are written to `folder` where they are missing."""
    from lmms_tasks.results import EvalItem
    from paravt_training.world.questions import fixed_test_set
    from paravt_training.world.render import write_videos

    questions = fixed_test_set(str(folder))
    write_videos({question.question.video: question.scene for question in questions})
    items = []
    for question in questions:
        seen = str(question.seen_by_overview[8])
        groups = {"kind": question.question.kind, "type": question.type, "seen by 8 frames": seen}
        items.append(EvalItem(task=SAMPLE_WORLD, question=question.question, gold=question.answer, groups=groups))
    return items
