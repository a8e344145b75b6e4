"""The metrics of training runs: read from metrics.jsonl, and averaged over the seeds of one recipe."""

import contextlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import SettingsError
from paravt_training.loop.export import START_FILE

FloatArray = NDArray[np.float64]
ENDS = 0.1
"""A run's start and end: this fraction of the steps at which a metric was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetrics:
    """The metrics of one run, or the mean of several seeds."""

    folder: Path
    name: str
    """The recipe's name, followed by the folder where several runs share it."""
    records: list[dict[str, Any]]
    """One per step, as they were written."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """As the run began with it; empty where only the metrics are available."""
    seeds: "tuple[RunMetrics, ...]" = ()
    """The runs that this is the mean of."""

    @property
    def window(self) -> int:
        """Steps in a running mean: a fifteenth of the run, at most 25."""
        return min(25, max(1, len(self.records) // 15))

    def series(self, metric: str) -> tuple[FloatArray, FloatArray]:
        """The steps at which a metric was measured, and its values.  # [points], [points]"""
        points = [(record["step"], record[metric]) for record in self.records if _is_finite(record.get(metric))]
        steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        return steps, values

    def has(self, metric: str) -> bool:
        return any(_is_finite(record.get(metric)) for record in self.records)

    def ends(self, metric: str) -> tuple[float, float] | None:
        """The means of the first and last tenth of the values, at least one each; None if it was never measured."""
        _, values = self.series(metric)
        count = max(1, round(len(values) * ENDS))
        return (float(values[:count].mean()), float(values[-count:].mean())) if len(values) else None


def _is_finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def read_runs(folders: Sequence[Path]) -> list[RunMetrics]:
    """The runs of these folders, in order, under distinct names. A run that is still in progress can be read too.

    Raises:
        SettingsError: one line that names the file, the line and the fault.
    """
    runs = [_read_run(folder) for folder in dict.fromkeys(folders)]
    names = Counter(run.name for run in runs)
    return [replace(run, name=f"{run.name} ({run.folder})") if names[run.name] > 1 else run for run in runs]


def _read_run(folder: Path) -> RunMetrics:
    file = folder / "metrics.jsonl"
    try:
        *lines, rest = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{file}: cannot read as text; pass the folder of a training run") from None
    records = [_parse_record(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    with contextlib.suppress(SettingsError):  # a run in progress may have written half a line
        records.append(_parse_record(rest, ""))
    if not records:
        raise SettingsError(f"{file}: no step recorded yet; try again once the run has finished one")
    recipe: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # metrics alone are enough
        recipe = dict(json.loads((folder / START_FILE).read_text())["recipe"])
    name = str(recipe.get("name", folder.resolve().name))
    return RunMetrics(folder=folder, name=name, records=records, recipe=recipe)


def _parse_record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        raise SettingsError(f"{where}: not JSON; fix or remove the line") from None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise SettingsError(f"{where}: not an object with an integer step; fix or remove the line")
    return record


def average_seeds(runs: Sequence[RunMetrics]) -> list[RunMetrics]:
    """Runs of the same recipe as one: at each step that all of them reached, the mean of each metric.

    Raises:
        SettingsError: runs of a recipe have no step in common.
    """
    recipes: dict[str, list[RunMetrics]] = {}
    for run in runs:
        recipes.setdefault(str(run.recipe.get("name", run.name)), []).append(run)
    return [_mean(name, seeds) if len(seeds) > 1 else seeds[0] for name, seeds in recipes.items()]


def _mean(name: str, seeds: Sequence[RunMetrics]) -> RunMetrics:
    by_step = [{record["step"]: record for record in run.records} for run in seeds]
    common = sorted(set.intersection(*(set(steps) for steps in by_step)))
    if not common:
        folders = ", ".join(str(run.folder) for run in seeds)
        raise SettingsError(f"{folders}: no step in common; draw these runs without averaging seeds")
    records = []
    for step in common:
        measured = [steps[step] for steps in by_step]
        metrics = dict.fromkeys(key for record in measured for key in record if key != "step")
        values = {key: [record[key] for record in measured if _is_finite(record.get(key))] for key in metrics}
        records.append({"step": step} | {key: statistics.fmean(found) for key, found in values.items() if found})
    title = f"{name} × {len(seeds)}"
    return RunMetrics(folder=seeds[0].folder, name=title, records=records, recipe=seeds[0].recipe, seeds=tuple(seeds))
