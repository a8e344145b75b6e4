"""Runs laid side by side: the paper's pictures of them, and one HTML page that can be mailed.

All comes from the runs' metrics.jsonl; a run that is still going can be drawn too.
"""

import base64
import contextlib
import json
import math
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console

from paravt_infer.errors import SettingsError
from paravt_training.loop.export import START_FILE
from paravt_training.report.pictures import DARK, LIGHT, PAPER, Numbers, Panel, Picture, over_steps, png

ENDS = 0.1
"""A run's start and end: so great a part of the steps at which a number was measured."""
SUMMARY = {
    "reward/total": "reward",
    "f_tau": "format reward f_τ",
    "kappa": "tool calls κ",
    "held_out/accuracy": "held-out accuracy",
    "held_out/answer": "held-out answers",
    "loss": "loss",
}
"""Metrics of the first table, and their names there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RunMetrics:
    """One run's metrics."""

    folder: Path
    name: str
    """The recipe's; with the folder where several runs have the same."""
    records: list[dict[str, Any]]
    """One a step, as they were written."""
    recipe: dict[str, Any] = field(default_factory=dict)
    """As the run began with it; empty where metrics are all that is there."""
    seeds: "tuple[RunMetrics, ...]" = ()
    """The runs that this one is the mean of."""

    @property
    def window(self) -> int:
        """Steps that a running mean is taken over: a fifteenth of the run, at most 25."""
        return min(25, max(1, len(self.records) // 15))

    def series(self, metric: str) -> tuple[Numbers, Numbers]:
        """The steps at which a metric was measured, and its values.  # [points], [points]"""
        points = [(record["step"], record[metric]) for record in self.records if _finite(record.get(metric))]
        steps, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
        return steps, values

    def has(self, metric: str) -> bool:
        return any(_finite(record.get(metric)) for record in self.records)

    def ends(self, metric: str) -> tuple[float, float] | None:
        """The mean of its first and of its last tenth, at least one step each; None where it was never measured."""
        _, values = self.series(metric)
        count = max(1, round(len(values) * ENDS))
        return (float(values[:count].mean()), float(values[-count:].mean())) if len(values) else None


def _finite(value: Any) -> bool:
    return isinstance(value, (int, float)) and math.isfinite(value)


def read_runs(folders: Sequence[Path]) -> list[RunMetrics]:
    """The runs of these folders, in their order, each named apart from the others.

    Raises:
        SettingsError: one line that names the file, the line and the fault.
    """
    runs = [_read(folder) for folder in dict.fromkeys(folders)]
    named = Counter(run.name for run in runs)
    return [replace(run, name=f"{run.name} ({run.folder})") if named[run.name] > 1 else run for run in runs]


def _read(folder: Path) -> RunMetrics:
    file = folder / "metrics.jsonl"
    try:
        *lines, rest = file.read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError):
        raise SettingsError(f"{file}: cannot be read as text; name the folder of a run") from None
    records = [_record(line, f"{file}, line {number}") for number, line in enumerate(lines, 1) if line.strip()]
    with contextlib.suppress(SettingsError):  # a run that is still going may have written half a line
        records.append(_record(rest, ""))
    if not records:
        raise SettingsError(f"{file}: holds no step yet; draw the run when it has done one")
    recipe: dict[str, Any] = {}
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # metrics alone can be drawn too
        recipe = dict(json.loads((folder / START_FILE).read_text())["recipe"])
    return RunMetrics(
        folder=folder, name=str(recipe.get("name", folder.resolve().name)), records=records, recipe=recipe
    )


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        raise SettingsError(f"{where}: not JSON; mend or remove the line") from None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise SettingsError(f"{where}: not an object with a whole number as its step; mend or remove the line")
    return record


def over_seeds(runs: Sequence[RunMetrics]) -> list[RunMetrics]:
    """Runs of one recipe as one: at each step that all of them did, each metric's mean over those that measured it.

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
        raise SettingsError(
            f"{', '.join(str(run.folder) for run in seeds)}: no step that all of them did; draw them apart"
        )
    records = []
    for step in common:
        measured = [steps[step] for steps in by_step]
        names = dict.fromkeys(key for record in measured for key in record if key != "step")
        values = {key: [record[key] for record in measured if _finite(record.get(key))] for key in names}
        records.append({"step": step} | {key: statistics.fmean(found) for key, found in values.items() if found})
    title = f"{name} × {len(seeds)}"
    return RunMetrics(folder=seeds[0].folder, name=title, records=records, recipe=seeds[0].recipe, seeds=tuple(seeds))


def write_report(runs: Sequence[Path], out: Path, *, seeds: bool = False) -> list[Path]:
    """Draw runs; returns the files written to folder `out`: a PNG a picture, and report.html with all of them in it.

    What no run has is not drawn, and the page says so.

    Args:
        seeds: runs of one recipe are drawn as one, their mean in a band from the least to the most.

    Raises:
        SettingsError: a run's metrics cannot be read, or `out` cannot be written.
    """
    loaded = over_seeds(read_runs(runs)) if seeds else read_runs(runs)
    pictures = [(picture, source) for picture, source in (*PAPER, (_learning(loaded), "")) if picture.of(loaded)]
    absent = list(_absent(loaded))
    figures, written = [], []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for picture, source in pictures:
            light, dark = png(picture, loaded, LIGHT), png(picture, loaded, DARK)
            written.append(out / f"{picture.file}.png")
            written[-1].write_bytes(light)
            encoded = [base64.b64encode(one).decode() for one in (light, dark)]
            figures.append({"picture": picture, "source": source, "light": encoded[0], "dark": encoded[1]})
        written.append(out / "report.html")
        written[-1].write_text(_page(loaded, figures, absent), encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"{out}: cannot be written ({error.strerror}); name another folder") from None
    for line in absent:
        Console(stderr=True).print(line, style="dim", markup=False, highlight=False, soft_wrap=True)
    return written


def _learning(runs: Sequence[RunMetrics]) -> Picture:
    """The loss, and every held-out measure that is not a finer part of another."""
    measured = {name for run in runs for record in run.records for name in record if name.startswith("held_out/")}
    measured.discard("held_out/failed")  # a count of faults, no measure of the model
    whole = sorted(name for name in measured if not any(name.startswith(f"{other}_") for other in measured))
    panels = [Panel(metric="loss", title="Loss", unit="mean of a learned token")]
    panels += [Panel(metric=name, title=name.replace("held_out/", "Held out: "), unit=_unit(name)) for name in whole]
    seen = "The loss of each step, and what was measured on data that is never trained on."
    return Picture(file="learning", title="Learning", seen=seen, panels=tuple(panels), draw=over_steps)


def _unit(name: str) -> str:
    return {"held_out/loss": "mean of a token", "held_out/kappa": "calls a question"}.get(name, "part of 1")


def _absent(runs: Sequence[RunMetrics]) -> Iterator[str]:
    """What is not drawn and why, a line each."""
    for picture, source in PAPER:
        names = " or ".join(panel.metric for panel in picture.panels)
        names += f" beside {picture.needs}" if picture.needs else ""
        without = [run.name for run in runs if not picture.of([run])]
        if len(without) == len(runs):
            yield f"{picture.title} ({source}): not drawn: no run has {names}"
        elif without:
            yield f"{picture.title} ({source}): drawn without {', '.join(without)}: no {names} there"


def _page(runs: Sequence[RunMetrics], figures: Sequence[dict[str, Any]], absent: Sequence[str]) -> str:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = resources.files("paravt_training.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    summary = {metric: title for metric, title in SUMMARY.items() if any(run.has(metric) for run in runs)}
    tags = [panel.metric for picture, _ in PAPER if picture.file == "closure" for panel in picture.of(runs)]
    return environment.from_string(template).render(
        runs=runs,
        colours=[(LIGHT.run(number), DARK.run(number)) for number in range(len(runs))],
        figures=figures,
        absent=absent,
        summary=summary,
        tags=tags,
        ends=ENDS,
    )
