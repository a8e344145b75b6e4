"""The tasks over a folder of generated rows: the real YAML files, with nothing but the data's place another."""

import json
import os
from pathlib import Path

from lmms_tasks.benchmarks import BENCHMARKS, INCLUDE, Benchmark
from paravt_infer.errors import SettingsError


def rows_file(benchmark: Benchmark, folder: Path) -> Path:
    """Where a benchmark's rows are in `folder`."""
    return folder / "rows" / benchmark.folder / f"{benchmark.split}.parquet"


def write_tasks(folder: Path) -> Path:
    """Write YAML files for the rows in `folder` and return what lmms-eval's `--include_path` takes.

    Tasks keep their names and all else of the real ones, which the files include. The videos are found where
    `PARAVT_VIDEOS`, or a model's `videos`, names `folder`.

    Args:
        folder: as `write_benchmarks` of `paravt_training` leaves it; it may be moved, the installed package may not.

    Raises:
        SettingsError: rows are missing, or a file cannot be written.
    """
    out = folder / "tasks"
    try:
        out.mkdir(exist_ok=True)
        for benchmark in BENCHMARKS.values():
            rows = rows_file(benchmark, folder)
            if not rows.is_file():
                raise SettingsError(f"{rows}: no such file; make the folder with `paravt tasks --fixture {folder}`")
            (out / f"{benchmark.task}.yaml").write_text(
                f"include: {_quoted(INCLUDE / benchmark.folder / f'{benchmark.task}.yaml')}\n"
                f"task: {benchmark.task}\n"
                "dataset_path: parquet\n"
                f"dataset_kwargs: {{data_files: {{{benchmark.split}: {_quoted(os.path.relpath(rows, out))}}}}}\n"
            )
        (out / "paravt_table1.yaml").write_text(f"include: {_quoted(INCLUDE / 'table1' / 'paravt_table1.yaml')}\n")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror}); choose another folder") from None
    return out


def _quoted(path: object) -> str:
    """A path as YAML takes it, whatever is in it."""
    return json.dumps(str(path))
