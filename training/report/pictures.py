"""Training runs drawn: the paper's pictures (Fig. 4, 6 and 8, Table 5) as PNG files, one colour a run."""

import io
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from paravt_training.report.page import RunMetrics

Numbers = NDArray[np.float64]
WIDTH, EDGE = 11.0, 0.3
"""Inches: a picture's width, and what stays free at its sides."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Theme:
    """Colours of a picture."""

    card: str
    ink: str
    soft: str
    line: str
    runs: tuple[str, ...]
    """One a run, for the colour-blind too; they begin anew after the last."""

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
    """One metric, over the steps or as the axis across."""

    metric: str
    title: str
    unit: str
    part: bool = False
    """Whether it is a part of 1: in percent, the axis from nothing to all."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Picture:
    """One PNG."""

    file: str
    title: str
    seen: str
    """What is seen, in a sentence or two."""
    panels: tuple[Panel, ...]
    draw: Callable[["Picture", Sequence["RunMetrics"], Theme], Any]
    tall: float = 2.45
    """Inches: a row of panels."""
    needs: str = ""
    """A metric that a run must have too."""

    def of(self, runs: Sequence["RunMetrics"]) -> "list[Panel]":
        """The panels that some run can be seen in."""
        able = [run for run in runs if not self.needs or run.has(self.needs)]
        return [panel for panel in self.panels if any(run.has(panel.metric) for run in able)]


def png(picture: Picture, runs: Sequence["RunMetrics"], theme: Theme) -> bytes:
    """The picture as the bytes of a PNG file.

    Raises:
        SettingsError: matplotlib is not installed.
    """
    try:
        import matplotlib
    except ImportError:
        raise SettingsError("pictures need matplotlib: pip install 'paravt-infer[train]'") from None
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
        picture.draw(picture, runs, theme).savefig(buffer, format="png", dpi=150)
    return buffer.getvalue()


def over_steps(
    picture: Picture, runs: Sequence["RunMetrics"], theme: Theme, *, foot: float = 0.0, note: Sequence[str] = ()
) -> Any:
    """A panel a metric, a line a run: thin each step, thick the running mean. `foot` inches stay free below.

    The mean of several seeds has a band in place of the thin line: from the least running mean of a seed to the most.
    """
    panels = picture.of(runs)
    figure, axes = _figure(picture, runs, theme, len(panels), foot=foot)
    windows: set[int] = set()
    for axis, panel in zip(axes, panels, strict=True):
        for number, run in enumerate(runs):
            (steps, values), colour = run.series(panel.metric), theme.run(number)
            # Of a held-out measure there are few points, each of them many questions.
            window = 1 if panel.metric.startswith("held_out/") else run.window
            of_seeds = [seed.series(panel.metric) for seed in run.seeds if seed.has(panel.metric)]
            if of_seeds:
                each = [np.interp(steps, at, running_mean(one, window)) for at, one in of_seeds]
                axis.fill_between(steps, np.min(each, axis=0), np.max(each, axis=0), color=colour, lw=0, alpha=0.13)
            if window == 1:
                axis.plot(steps, values, color=colour, lw=1.5, marker="o", ms=3)
                continue
            windows |= {window} if len(steps) else set()
            if not of_seeds:
                axis.plot(steps, values, color=colour, lw=0.8, alpha=0.3)
            axis.plot(steps, running_mean(values, window), color=colour, lw=1.9, zorder=3)
        axis.set(title=panel.title, xlabel="step", ylabel=panel.unit)
        _ticks(axis.xaxis, whole=True)
        _scale(axis, panel)
    if any(run.seeds for run in runs):
        note = ["Band: from the least to the most of the seeds.", *note]
    if windows:
        span = " to ".join(map(str, sorted({min(windows), max(windows)})))
        thin = "" if all(run.seeds for run in runs) else "Thin: each step. "
        note = [f"{thin}Thick: the running mean of {span} steps.", *note]
    _note(figure, theme, " ".join(note))
    return figure


