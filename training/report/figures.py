"""Figures of training runs (the paper's Fig. 4, 6 and 8 and Table 5) drawn with matplotlib, one colour per run."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paravt_infer.errors import SettingsError
from paravt_training.report.runs import FloatArray, RunMetrics

WIDTH, EDGE = 11.0, 0.3
"""Inches: the width of a figure, and the margin at its sides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Theme:
    """Colours of a figure."""

    card: str
    ink: str
    soft: str
    line: str
    runs: tuple[str, ...]
    """One per run, distinct for colour-blind readers; repeated after the last."""

    def run(self, number: int) -> str:
        return self.runs[number % len(self.runs)]


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
    """One metric, over the steps or on the horizontal axis."""

    metric: str
    title: str
    unit: str
    fraction: bool = False
    """Whether it lies between 0 and 1: shown in percent, on an axis from 0 to 100%."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FigureSpec:
    """What one figure shows; `render_png` draws it."""

    file: str
    """The name of its PNG file, without the suffix."""
    title: str
    caption: str
    panels: tuple[Panel, ...]
    draw: Callable[["FigureSpec", Sequence[RunMetrics], Theme], Any]
    row_height: float = 2.45
    """Inches per row of panels."""
    requires: str = ""
    """A metric that a run must have as well."""
    source: str = ""
    """The figure or table of the paper that it follows."""

    def panels_with(self, runs: Sequence[RunMetrics]) -> list[Panel]:
        """The panels that at least one of the runs appears in."""
        able = [run for run in runs if not self.requires or run.has(self.requires)]
        return [panel for panel in self.panels if any(run.has(panel.metric) for run in able)]


def render_png(spec: FigureSpec, runs: Sequence[RunMetrics], theme: Theme) -> bytes:
    """The figure as the bytes of a PNG file.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise SettingsError("figures need matplotlib: pip install 'paravt-infer[train]'") from None
    style = {
        "figure.facecolor": theme.card,
        "axes.facecolor": theme.card,
        "axes.edgecolor": theme.line,
        "axes.labelcolor": theme.soft,
        "axes.labelsize": 8.5,
        "axes.grid": True,
        "axes.axisbelow": True,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlelocation": "left",
        "axes.titlesize": 10,
        "axes.titlecolor": theme.ink,
        "axes.xmargin": 0.02,
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
        spec.draw(spec, runs, theme).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def plot_over_steps(
    spec: FigureSpec, runs: Sequence[RunMetrics], theme: Theme, *, foot: float = 0.0, note: Sequence[str] = ()
) -> Any:
    """One panel per metric, one line per run: thin for each step, thick for the running mean.

    The mean of several seeds has a band in place of the thin line, from the lowest running mean of a seed to the
    highest. `foot` inches stay free below the panels.
    """
    panels = spec.panels_with(runs)
    figure, axes = _figure(spec, runs, theme, len(panels), foot=foot)
    windows: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        for number, run in enumerate(runs):
            (steps, values), colour = run.series(panel.metric), theme.run(number)
            # Held-out metrics have few points, and each of them averages many questions.
            window = 1 if panel.metric.startswith("held_out/") else run.window
            seeds = [seed.series(panel.metric) for seed in run.seeds if seed.has(panel.metric)]
            if seeds:
                means = [np.interp(steps, at, running_mean(series, window)) for at, series in seeds]
                axis.fill_between(steps, np.min(means, axis=0), np.max(means, axis=0), color=colour, lw=0, alpha=0.13)
            if window == 1:
                axis.plot(steps, values, color=colour, lw=1.5, marker="o", ms=3)
                continue
            windows |= {window} if len(steps) else set()
            if not seeds:
                axis.plot(steps, values, color=colour, lw=0.8, alpha=0.3)
            axis.plot(steps, running_mean(values, window), color=colour, lw=1.9, zorder=3)
        axis.set(title=panel.title, xlabel="step", ylabel=panel.unit)
        _ticks(axis.xaxis, integer=True)
        _scale(axis, panel)
    if any(run.seeds for run in runs):
        note = ["Band: lowest to highest seed.", *note]
    if windows:
        span = " to ".join(map(str, sorted({min(windows), max(windows)})))
        thin = "" if all(run.seeds for run in runs) else "Thin: each step. "
        note = [f"{thin}Thick: the running mean of {span} steps.", *note]
    _note(figure, theme, " ".join(note))
    return figure


def plot_closure(spec: FigureSpec, runs: Sequence[RunMetrics], theme: Theme) -> Any:
    """Curves over the steps, and below each panel the value at the start and end of every run."""
    drawn = [(theme.run(number), run) for number, run in enumerate(runs) if spec.panels_with([run])]
    foot = 0.5 + 0.23 * len(drawn)
    note = ["Start and end: means over the first and the last tenth of the steps."]
    figure = plot_over_steps(spec, runs, theme, foot=foot, note=note)
    for axis, panel in zip(figure.axes, spec.panels_with(runs), strict=True):
        left, right = axis.get_position().x0, axis.get_position().x1
        rows: list[tuple[str, Sequence[str]]] = [(theme.soft, ("", "start", "end", "change"))]
        for colour, run in drawn:
            name, ends = run.name if len(run.name) <= 23 else run.name[:22] + "…", run.ends(panel.metric)
            cells = (f"{ends[0]:.0%}", f"{ends[1]:.0%}", f"{100 * (ends[1] - ends[0]):+.0f}") if ends else ("–",) * 3
            rows.append((colour, (name, *(cell.replace("-", "−") for cell in cells))))
        for number, (colour, texts) in enumerate(rows):
            for x, text in zip((left, right - 0.084, right - 0.042, right), texts, strict=True):
                y, side = (foot - 0.23 * number) / figure.get_figheight(), "left" if x == left else "right"
                figure.text(x, y, text, size=8, color=colour, ha=side, va="bottom")
    return figure


def plot_against_accuracy(spec: FigureSpec, runs: Sequence[RunMetrics], theme: Theme) -> Any:
    """One path per run through its held-out evaluations: x is the panel's metric at that step, y the accuracy."""
    panels = spec.panels_with(runs)
    figure, axes = _figure(spec, runs, theme, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for number, run in enumerate(runs):
            steps, x, y = accuracy_path(run, panel.metric)
            if not len(steps):
                continue
            colour = theme.run(number)
            axis.plot(x, y, color=colour, lw=1.2, alpha=0.55)
            axis.scatter(x, y, s=14, color=colour, zorder=3)
            axis.scatter(x[:1], y[:1], s=52, color=theme.card, edgecolor=colour, lw=1.8, zorder=4)
            axis.scatter(x[-1:], y[-1:], s=70, color=colour, zorder=4)
            style = {"textcoords": "offset points", "xytext": (7, 4), "size": 8, "color": colour}
            axis.annotate(f"step {steps[-1]:.0f}", (x[-1], y[-1]), **style)
        axis.set(title=panel.title, xlabel=panel.unit, ylabel="held-out accuracy")
        axis.margins(x=0.12, y=0.08)
        _ticks(axis.xaxis)
        _ticks(axis.yaxis, percent=True)
    _note(figure, theme, "Ring: a run's first evaluation. Large dot: its last.")
    return figure


def accuracy_path(run: RunMetrics, metric: str) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A run's steps with a held-out accuracy, the metric at them, and the accuracy.  # [points] each

    Metrics of every step are smoothed by their running mean and read at the nearest step that has them.
    """
    (at, accuracy), (steps, values) = run.series("held_out/accuracy"), run.series(metric)
    if not len(steps):
        at, accuracy = at[:0], accuracy[:0]
    if not metric.startswith("held_out/"):
        values = running_mean(values, run.window)
    nearest = np.array([np.abs(steps - step).argmin() for step in at], dtype=np.intp)
    return at, values[nearest], accuracy


def running_mean(values: FloatArray, window: int) -> FloatArray:
    """The mean of the `window` values around each value, of fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 0.0, 3.0]), 3).tolist()
    [1.5, 1.0, 2.0, 1.5]
    """
    if not len(values):
        return values
    ones = np.ones(min(window, len(values)))
    means: FloatArray = np.convolve(values, ones, "same") / np.convolve(np.ones_like(values), ones, "same")
    return means


def _figure(
    spec: FigureSpec, runs: Sequence[RunMetrics], theme: Theme, count: int, *, foot: float = 0.0
) -> tuple[Any, list[Any]]:
    """A figure with its title and legend, and `count` axes, row by row."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    columns = 2 if count == 4 else min(3, count)
    rows = math.ceil(count / columns)
    handles = [
        Line2D([], [], color=theme.run(number), lw=2.4, label=run.name.replace("$", r"\$"))
        for number, run in enumerate(runs)
        if spec.panels_with([run])
    ]
    longest = max(len(str(handle.get_label())) for handle in handles)
    legend_columns = max(1, min(len(handles), int((WIDTH - 2 * EDGE) / (0.085 * longest + 0.65))))
    head = 0.85 + 0.2 * math.ceil(len(handles) / legend_columns)
    height = head + rows * spec.row_height + foot
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(EDGE / WIDTH, 1 - 0.22 / height, spec.title, size=13, weight="bold", va="top")
    figure.legend(
        handles=handles,
        ncols=legend_columns,
        loc="upper left",
        bbox_to_anchor=((EDGE - 0.08) / WIDTH, 1 - 0.45 / height),
        fontsize=9,
        handlelength=1.3,
        columnspacing=1.6,
    )
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    figure.subplots_adjust(
        left=0.75 / WIDTH,
        right=1 - EDGE / WIDTH,
        top=1 - head / height,
        bottom=(0.8 + foot) / height,
        wspace=0.27,
        hspace=0.52,
    )
    for spare in axes[count:]:
        spare.remove()
    return figure, axes[:count]


