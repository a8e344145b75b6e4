"""Training runs drawn: the paper's pictures (Fig. 4, 6 and 8, Table 5) as PNG files, one colour a run.

Each step is a thin line, the running mean over it a thick one.
"""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from training.report import Run

Numbers = NDArray[np.float64]


def running_mean(values: Numbers, window: int) -> Numbers:
    """The mean of the `window` values around each, of fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 0.0, 3.0]), 3).tolist()
    [1.5, 1.0, 2.0, 1.5]
    """
    ones = np.ones(min(window, len(values)))
    return np.convolve(values, ones, "same") / np.convolve(np.ones_like(values), ones, "same")


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
    picture: Picture, runs: Sequence["Run"], theme: Theme, *, columns: int, count: int, foot: float = 0.0
) -> tuple[Any, list[Any]]:
    """A figure with its title and legend, and `count` axes row by row; `foot` inches stay free below them."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    rows = math.ceil(count / columns)
    across = max(1, min(len(runs), int((WIDTH - 0.6) / (0.085 * max(len(run.name) for run in runs) + 0.65))))
    head = 0.75 + 0.2 * math.ceil(len(runs) / across)
    height = head + rows * TALL + 0.35 + foot
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(0.3 / WIDTH, 1 - 0.2 / height, picture.title, size=13, weight="bold", va="top")
    figure.legend(
        handles=[Line2D([], [], color=theme.run(number), lw=2.2, label=run.name) for number, run in enumerate(runs)],
        ncols=across,
        loc="upper left",
        bbox_to_anchor=(0.22 / WIDTH, 1 - 0.42 / height),
        fontsize=9,
        handlelength=1.4,
        columnspacing=1.6,
    )
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    figure.subplots_adjust(
        left=0.75 / WIDTH,
        right=1 - 0.3 / WIDTH,
        top=1 - (head + 0.2) / height,
        bottom=(0.85 + foot) / height,
        wspace=0.27,
        hspace=0.6,
    )
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _note(figure: Any, theme: Theme, text: str) -> None:
    figure.text(0.3 / WIDTH, 0.18 / figure.get_figheight(), text, size=8, color=theme.soft)


def over_steps(picture: Picture, runs: Sequence["Run"], theme: Theme, *, columns: int = 3, foot: float = 0.0) -> Any:
    """Each metric that some run has, over the steps."""
    panels = [panel for panel in picture.panels if any(run.has(panel.metric) for run in runs)]
    columns = min(columns, len(panels))
    figure, axes = _figure(picture, runs, theme, columns=columns, count=len(panels), foot=foot)
    smoothed = set()
    for axis, panel in zip(axes, panels, strict=True):
        for number, run in enumerate(runs):
            steps, values = run.series(panel.metric)
            colour = theme.run(number)
            if panel.metric.startswith("held_out/") or run.window == 1:
                axis.plot(steps, values, color=colour, lw=1.4, marker="o", ms=3, zorder=3)
                continue
            smoothed.add(run.window)
            axis.plot(steps, values, color=colour, lw=0.8, alpha=0.3)
            axis.plot(steps, running_mean(values, run.window), color=colour, lw=1.9, zorder=3)
        _dress(axis, panel)
    if smoothed:
        least, most = min(smoothed), max(smoothed)
        span = f"{least}" if least == most else f"{least} to {most}"
        _note(figure, theme, f"Thin: each step. Thick: the running mean of {span} steps, a fifteenth of a run.")
    return figure


def _dress(axis: Any, panel: Panel) -> None:
    from matplotlib.ticker import MaxNLocator, PercentFormatter

    axis.set(title=panel.title, xlabel="step", ylabel=panel.unit)
    axis.xaxis.set_major_locator(MaxNLocator(6, integer=True))
    axis.margins(x=0.02)
    if panel.log and min((line.get_ydata().min() for line in axis.lines if len(line.get_ydata())), default=0) > 0:
        axis.set_yscale("log")
    elif panel.part:
        axis.set_ylim(-0.03, 1.03)
        axis.yaxis.set_major_formatter(PercentFormatter(1.0, decimals=0))
    else:
        axis.yaxis.set_major_locator(MaxNLocator(5))


def in_two_columns(picture: Picture, runs: Sequence["Run"], theme: Theme) -> Any:
    return over_steps(picture, runs, theme, columns=2)


def with_table(picture: Picture, runs: Sequence["Run"], theme: Theme) -> Any:
    """The curves, and below them each run's start and end."""
    foot = 0.55 + 0.24 * len(runs)
    figure = over_steps(picture, runs, theme, foot=foot)
    panels = [panel for panel in picture.panels if any(run.has(panel.metric) for run in runs)]
    height = figure.get_figheight()
    top = foot + 0.3
    ...