def closure(picture: Picture, runs: Sequence["RunMetrics"], theme: Theme) -> Any:
    """Curves over the steps, and under each the runs' starts and ends."""
    able = [(theme.run(number), run) for number, run in enumerate(runs) if picture.of([run])]
    foot = 0.5 + 0.23 * len(able)
    note = ["Start and end: means of the first and the last tenth of the steps."]
    figure = over_steps(picture, runs, theme, foot=foot, note=note)
    for axis, panel in zip(figure.axes, picture.of(runs), strict=True):
        left, right = axis.get_position().x0, axis.get_position().x1
        rows: list[tuple[str, Sequence[str]]] = [(theme.soft, ("", "start", "end", "change"))]
        for colour, run in able:
            name, ends = run.name if len(run.name) <= 23 else run.name[:22] + "…", run.ends(panel.metric)
            cells = (f"{ends[0]:.0%}", f"{ends[1]:.0%}", f"{100 * (ends[1] - ends[0]):+.0f}") if ends else ("–",) * 3
            rows.append((colour, (name, *(cell.replace("-", "−") for cell in cells))))
        for number, (colour, texts) in enumerate(rows):
            for x, text in zip((left, right - 0.084, right - 0.042, right), texts, strict=True):
                y, side = (foot - 0.23 * number) / figure.get_figheight(), "left" if x == left else "right"
                figure.text(x, y, text, size=8, color=colour, ha=side, va="bottom")
    return figure


def against_accuracy(picture: Picture, runs: Sequence["RunMetrics"], theme: Theme) -> Any:
    """A path a run through its held-out measures: across the panel's metric at that step, up the accuracy."""
    panels = picture.of(runs)
    figure, axes = _figure(picture, runs, theme, len(panels))
    for axis, panel in zip(axes, panels, strict=True):
        for number, run in enumerate(runs):
            steps, across, up = path(run, panel.metric)
            if not len(steps):
                continue
            colour = theme.run(number)
            axis.plot(across, up, color=colour, lw=1.2, alpha=0.55)
            axis.scatter(across, up, s=14, color=colour, zorder=3)
            axis.scatter(across[:1], up[:1], s=52, color=theme.card, edgecolor=colour, lw=1.8, zorder=4)
            axis.scatter(across[-1:], up[-1:], s=70, color=colour, zorder=4)
            place = {"textcoords": "offset points", "xytext": (7, 4), "size": 8, "color": colour}
            axis.annotate(f"step {steps[-1]:.0f}", (across[-1], up[-1]), **place)
        axis.set(title=panel.title, xlabel=panel.unit, ylabel="held-out accuracy")
        axis.margins(x=0.12, y=0.08)
        _ticks(axis.xaxis)
        _ticks(axis.yaxis, percent=True)
    _note(figure, theme, "Ring: a run's first measure. Large dot: its last.")
    return figure


def path(run: "RunMetrics", metric: str) -> tuple[Numbers, Numbers, Numbers]:
    """A run's steps with a held-out accuracy, there the metric, and the accuracy.  # [points] each

    What is measured at each step is taken from its running mean, at the nearest step that has it.
    """
    (at, up), (steps, values) = run.series("held_out/accuracy"), run.series(metric)
    if not len(steps):
        at, up = at[:0], up[:0]
    if not metric.startswith("held_out/"):
        values = running_mean(values, run.window)
    nearest = np.array([np.abs(steps - one).argmin() for one in at], dtype=np.intp)
    return at, values[nearest], up


def running_mean(values: Numbers, window: int) -> Numbers:
    """The mean of the `window` values around each, of fewer at the ends.

    >>> running_mean(np.array([0.0, 3.0, 0.0, 3.0]), 3).tolist()
    [1.5, 1.0, 2.0, 1.5]
    """
    if not len(values):
        return values
    ones = np.ones(min(window, len(values)))
    sums: Numbers = np.convolve(values, ones, "same") / np.convolve(np.ones_like(values), ones, "same")
    return sums


