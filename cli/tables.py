"""Every table that the commands print, but for the live view."""

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from lmms_tasks.results import EvalResult
    from lmms_tasks.scoring.rescore import Rescored, TaskScores
    from lmms_tasks.scoring.summary import Summary
    from paravt_infer.rollout import Usage
    from paravt_training.plan.estimate import Estimate, TrainingPlan

SHOWN_DISAGREEMENTS = 20


def plain_table(*headers: str, title: str | None = None, numbers: Sequence[str] = (), **options: Any) -> Table:
    """A table without lines; columns named in `numbers` are right-aligned and do not wrap."""
    table = Table(title=title, title_justify="left", **({"box": None, "pad_edge": False} | options))
    for header in headers:
        number = header in numbers
        table.add_column(header, justify="right" if number else "left", no_wrap=number, overflow="fold")
    return table


def print_results(summaries: "Mapping[str, Summary]", rows: "Sequence[EvalResult]") -> None:
    """Print the scores of an evaluation and, where episodes succeeded, what they cost."""
    console = Console()
    console.print(_summaries(summaries))
    if costs := _costs(rows):
        console.print(costs)


def _summaries(summaries: "Mapping[str, Summary]") -> Table:
    """A line for each task and each value of its breakdowns."""
    numbers = ("%", "questions", "no answer", "failed")
    table = plain_table("task", "measure", *numbers, numbers=numbers, box=SIMPLE_HEAD)
    for task, summary in summaries.items():
        counts = (summary.count, summary.no_answer, summary.failed)
        table.add_row(task, summary.headline.name, _percent(summary.headline.value), *map(str, counts), style="bold")
        for name, value in summary.metrics.items():
            if name != summary.headline.name:
                table.add_row("", name, _percent(value))
        for key, groups in summary.groups.items():
            for name, group in groups.items():
                table.add_row(f"  {key} {name}", "", _percent(group.score), str(group.count))
    return table


def _costs(rows: "Sequence[EvalResult]") -> Table | None:
    """The mean cost of a question of each task and the spread of its seconds, over the episodes that did not fail."""
    import numpy as np

    usages: dict[str, list[Usage]] = {}
    for row in rows:
        if not row.failed:
            usages.setdefault(row.item.task, []).append(row.rollout.usage)
    if not usages:
        return None
    numbers = ("tokens in", "tokens out", "calls", "seconds p50", "p95")
    table = plain_table("cost per question", *numbers, numbers=numbers, box=SIMPLE_HEAD)
    for task, spent in usages.items():
        counts = [(usage.prompt_tokens, usage.output_tokens, usage.calls) for usage in spent]
        read, written, calls = np.mean(counts, axis=0)
        p50, p95 = np.percentile([usage.seconds for usage in spent], [50, 95])
        table.add_row(task, f"{read:,.0f}", f"{written:,.0f}", f"{calls:.2f}", f"{p50:.1f}", f"{p95:.1f}")
    return table


def print_scores(rescored: "Rescored") -> None:
    """Print every task under every scorer, then what the scorers depend on, such as a judge's model."""
    console = Console()
    for task in rescored.tasks:
        _print_task(console, task)
    for name, facts in rescored.scorers.items():
        if short := ", ".join(f"{key} {value}" for key, value in facts.items() if "\n" not in value):
            console.print(Text(f"{name}: {short}", style="dim"), soft_wrap=True)


def _print_task(console: Console, task: "TaskScores") -> None:
    """Print a task's scores, their spread, the scorers' faults, and the questions that they disagree on."""
    numbers = ("percent", "rows", "no answer", "failed", "unscored")
    table = plain_table("scorer", "headline", *numbers, title=task.task, numbers=numbers)
    for name, summary in task.summaries.items():
        counts = (summary.count, summary.no_answer, summary.failed, summary.unscored)
        table.add_row(name, summary.headline.name, _percent(summary.headline.value), *map(str, counts))
    console.print(table)
    if task.spread is not None:
        console.print(f"spread: {task.spread:.1f} points", highlight=False)
    for lines in task.faults.values():
        more = f" (and {len(lines) - 1} more rows)" if len(lines) > 1 else ""
        console.print(Text(lines[0] + more), soft_wrap=True)
    if task.disagreements:
        console.print(_disagreements(task))
    console.print()


def _disagreements(task: "TaskScores") -> Table:
    total = len(task.disagreements)
    shown = f", {SHOWN_DISAGREEMENTS} of them shown" if total > SHOWN_DISAGREEMENTS else ""
    title = f"scorers disagree on {total}{shown}"
    table = plain_table("question", "gold", "answer", *task.summaries, title=title, numbers=list(task.summaries))
    for row in task.disagreements[:SHOWN_DISAGREEMENTS]:
        answer = " ".join((row.answer or "").split())
        answer = answer if len(answer) <= 60 else f"{answer[:40].rstrip()} ... {answer[-15:].lstrip()}"
        scores = ("-" if score is None else f"{score:.2f}".rstrip("0").rstrip(".") for score in row.scores.values())
        table.add_row(Text(row.id), Text(row.gold), Text(answer), *scores)
    return table


