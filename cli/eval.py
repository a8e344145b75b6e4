"""`paravt eval`, `paravt merge`: benchmarks through lmms-eval, resumable, and shards of a sweep put together."""

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from lmms_tasks.results import EvalResult
    from lmms_tasks.scoring.summary import Summary
    from paravt_infer.rollout import Usage

OUT = "paravt-results"


def evaluate(
    tasks: Annotated[str, typer.Option(help="Tasks or groups, parted by commas: paravt_table1, paravt_mlvu ...")],
    model: Annotated[str, typer.Option("--model", "-m", help="Model folder or hub id.", show_default=False)] = "",
    server: Annotated[
        list[str] | None, typer.Option("--server", "-s", help="URL of a server or router. Repeat it for several.")
    ] = None,
    backend: Annotated[str, typer.Option(help="sglang, transformers or openai.", show_default="by what is there")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ... (transformers).", show_default=False)] = "",
    out: Annotated[Path, typer.Option(help="The folder of results; naming it again goes on.")] = Path(OUT),
    protocol: Annotated[str, typer.Option(help="paravt, tools, reasoning or direct.")] = "paravt",
    dispatch: Annotated[str, typer.Option(help="parallel or sequential.")] = "parallel",
    evidence: Annotated[str, typer.Option(help="text (sub-agents' words) or frames.")] = "text",
    frames: Annotated[int, typer.Option(help="Frames the overview may have.")] = 64,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="Any other setting: --set max_calls=3. Repeat it.")
    ] = None,
    system_prompt: Annotated[
        str, typer.Option(help="A file whose text replaces the protocol's system prompt.", show_default=False)
    ] = "",
    videos: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Where videos are: FOLDER for all, mlvu:FOLDER for one. Repeat it."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once.")] = 64,
    limit: Annotated[int | None, typer.Option(help="Only the first so many questions a task.")] = None,
    shard: Annotated[str, typer.Option(help="Only part I of N, as I/N; then `paravt merge`.", show_default=False)] = "",
    fixture: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use small generated data, written to DIR, instead of the real.")
    ] = None,
    reader: Annotated[str, typer.Option(help="What decodes videos: pyav, decord or torchcodec.")] = "pyav",
) -> None:
    """Run benchmarks: every episode is kept as it ends, and naming the same --out goes on where it stopped."""
    from rich.console import Console

    from paravt_cli.options import pairs
    from paravt_infer.errors import BackendError

    adapter_module, evaluation = lmms_eval_modules()
    include, roots = task_files(videos or [], fixture)
    adapter = adapter_module.ParavtModel(
        model=model or None,
        server=server or [],
        backend=backend or None,
        device=device or None,
        reader=reader,
        concurrency=concurrency,
        out=str(out),
        system_prompt=system_prompt,
        videos=roots,
        **{"protocol": protocol, "dispatch": dispatch, "evidence": evidence, "frames": frames, **pairs(settings or [])},
    )
    part = evaluation.Shard.parse(shard) if shard else None
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    outcome = evaluation.evaluate(adapter, names, include=include, limit=limit, shard=part)
    _print_tables(outcome.summaries, adapter.results)
    others = {task: values for task, values in outcome.lmms_eval.items() if task not in outcome.summaries}
    for task, values in others.items():
        figures = {name: value for name, value in values.items() if isinstance(value, float)}
        print(f"{task}: " + ", ".join(f"{name} {value:.4g}" for name, value in figures.items()))
    line = f"results, rollouts and settings are in {out}"
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)
    if outcome.failed:
        raise BackendError(f"{outcome.failed} episodes failed and are not scored; running this again retries only them")


def merge(
    folders: Annotated[list[Path], typer.Argument(help="The folders that the shards wrote.")],
    out: Annotated[Path, typer.Option(help="The folder to write.")],
) -> None:
    """Put the shards of a sweep together and score the whole."""
    from lmms_tasks.results import load_results
    from paravt_infer.errors import BackendError

    _, evaluation = lmms_eval_modules()
    summaries = evaluation.merge(folders, out)
    _print_tables(summaries, list(load_results(out)))
    failed = sum(summary.failed for summary in summaries.values())
    if failed:
        raise BackendError(f"{failed} episodes failed and are not scored; run their shards again")


def task_files(videos: Sequence[str], fixture: Path | None) -> tuple[Path, list[str]]:
    """The include path of this project's tasks and where their videos are: the real ones, or a fixture's."""
    from lmms_tasks.tasks import INCLUDE

    if fixture is None:
        return INCLUDE, list(videos)
    from paravt_cli.tasks import write_fixture

    folder = fixture.absolute()
    return write_fixture(folder), [*videos, str(folder)]


def lmms_eval_modules() -> tuple[Any, Any]:
    """The modules that need lmms-eval.

    Raises:
        SettingsError: it is not installed.
    """
    import logging
    import os

    from paravt_infer.errors import SettingsError

    os.environ.setdefault("TQDM_DISABLE", "1")  # progress is shown here
    try:
        from loguru import logger

        from lmms_tasks import adapter, evaluate
    except ImportError as error:
        raise SettingsError(f"{error.name} is not installed: pip install 'paravt-infer[eval]'") from None
    logger.remove()  # lmms-eval's own log; what matters of it is told here
    logging.getLogger("accelerate").setLevel(logging.ERROR)
    return adapter, evaluate


def _print_tables(summaries: "dict[str, Summary]", rows: "Sequence[EvalResult]") -> None:
    from rich.console import Console

    console = Console()
    console.print(summary_table(summaries))
    costs = cost_table(rows)
    if costs.row_count:
        console.print(costs)


def summary_table(summaries: "dict[str, Summary]") -> "Table":
    """One line a task, and one for each value of its breakdowns."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("task", overflow="fold")
    table.add_column("measure", no_wrap=True)
    for column in ("%", "questions", "no answer", "failed"):
        table.add_column(column, justify="right", no_wrap=True)

    def percent(value: float) -> str:
        return "-" if math.isnan(value) else f"{value:.1f}"  # no question of it was scored

    for task, summary in summaries.items():
        counts = (str(summary.count), str(summary.no_answer), str(summary.failed))
        table.add_row(task, summary.headline.name, percent(summary.headline.value), *counts, style="bold")
        for name, value in summary.metrics.items():
            if name != summary.headline.name:
                table.add_row("", name, percent(value))
        for key, groups in summary.groups.items():
            for name, group in groups.items():
                table.add_row(f"  {key} {name}", "", percent(group.score), str(group.count))
    return table


def cost_table(rows: "Sequence[EvalResult]") -> "Table":
    """What a question of each task cost, over the episodes that did not fail: means, and the spread of seconds."""
    from statistics import fmean

    import numpy as np
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    table.add_column("a question costs", overflow="fold")
    for column in ("tokens in", "tokens out", "calls", "seconds p50", "p95"):
        table.add_column(column, justify="right", no_wrap=True)
    spent: dict[str, list[Usage]] = {}
    for row in rows:
        if not row.failed:
            spent.setdefault(row.item.task, []).append(row.rollout.usage)
    for task, usages in spent.items():
        tokens = (fmean(one.prompt_tokens for one in usages), fmean(one.output_tokens for one in usages))
        p50, p95 = np.percentile([one.seconds for one in usages], [50, 95])
        calls = fmean(one.calls for one in usages)
        table.add_row(task, *(f"{count:,.0f}" for count in tokens), f"{calls:.2f}", f"{p50:.1f}", f"{p95:.1f}")
    return table