def _note(figure: Any, theme: Theme, text: str) -> None:
    figure.text(EDGE / WIDTH, 0.16 / figure.get_figheight(), text, size=8, color=theme.soft)


def _ticks(axis: Any, *, integer: bool = False, percent: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, integer=integer, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10]))
    if percent:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 6):g}%"))


def _scale(axis: Any, panel: Panel) -> None:
    """Scale the y axis: fractions from 0 to 1, positive losses logarithmically, other positive numbers from 0."""
    lowest, highest = axis.dataLim.intervaly
    if panel.metric.endswith("loss") and lowest > 0:
        axis.set_yscale("log")
        return
    _ticks(axis.yaxis, percent=panel.fraction)
    if panel.fraction:
        axis.set_ylim(-0.03, 1.03)
    elif lowest >= 0:
        axis.set_ylim(0, 1.08 * highest or 1)


F_TAU = Panel(metric="f_tau", title=r"Format reward $f_\tau$", unit="mean reward, at most 1")
KAPPA = Panel(metric="kappa", title=r"Tool calls $\kappa$", unit="calls per rollout")
PAPER_FIGURES = (
    FigureSpec(
        file="dynamics",
        title="Training dynamics",
        caption="Format and tool use, divergence from the reference model, and the rewards of each step's rollouts.",
        panels=(
            F_TAU,
            KAPPA,
            Panel(metric="kl", title="Divergence from the reference", unit="KL, nats per token"),
            Panel(metric="reward/total", title="Total reward", unit="mean reward"),
            Panel(metric="reward/accuracy", title="Accuracy reward", unit="mean reward"),
            Panel(metric="reward/tool", title="Tool reward", unit="mean reward"),
        ),
        draw=plot_over_steps,
        source="Fig. 4",
    ),
    FigureSpec(
        file="closure",
        title="Tag closure",
        caption="The fraction of opened tags that were closed, over each step's rollouts.",
        panels=tuple(
            Panel(metric=f"closure/{tag}", title=f"<{tag}>", unit="closed of opened", fraction=True)
            for tag in ("think", "tool_call", "answer")
        ),
        draw=plot_closure,
        source="Table 5",
    ),
    FigureSpec(
        file="format_accuracy",
        title="Format reward against held-out accuracy",
        caption="Each run at its held-out evaluations: whether better format goes with better answers.",
        panels=(
            Panel(metric="f_tau", title="Format in training", unit=r"format reward $f_\tau$, running mean"),
            Panel(metric="held_out/format", title="Format on held-out questions", unit="format reward, greedy"),
        ),
        draw=plot_against_accuracy,
        row_height=3.6,
        requires="held_out/accuracy",
        source="Fig. 6",
    ),
    FigureSpec(
        file="tools",
        title="Tool use",
        caption="How often rollouts call the tool, whether the calls run, and in which syntax they are written.",
        panels=(
            KAPPA,
            Panel(metric="calls_ok", title="Calls that ran", unit="calls per rollout"),
            Panel(metric="with_calls", title="Rollouts with a call", unit="of rollouts", fraction=True),
            Panel(metric="tool_code", title="Calls written as <tool_code>", unit="of calls", fraction=True),
        ),
        draw=plot_over_steps,
        source="Fig. 8",
    ),
)