def _figure(
    picture: Picture, runs: Sequence["RunMetrics"], theme: Theme, count: int, *, foot: float = 0.0
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
        if picture.of([run])
    ]
    letters = max(len(str(handle.get_label())) for handle in handles)
    across = max(1, min(len(handles), int((WIDTH - 2 * EDGE) / (0.085 * letters + 0.65))))
    head = 0.85 + 0.2 * math.ceil(len(handles) / across)
    height = head + rows * picture.tall + foot
    figure = Figure(figsize=(WIDTH, height))
    FigureCanvasAgg(figure)
    figure.text(EDGE / WIDTH, 1 - 0.22 / height, picture.title, size=13, weight="bold", va="top")
    figure.legend(
        handles=handles,
        ncols=across,
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


def _ticks(axis: Any, *, whole: bool = False, percent: bool = False) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axis.set_major_locator(MaxNLocator(5, integer=whole, min_n_ticks=1, steps=[1, 2, 2.5, 5, 10]))
    if percent:
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{round(100 * value, 6):g}%"))


def _scale(axis: Any, panel: Panel) -> None:
    """The axis upward: a part whole, a positive loss by its logarithm, other positive numbers from 0."""
    least, most = axis.dataLim.intervaly
    if panel.metric.endswith("loss") and least > 0:
        axis.set_yscale("log")
        return
    _ticks(axis.yaxis, percent=panel.part)
    if panel.part:
        axis.set_ylim(-0.03, 1.03)
    elif least >= 0:
        axis.set_ylim(0, 1.08 * most or 1)


F_TAU = Panel(metric="f_tau", title=r"Format reward $f_\tau$", unit="mean reward, at most 1")
KAPPA = Panel(metric="kappa", title=r"Tool calls $\kappa$", unit="calls a rollout")
DYNAMICS = Picture(
    file="dynamics",
    title="Training dynamics",
    seen="Form and tool use, the divergence from the reference model, and the rewards of each step's rollouts.",
    panels=(
        F_TAU,
        KAPPA,
        Panel(metric="kl", title="Divergence from the reference", unit="KL, nats a token"),
        Panel(metric="reward/total", title="Reward, all of it", unit="mean reward"),
        Panel(metric="reward/accuracy", title="Accuracy reward", unit="mean reward"),
        Panel(metric="reward/tool", title="Tool reward", unit="mean reward"),
    ),
    draw=over_steps,
)
CLOSURE = Picture(
    file="closure",
    title="Tag closure",
    seen="Of the tags that a step's rollouts opened, the part that they closed.",
    panels=tuple(
        Panel(metric=f"closure/{tag}", title=f"<{tag}>", unit="closed of opened", part=True)
        for tag in ("think", "tool_call", "answer")
    ),
    draw=closure,
)
ACCURACY = Picture(
    file="format_accuracy",
    title="Format reward against held-out accuracy",
    seen="Where a run was at each held-out measure: whether better form goes with better answers.",
    panels=(
        Panel(metric="f_tau", title="Form while training", unit=r"format reward $f_\tau$, running mean"),
        Panel(metric="held_out/format", title="Form on held-out questions", unit="format reward, greedy"),
    ),
    draw=against_accuracy,
    tall=3.6,
    needs="held_out/accuracy",
)
TOOLS = Picture(
    file="tools",
    title="Tool use",
    seen="How often rollouts call the tool, whether the calls run, and in which form they are written.",
    panels=(
        KAPPA,
        Panel(metric="calls_ok", title="Calls that ran", unit="calls a rollout"),
        Panel(metric="with_calls", title="Rollouts with a call", unit="of rollouts", part=True),
        Panel(metric="tool_code", title="Calls written as <tool_code>", unit="of calls", part=True),
    ),
    draw=over_steps,
)
PAPER = ((DYNAMICS, "Fig. 4"), (CLOSURE, "Table 5"), (ACCURACY, "Fig. 6"), (TOOLS, "Fig. 8"))
