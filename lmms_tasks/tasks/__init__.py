"""The benchmarks: one Python file and one YAML file each, in this folder, found by their presence.

To add one, write `NAME.py` with a module-level `Benchmark` and `NAME.yaml`, which includes the common settings and
names the file's `process_docs` and `metric_list`. The registry, lmms-eval's group, the scorers, `paravt tasks` and
`paravt table1` follow from these two files. Nothing here downloads videos: lmms-eval loads the rows, and a missing
video becomes a failed episode that names the file.
"""

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules

from lmms_tasks.tasks.base import Benchmark
from paravt_infer.errors import SettingsError, suggestion

INCLUDE = Path(__file__).parent
"""What lmms-eval's `--include_path` takes."""
GROUP = "paravt_table1"
"""lmms-eval's group of all tasks here."""


def _find_benchmarks() -> dict[str, Benchmark]:
    modules = [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
    found = [value for module in modules for value in vars(module).values() if isinstance(value, Benchmark)]
    return {benchmark.task: benchmark for benchmark in sorted(found, key=lambda benchmark: benchmark.order)}


BENCHMARKS: Mapping[str, Benchmark] = _find_benchmarks()
"""Task to benchmark, in the order of Table 1."""


def get_benchmark(task: str) -> Benchmark:
    """The benchmark of that task. Raises SettingsError for an unknown one."""
    if task not in BENCHMARKS:
        raise SettingsError(f"unknown task {task!r}{suggestion(task, BENCHMARKS)}")
    return BENCHMARKS[task]
