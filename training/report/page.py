"""The report of training runs: the paper's figures as PNG files, and one self-contained HTML page."""

import base64
from collections.abc import Iterator, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from paravt_infer.console import say
from paravt_infer.files import writing
from paravt_training.report.figures import DARK, LIGHT, PAPER_FIGURES, FigureSpec, Panel, plot_over_steps, render_png
from paravt_training.report.runs import ENDS, RunMetrics, average_seeds, read_runs

SUMMARY = {
    "reward/total": "reward",
    "f_tau": "format reward f_τ",
    "kappa": "tool calls κ",
    "held_out/accuracy": "held-out accuracy",
    "held_out/answer": "held-out answers",
    "loss": "loss",
}
"""Metrics of the first table, and their column titles."""


def write_report(runs: Sequence[Path], out: Path, *, seeds: bool = False) -> list[Path]:
    """Draw runs into folder `out`; returns the files written: one PNG per figure, and report.html with all of them.

    A figure whose metrics no run has is left out, and the page says so.

    Args:
        seeds: draw runs of the same recipe as their mean, in a band from the lowest to the highest.

    Raises:
        SettingsError: a run's metrics cannot be read, or `out` cannot be written.
    """
    loaded = average_seeds(read_runs(runs)) if seeds else read_runs(runs)
    specs = [spec for spec in (*PAPER_FIGURES, _learning(loaded)) if spec.panels_with(loaded)]
    missing = list(_missing(loaded))
    figures, written = [], []
    with writing(out):
        out.mkdir(parents=True, exist_ok=True)
        for spec in specs:
            light, dark = render_png(spec, loaded, LIGHT), render_png(spec, loaded, DARK)
            written.append(out / f"{spec.file}.png")
            written[-1].write_bytes(light)
            encoded = [base64.b64encode(image).decode() for image in (light, dark)]
            figures.append({"spec": spec, "light": encoded[0], "dark": encoded[1]})
        written.append(out / "report.html")
        written[-1].write_text(_render_page(loaded, figures, missing), encoding="utf-8")
    for line in missing:
        say(line, style="dim")
    return written


def _learning(runs: Sequence[RunMetrics]) -> FigureSpec:
    """The loss, and every held-out metric that does not break another one down."""
    measured = {name for run in runs for record in run.records for name in record if name.startswith("held_out/")}
    measured.discard("held_out/failed")  # a count of faults, not a measure of the model
    overall = sorted(name for name in measured if not any(name.startswith(f"{other}_") for other in measured))
    panels = [Panel(metric="loss", title="Loss", unit="mean per learned token")]
    panels += [Panel(metric=name, title=name.replace("held_out/", "Held out: "), unit=_unit(name)) for name in overall]
    caption = "The loss of each step, and what was measured on data that is never trained on."
    return FigureSpec(file="learning", title="Learning", caption=caption, panels=tuple(panels), draw=plot_over_steps)


def _unit(name: str) -> str:
    return {"held_out/loss": "mean per token", "held_out/kappa": "calls per question"}.get(name, "fraction")


def _missing(runs: Sequence[RunMetrics]) -> Iterator[str]:
    """What is not drawn and why, one line each."""
    for spec in PAPER_FIGURES:
        metrics = " or ".join(panel.metric for panel in spec.panels)
        metrics += f" together with {spec.requires}" if spec.requires else ""
        without = [run.name for run in runs if not spec.panels_with([run])]
        if len(without) == len(runs):
            yield f"{spec.title} ({spec.source}): not drawn: no run has {metrics}"
        elif without:
            yield f"{spec.title} ({spec.source}): drawn without {', '.join(without)}, which has no {metrics}"


def _render_page(runs: Sequence[RunMetrics], figures: Sequence[dict[str, Any]], missing: Sequence[str]) -> str:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True, trim_blocks=True, lstrip_blocks=True, undefined=jinja2.StrictUndefined
    )
    template = resources.files("paravt_training.report").joinpath("page.html.jinja").read_text(encoding="utf-8")
    summary = {metric: title for metric, title in SUMMARY.items() if any(run.has(metric) for run in runs)}
    closure = [panel.metric for spec in PAPER_FIGURES if spec.file == "closure" for panel in spec.panels_with(runs)]
    return environment.from_string(template).render(
        runs=runs,
        colours=[(LIGHT.run(number), DARK.run(number)) for number in range(len(runs))],
        figures=figures,
        missing=missing,
        summary=summary,
        closure=closure,
        ends=ENDS,
    )
