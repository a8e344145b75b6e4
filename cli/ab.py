"""`paravt ab`: the same questions and checkpoint under two settings, and whether the results differ."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paravt_cli import options as shared
from paravt_cli.benchmarks import SAMPLE_WORLD, load_task_items
from paravt_infer.console import say, stderr
from paravt_infer.errors import BackendError, SettingsError
from paravt_infer.files import write_text_atomic

BLOCK = 32
"""The arms take turns after this many questions."""


def ab(
    tasks: Annotated[str, typer.Option(help=f"Comma-separated tasks, or {SAMPLE_WORLD} for its 500 test questions.")],
    a: Annotated[str, typer.Option(help="Settings of the first arm: dispatch=parallel,evidence=text")],
    b: Annotated[str, typer.Option(help="Settings of the second arm.")],
    out: shared.ResultsOption = Path("paravt-ab"),
    model: shared.ModelOption = "",
    server: shared.ServerOption = None,
    backend: shared.BackendOption = "",
    device: shared.DeviceOption = "",
    settings: shared.SetOption = None,
    scorer: shared.ScorerOption = "paravt",
    videos: shared.VideosOption = None,
    concurrency: shared.ConcurrencyOption = 8,
    limit: shared.LimitOption = None,
    fixture: shared.FixtureOption = None,
) -> None:
    """Ask the same questions under two settings and compare accuracy, latency and tokens.

    Prints a table; writes a Parquet file of pairs and an HTML page of the questions whose result changed.
    Each --set applies to both arms. Latency is most reliable with --concurrency 1.
    """
    from lmms_tasks.reports.page import write_page
    from lmms_tasks.reports.pairs import save_pairs
    from lmms_tasks.reports.prose import short_arm_names
    from lmms_tasks.reports.statistics import compare
    from lmms_tasks.reports.tables import comparison_table
    from lmms_tasks.results import EvalResult, save_results
    from lmms_tasks.scoring.scorers import get_scorer
    from lmms_tasks.sweep import SweepArm, sweep, write_run_info
    from paravt_infer.engine import EngineSpec
    from paravt_infer.settings import Settings

    both = shared.parse_settings(settings)
    arms = {
        name: both | shared.parse_settings(shared.split_names(text), option=f"--{name}")
        for name, text in (("a", a), ("b", b))
    }
    chosen = {name: Settings.make(**values) for name, values in arms.items()}
    judge = get_scorer(scorer)
    world = Path(videos[0]) if videos else out / "videos"
    items = load_task_items(shared.split_names(tasks), videos or [], fixture=fixture, limit=limit, world=world)
    if not items:
        raise SettingsError(f"no task was named; `paravt tasks` lists the benchmarks, and {SAMPLE_WORLD} needs no data")
    spec = EngineSpec(model=model or None, servers=tuple(server or []), backend=backend or None, device=device or None)
    questions = [item.question for item in items]
    plans = [SweepArm(questions=questions, settings=chosen[name], out=out / name, title=f"arm {name}") for name in arms]
    rows = {
        name: [EvalResult(item=item, rollout=rollout) for item, rollout in zip(items, rollouts, strict=True)]
        for name, rollouts in zip(arms, sweep(spec, plans, concurrency=concurrency, block=BLOCK), strict=True)
    }
    for name, results in rows.items():
        save_results(results, out / name / "rows.parquet")
    first = rows["a"][0].rollout
    facts = {"arms": arms, "model": first.backend.model_dump(), "versions": first.versions, "scorer": scorer}
    write_run_info(out, facts)
    comparison = compare(rows["a"], rows["b"], judge, names=(f"a: {a}", f"b: {b}"))
    write_text_atomic(out / "comparison.json", comparison.model_dump_json(indent=1) + "\n")
    save_pairs(comparison, rows["a"], rows["b"], out / "pairs.parquet")
    with stderr().status("drawing the page"):
        title = f"{tasks}: " + " against ".join(short_arm_names((a, b)))
        write_page(comparison, rows["a"], rows["b"], out / "ab.html", title=title)
    Console().print(comparison_table(comparison))
    say(f"pairs, rollouts and the page ab.html are in {out}")
    failed = sum(row.failed for results in rows.values() for row in results)
    if failed:
        raise BackendError(f"{failed} episodes failed and are not compared; running this again retries only them")