def print_plan(name: str, plan: "TrainingPlan") -> None:
    """Print what does not fit, then a table for each kind of number."""
    console, sizes = Console(), plan.sizes

    def line(text: str, style: str = "") -> None:
        console.print(Text(text, style=style), soft_wrap=True)

    for fault in plan.unfit:
        line(f"does not fit: {fault}", "bold red")
    if not plan.unfit:
        line("everything fits", "bold green")
    rollout_gpus = f", {sizes.sampling.gpus} for rollouts" if sizes.sampling else ""
    line(f"{name}: {sizes.model.name} on {plan.gpu.name}: {sizes.gpus} for training{rollout_gpus}")
    parts = sizes.model.parameters
    parameters = [(part, f"{count:,}", "") for part, count in parts.items()]
    if not parts["head"]:
        parameters[-1] = ("head", "0", "tied to the embeddings")
    tokens = [
        (item.name, f"{item.value:,.0f}", f"{item.maximum:,.0f}" if item.maximum else "", item.explanation)
        for item in plan.tokens
    ]
    seconds = [(item.name, f"{item.value:,.3g}", item.explanation) for item in plan.seconds]
    unit = "rollout" if sizes.sampling else "conversation"
    for table in (
        _estimates("parameters", [*parameters, ("all", f"{sizes.model.total:,}", "exact")]),
        _memory("GB on each training GPU", plan.training, plan.gpu.memory),
        _memory("GB on each rollout GPU", plan.rollout, plan.gpu.memory) if plan.rollout else None,
        _estimates(f"tokens per {unit} and per step", tokens, "expected", "at most"),
        _estimates("seconds per step: an estimate of the minimum", seconds),
    ):
        if table:
            console.print("", table, sep="\n")
    if sizes.sampling:
        line("expected shares: " + ", ".join(f"{part} {share:.0%}" for part, share in plan.shares.items()))
    paper = ": the paper's run took about 35 + 15 minutes per step" if sizes.sampling else ""
    line(f"Decoding, waiting for the longest answer and traffic between GPUs are not included{paper}.", "dim")


def _memory(title: str, lines: "list[Estimate]", capacity: float) -> Table:
    total = sum(line.value for line in lines)
    digits = 1 if total > 1e9 else 4  # for the small model
    rows = [(line.name, f"{line.value / 1e9:,.{digits}f}", line.explanation) for line in lines]
    return _estimates(title, [*rows, ("all", f"{total / 1e9:,.{digits}f}", f"of {capacity / 1e9:.0f}")])


def _estimates(title: str, rows: Sequence[tuple[str, ...]], *headers: str) -> Table:
    """Names, numbers and how they are computed; `headers` name the columns of numbers where there are several."""
    numbers = headers or (" ",)
    table = plain_table("", *numbers, "", title=title, numbers=numbers, show_header=bool(headers), pad_edge=True)
    table.title_style, table.columns[-1].style = "bold", "dim"
    for row in rows:
        table.add_row(*row)
    return table


def print_data_counts(counts: Mapping[str, Any]) -> None:
    """Print the counts of training data, a block of lines for each."""
    table = plain_table("what", "value", "count", numbers=["count"], pad_edge=True)
    table.add_row("rows", "", f"{counts['rows']:,}")
    table.add_row("", "with tool calls", f"{counts['with_calls']:,}")
    for name, values in counts.items():
        if name in ("rows", "with_calls", "first_missing"):
            continue
        lengths = name in ("answer_words", "characters", "tokens")
        histogram = all(key.isdigit() for key in values)
        pairs = sorted(values.items(), key=lambda pair: int(pair[0])) if histogram else values.items()
        for number, (value, count) in enumerate(pairs):
            example = f" (such as {counts['first_missing'][value]})" if name == "missing_videos" else ""
            header = "" if number else name.replace("_", " ")
            table.add_row(header, Text(f"{value}{example}"), f"{count:,g}" if lengths else f"{count:,}")
    Console().print(table)


def packages(versions: Mapping[str, str | None], uses: Mapping[str, tuple[str, str]]) -> Table:
    """The version of each package and what it is used for; for a missing one, how to install it."""
    table = plain_table("package", "version", "used for", padding=(0, 2, 0, 0))
    for name, (purpose, extra) in uses.items():
        install = f"; pip install 'paravt-infer[{extra}]'" if extra and not versions[name] else ""
        table.add_row(name, versions[name] or "-", Text(purpose + install))
    return table


def backends(rows: Sequence[tuple[str, bool, str]]) -> Table:
    """Each backend, whether it works here, and a note."""
    table = plain_table("\nbackend", "", "", padding=(0, 2, 0, 0))
    for name, works, note in rows:
        table.add_row(name, Text("yes", style="green") if works else Text("no", style="yellow"), Text(note))
    return table


def _percent(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.1f}"  # NaN: nothing was scored
