"""The tasks over a folder of generated rows: the real YAML files, with only the location of the data replaced."""

import json
import os
from pathlib import Path

from lmms_tasks.tasks import BENCHMARKS, GROUP, INCLUDE
from lmms_tasks.tasks.base import Benchmark
from paravt_infer.console import say
from paravt_infer.errors import SettingsError
from paravt_infer.files import writing


def rows_file(benchmark: Benchmark, folder: Path) -> Path:
    """Where a benchmark's rows are in `folder`."""
    return folder / "rows" / benchmark.name / f"{benchmark.split}.parquet"


def write_tasks(folder: Path) -> Path:
    """Write YAML files for the rows in `folder` and return what lmms-eval's `--include_path` takes.

    The files include the real ones, so that tasks keep their names and everything else. Benchmarks without rows in
    `folder` are left out, and a message says which. The videos are found where `PARAVT_VIDEOS`, or a model's `videos`,
    names `folder`.

    Args:
        folder: written by `paravt_training.world.benchmark_fixture.write_benchmarks`. It may be moved; the installed
            package may not.

    Raises:
        SettingsError: there are no rows, or a file cannot be written.
    """
    out = folder / "tasks"
    rows = {task: rows_file(benchmark, folder) for task, benchmark in BENCHMARKS.items()}
    rows = {task: file for task, file in rows.items() if file.is_file()}
    if not rows:
        raise SettingsError(f"{folder / 'rows'}: no rows found; make the folder with `paravt tasks --fixture {folder}`")
    if missing := BENCHMARKS.keys() - rows.keys():
        say(f"no generated rows, so left out: {', '.join(sorted(missing))}")
    with writing(out):
        out.mkdir(exist_ok=True)
        for task, file in rows.items():
            benchmark = BENCHMARKS[task]
            (out / f"{task}.yaml").write_text(
                f"include: {_quoted(INCLUDE / benchmark.yaml)}\n"
                f"task: {task}\n"
                "dataset_path: parquet\n"
                f"dataset_kwargs: {{data_files: {{{benchmark.split}: {_quoted(os.path.relpath(file, out))}}}}}\n"
            )
        (out / f"{GROUP}.yaml").write_text(f"include: {_quoted(INCLUDE / f'{GROUP}.yaml')}\n")
    return out


def _quoted(path: object) -> str:
    """A path as a YAML string, whatever characters it contains."""
    return json.dumps(str(path))
