"""The Rich tables of this package: an A/B comparison, and results next to the paper's Table 1."""

from collections.abc import Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lmms_tasks.reports.prose import FIGURES, describe_comparison, format_figure, short_arm_names
from lmms_tasks.reports.published import NOTES, PARAVT, PUBLISHED, SOURCE, TABLE1_TITLES
from lmms_tasks.reports.statistics import Comparison
from lmms_tasks.reports.table1 import Table1Row


def comparison_table(comparison: Comparison) -> RenderableType:
    """One table over all questions, and one line per task where there are several."""
    part = comparison.overall
    names = short_arm_names(comparison.names)
    title = f"{part.pairs:,} questions that both arms answered, scorer {comparison.scorer}"
    figures = Table("", title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head in (*names, "second / first"):
        figures.add_column(Text(head), justify="right", overflow="fold")  # Text: a name may contain markup
    for figure in FIGURES:
        figures.add_row(figure.label, *format_figure(part, figure))
    lines: list[RenderableType] = [figures, *(Text(line) for line in describe_comparison(part, names))]
    if len(comparison.tasks) > 1:
        tasks = Table(box=SIMPLE_HEAD, pad_edge=False)
        tasks.add_column("task", overflow="fold")
        for title in ("pairs", "scores, %", "difference", "95% interval", "McNemar p"):
            tasks.add_column(title, justify="right")
        for name, one in comparison.tasks.items():
            scores = " / ".join("-" if arm.score is None else f"{arm.score:.1f}" for arm in (one.a, one.b))
            difference = "-" if one.difference is None else f"{one.difference:+.1f}"
            interval = "-" if one.interval is None else "{:+.1f} to {:+.1f}".format(*one.interval)
            p = "-" if one.p is None else f"{one.p:.3g}"
            tasks.add_row(Text(name), f"{one.pairs:,}", scores, difference, interval, p)
        lines.append(tasks)
    return Group(*lines)


def table1_table(rows: Sequence[Table1Row], *, title: str, all_models: bool = False) -> RenderableType:
    """Our results next to ParaVT's.

    Args:
        all_models: also next to every other model of Table 1, in the paper's own layout.
    """
    table = Table(title=Text(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("benchmark", overflow="fold")
    for name in ("questions", "ours, %", PARAVT, "difference [95%]"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        metric = "" if row.metric == "accuracy" else f", {row.metric}"
        count = f"{row.count:,} of {row.size:,}" if row.partial else f"{row.count:,}"
        interval = " \\[{:+.1f}, {:+.1f}]".format(*row.difference_interval) if row.difference_interval else ""
        failed = f"\n{row.failed:,} failed" if row.failed else ""
        table.add_row(
            TABLE1_TITLES[row.task] + metric + (" *" if row.partial else ""),
            count + failed,
            "-" if row.ours is None else f"{row.ours:.1f}",
            f"{row.published[PARAVT]:.1f}",
            "-" if row.difference is None else f"{row.difference:+.1f}" + interval,
        )
    parts: list[RenderableType] = [table, Text(f"Published: {SOURCE}. Intervals are of our numbers only.")]
    if any(row.partial for row in rows):
        parts.append(Text("* Of fewer questions than the split has: not comparable with the paper's."))
    if all_models:
        parts += [Text(), _all_models_table(rows)]
    return Group(*parts)


def _all_models_table(rows: Sequence[Table1Row]) -> Table:
    """Every model of Table 1, its number and how far ours is above (+) or below (-) it."""
    table = Table(
        title="Published, then ours minus it", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    table.add_column("model", no_wrap=True)
    for row in rows:
        table.add_column(TABLE1_TITLES[row.task], justify="right", overflow="fold")
    notes = []
    for model, numbers in PUBLISHED.items():
        cells = []
        for row in rows:
            number = numbers.get(row.task)
            if number is None:
                notes.append(f"{model}, {TABLE1_TITLES[row.task]}: {NOTES[model, row.task]}.")
                cells.append("-")
            else:
                cells.append(f"{number:.1f}" + ("" if row.ours is None else f" {row.ours - number:+.1f}"))
        table.add_row(model, *cells)
    table.add_section()
    table.add_row("ours", *("-" if row.ours is None else f"{row.ours:.1f}" for row in rows), style="bold")
    intervals = ["-" if row.interval is None else "{:.1f} - {:.1f}".format(*row.interval) for row in rows]
    table.add_row("ours, 95%", *intervals)
    table.caption, table.caption_justify = "\n".join(notes) or None, "left"
    return table
