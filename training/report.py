"""Runs as the paper's pictures (Fig. 4, 6 and 8, Table 5): PNG files, and one HTML page that can be mailed.

All comes from the runs' metrics.jsonl. Several runs are drawn together, one colour each.
"""

import base64
import contextlib
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.console import Console

from paravt_infer.errors import SettingsError
from training.export import START_FILE

Numbers = NDArray[np.float64]
TAGS = ("think", "tool_call", "answer")
ENDS = 0.1
"""A run's start and end are the first and last so great a part of the steps at which a number was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """One run's metrics."""

    folder: Path
    name: str
    """The recipe's; with the folder where several runs have the same."""
    records: list[dict[str, Any]]
    """One a step, as they were written."""

    @property
    def window(self) -> int:
        """Steps that a running mean is taken over: a fifteenth of the run."""
        return max(1, len(self.records) // 15)

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


def running_mean(values: Numbers, window: int) -> Numbers:
    """The mean of the `window` values around each, of fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 0.0, 3.0]), 3).tolist()
    [1.5, 1.0, 2.0, 1.5]
    """
    ones = np.ones(min(window, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones_like(values), ones, "same")


def read_runs(folders: Sequence[Path]) -> list[Run]:
    """The runs of these folders, in their order, each named apart from the others.

    Raises:
        SettingsError: one line that names the file, the line and the fault.
    """
    runs = [_read(folder) for folder in dict.fromkeys(folders)]
    named = Counter(run.name for run in runs)
    return [replace(run, name=f"{run.name} ({run.folder})") if named[run.name] > 1 else run for run in runs]


def _read(folder: Path) -> Run:
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
    name = folder.resolve().name
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # metrics alone can be drawn too
        name = str(json.loads((folder / START_FILE).read_text())["recipe"]["name"])
    return Run(folder=folder, name=name, records=records)


def _record(line: str, where: str) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError:
        raise SettingsError(f"{where}: not JSON; mend or remove the line") from None
    if not isinstance(record, dict) or not isinstance(record.get("step"), int):
        raise SettingsError(f"{where}: not an object with a whole number as its step; mend or remove the line")
    return record


@dataclass(frozen=True, kw_only=True, slots=True)
class Theme:
    """Colours of a picture."""

    card: str
    ink: str
    soft: str
    line: str
    runs: tuple[str, ...]
    """One a run, told apart by the colour-blind too; they begin anew after the last."""


LIGHT = Theme(
    card="#ffffff",
    ink="#1c2027",
    soft="#5a6270",
    line="#e4e2dd",
    runs=("#1d66a8", "#c2570c", "#15836b", "#a3429a", "#8f6d00", "#5b6472", "#5757d0"),
)
DARK = Theme(
    card="#1d2025",
    ink="#e7e9ec",
    soft="#a0a8b4",
    line="#343a43",
    runs=("#74b4f2", "#f0a25f", "#4cc4a4", "#dc8ad4", "#d9b43c", "#b3bbc7", "#9d9df5"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Panel:
    """One metric over the steps."""

    metric: str
    title: str
    unit: str
    part: bool = False
    """Whether it is a part of 1, drawn in percent."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One PNG."""

    file: str
    title: str
    seen: str
    """What is seen, in a sentence or two."""
    panels: tuple[Panel, ...]
    draw: Callable[["Picture", Sequence[Run], Theme], Any]


def drawn(picture: Picture, runs: Sequence[Run], theme: Theme) -> bytes:
    """The picture as a PNG file's bytes."""
    import matplotlib

    style = {
        "figure.facecolor": theme.card,
        "axes.facecolor": theme.card,
        "axes.edgecolor": theme.line,
        "axes.labelcolor": theme.soft,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 9.5,
        "axes.titleweight": "bold",
        "axes.titlecolor": theme.ink,
        "axes.labelsize": 8.5,
        "grid.color": theme.line,
        "grid.linewidth": 0.7,
        "text.color": theme.ink,
        "xtick.color": theme.soft,
        "ytick.color": theme.soft,
        "xtick.labelsize": 8,
        "ytick.labelsize": 8,
        "xtick.major.size": 0,
        "ytick.major.size": 0,
        "font.family": "DejaVu Sans",
        "legend.frameon": False,
    }
    buffer = io.BytesIO()
    with matplotlib.rc_context(style):
        picture.draw(picture, runs, theme).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


WIDTH, TALL = 11.0, 2.35
"""Inches: of a picture, and of a row of panels."""


def _figure(
    picture: Picture, runs: Sequence[Run], theme: Theme, *, columns: int, rows: int, foot: float = 0.0
) -> tuple[Any, list[Any]]:
    """A figure with its title and legend, and its axes row by row; `foot` inches stay free below them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    longest = max(len(run.name) for run in runs)
    across = max(1, min(len(runs), int((WIDTH - 0.6) / (0.085 * longest + 0.65))))
    head = 0.75 + 0.2 * math.ceil(len(runs) / across)
    height = head + rows * TALL + 0.25 + foot
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(0.3 / WIDTH, 1 - 0.2 / height, picture.title, size=13, weight="bold", va="top")
    handles = [Line2D([], [], color=_colour(theme, n), lw=2.2, label=run.name) for n, run in enumerate(runs)]
    figure.legend(
        handles=handles,
        ncols=across,
        loc="upper left",
        bbox_to_anchor=(0.22 / WIDTH, 1 - 0.42 / height),
        fontsize=9,
        handlelength=1.4,
        columnspacing=1.6,
        borderpad=0.2,
    )
    axes = figure.subplots(rows, columns, squeeze=False)
    figure.subplots_adjust(
        left=0.75 / WIDTH,
        right=1 - 0.3 / WIDTH,
        top=1 - (head + 0.2) / height,
        bottom=(0.6 + foot) / height,
        wspace=0.27,
        hspace=0.55,
    )
    return figure, list(axes.flat)


def _colour(theme: Theme, number: int) -> str:
    return theme.runs[number % len(theme.runs)]
