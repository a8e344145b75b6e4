"""`paravt rescore`: stored results scored again, without running anything."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from lmms_tasks.scoring.rescore import TaskScores

DEFAULT = ("paravt", "strict", "lmms-eval")
SHOWN = 20


def rescore(
    results: Annotated[Path, typer.Argument(help="A folder of results, or one file of them (.parquet).")],
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            help="paravt, strict, lmms-eval, official or judge; give it again for each. "
            f"By default {', '.join(DEFAULT)}."
        ),
    ] = None,
    server: Annotated[str | None, typer.Option(help="The judge's chat endpoint, http://HOST:PORT/v1.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The endpoint's name of the judge; by default the first it lists.")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Write everything here too, as JSON.")] = None,
) -> None:
    """Score results again under several scorers: the spread, and the questions on which they disagree.

    paravt: the option, text or span that the answer commits to. strict: its exact form, in an answer block.
    lmms-eval: the functions of lmms-eval's own tasks. official: the benchmark authors' own rule where it differs.
    judge: a language model.
    """
    from rich.console import Console
    from rich.progress import Progress

    from lmms_tasks.results import load_results
    from lmms_tasks.scoring.rescore import rescore as score_again
    from lmms_tasks.scoring.scorers import get_scorer
    from paravt_infer.errors import SettingsError
    from paravt_infer.files import write_text_atomic

    names = list(dict.fromkeys(scorer or DEFAULT))
    if server and not {"judge", "official"} & {*names}:
        raise SettingsError("--server is the judge's, and no scorer asks one; add --scorer judge")
    scorers = [get_scorer(name, server=server, model=model) for name in names]
    rows = list(load_results(results))
    with Progress(console=Console(stderr=True), transient=True) as progress:
        bar = progress.add_task("scoring", total=len(rows) * len(scorers))
        found = score_again(rows, scorers, done=lambda: progress.advance(bar))
    if out:
        write_text_atomic(out, found.model_dump_json(indent=1) + "\n")
    console = Console()
    for task in found.tasks:
        _print_task(console, task)
    for name, facts in found.scorers.items():
        short = ", ".join(f"{key} {value}" for key, value in facts.items() if "\n" not in value)
        if short:
            console.print(f"{name}: {short}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _print_task(console: "Console", task: "TaskScores") -> None:
    from rich.table import Table

    table = Table(title=task.task, title_justify="left", box=None, pad_edge=False)
    table.add_column("scorer")
    for column in ("headline", "percent", "rows", "no answer", "failed", "unscored"):
        table.add_column(column, justify="left" if column == "headline" else "right")
    for name, summary in task.summaries.items():
        counts = (summary.count, summary.no_answer, summary.failed, summary.unscored)
        percent = "-" if math.isnan(summary.headline.value) else f"{summary.headline.value:.1f}"
        table.add_row(name, summary.headline.name, percent, *map(str, counts))
    console.print(table)
    if task.spread is not None:
        console.print(f"spread: {task.spread:.1f} points", highlight=False)
    for lines in task.faults.values():
        more = f" (and {len(lines) - 1} more rows)" if len(lines) > 1 else ""
        console.print(lines[0] + more, highlight=False, markup=False, soft_wrap=True)
    if task.disagreements:
        console.print(_disagreements(task))
    console.print()


def _disagreements(task: "TaskScores") -> "Table":
    from rich.markup import escape
    from rich.table import Table

    total = len(task.disagreements)
    shown = f", {SHOWN} of them shown" if total > SHOWN else ""
    table = Table(title=f"scorers disagree on {total}{shown}", title_justify="left", box=None, pad_edge=False)
    for column in ("question", "right", "answered"):
        table.add_column(column, overflow="fold")
    for name in task.summaries:
        table.add_column(name, justify="right")
    for one in task.disagreements[:SHOWN]:
        said = "" if one.answer is None else " ".join(one.answer.split())
        said = said if len(said) <= 60 else f"{said[:40].rstrip()} ... {said[-15:].lstrip()}"
        scores = ("-" if score is None else f"{score:.2f}".rstrip("0").rstrip(".") for score in one.scores.values())
        table.add_row(escape(one.id), escape(one.gold), escape(said), *scores)
    return table
