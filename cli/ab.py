"""`paravt ab`: the same questions, the same checkpoint, two ways of asking, and whether they differ."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from lmms_tasks.results import EvalItem

WORLD = "sample_world"
BLOCK = 32
"""The arms take turns after so many questions."""


def ab(
    tasks: Annotated[str, typer.Option(help=f"Tasks parted by commas, or {WORLD} for its 500 test questions.")],
    a: Annotated[str, typer.Option(help="Settings of the first arm: dispatch=parallel,evidence=text")],
    b: Annotated[str, typer.Option(help="Settings of the second arm.")],
    out: Annotated[Path, typer.Option(help="The folder of results; naming it again goes on.")] = Path("paravt-ab"),
    model: Annotated[str, typer.Option("--model", "-m", help="Model folder or hub id.", show_default=False)] = "",
    server: Annotated[
        list[str] | None, typer.Option("--server", "-s", help="URL of a server or router. Repeat it for several.")
    ] = None,
    backend: Annotated[str, typer.Option(help="sglang, transformers or openai.", show_default="by what is there")] = "",
    device: Annotated[str, typer.Option(help="cpu, cuda, cuda:1 ... (transformers).", show_default=False)] = "",
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of both arms: --set frames=8. Repeat it.")
    ] = None,
    scorer: Annotated[str, typer.Option(help="paravt, strict, lmms-eval or official.")] = "paravt",
    videos: Annotated[
        list[str] | None,
        typer.Option(metavar="FOLDER", help="Where videos are: FOLDER for all, mlvu:FOLDER for one. Repeat it."),
    ] = None,
    concurrency: Annotated[int, typer.Option(help="Episodes under way at once; 1 measures latency best.")] = 8,
    limit: Annotated[int | None, typer.Option(help="Only the first so many questions a task.")] = None,
    fixture: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Use small generated data, written to DIR, instead of the real.")
    ] = None,
) -> None:
    """Ask the same questions in two ways: accuracy with its interval, latency, tokens, a page with what flipped."""
    from rich.console import Console

    from lmms_tasks.reports.page import write_page
    from lmms_tasks.reports.pairs import save_pairs
    from lmms_tasks.reports.prose import short_arm_names
    from lmms_tasks.reports.statistics import compare
    from lmms_tasks.reports.tables import comparison_table
    from lmms_tasks.results import EvalResult, save_results
    from lmms_tasks.scoring.scorers import get_scorer
    from lmms_tasks.sweep import SweepArm, sweep, write_run_info
    from paravt_cli.options import pairs
    from paravt_infer.engine import EngineSpec
    from paravt_infer.errors import BackendError, SettingsError
    from paravt_infer.settings import Settings

    both = pairs(settings or [])
    arms: dict[str, dict[str, Any]] = {
        name: both | pairs([pair for pair in text.split(",") if pair], option=f"--{name}")
        for name, text in (("a", a), ("b", b))
    }
    made = {name: Settings.make(**values) for name, values in arms.items()}
    judge = get_scorer(scorer)
    items = _items(tasks, out, videos or [], limit, fixture)
    if not items:
        raise SettingsError(f"no task was named; `paravt tasks` lists the benchmarks, and {WORLD} needs no data")
    reached = EngineSpec(
        model=model or None, servers=tuple(server or []), backend=backend or None, device=device or None
    )
    questions = [item.question for item in items]
    plans = [
        SweepArm(questions=questions, settings=made[name], out=out / name, title=f"arm {name}") for name in ("a", "b")
    ]
    answered = sweep(reached, plans, concurrency=concurrency, block=BLOCK)
    rows = {
        name: [EvalResult(item=item, rollout=rollout) for item, rollout in zip(items, rollouts, strict=True)]
        for name, rollouts in zip(("a", "b"), answered, strict=True)
    }
    for name, of_arm in rows.items():
        save_results(of_arm, out / name / "rows.parquet")
    first = rows["a"][0].rollout
    write_run_info(
        out, {"arms": arms, "model": first.backend.model_dump(), "versions": first.versions, "scorer": scorer}
    )
    names = (f"a: {a}", f"b: {b}")
    comparison = compare(rows["a"], rows["b"], judge, names=names)
    (out / "comparison.json").write_text(comparison.model_dump_json(indent=1) + "\n", encoding="utf-8")
    save_pairs(comparison, rows["a"], rows["b"], out / "pairs.parquet")
    with Console(stderr=True).status("drawing the page"):
        title = f"{tasks}: " + " against ".join(short_arm_names((a, b)))
        write_page(comparison, rows["a"], rows["b"], out / "ab.html", title=title)
    Console().print(comparison_table(comparison))
    line = f"pairs, rollouts and the page ab.html are in {out}"
    Console(stderr=True).print(line, highlight=False, markup=False, soft_wrap=True)
    failed = sum(row.failed for of_arm in rows.values() for row in of_arm)
    if failed:
        raise BackendError(f"{failed} episodes failed and are not compared; running this again retries only them")


def _items(tasks: str, out: Path, videos: list[str], limit: int | None, fixture: Path | None) -> "list[EvalItem]":
    """The questions of all tasks."""
    names = [name.strip() for name in tasks.split(",") if name.strip()]
    items: list[EvalItem] = []
    if WORLD in names:
        names.remove(WORLD)
        items += world_items(Path(videos[0]) if videos else out / "videos")[:limit]
    if names:
        from lmms_tasks.videos import parse_video_roots
        from paravt_cli.eval import lmms_eval_modules, task_files

        _, evaluation = lmms_eval_modules()
        include, roots = task_files(videos, fixture)
        items += evaluation.load_items(names, parse_video_roots(roots), include=include, limit=limit)
    return items


def world_items(folder: Path) -> "list[EvalItem]":
    """The sample world's fixed test set as items; its videos are written to `folder` where they are not there yet."""
    from lmms_tasks.results import EvalItem
    from paravt_training.world.questions import fixed_test_set
    from paravt_training.world.render import write_videos

    asked = fixed_test_set(str(folder))
    write_videos({question.question.video: question.scene for question in asked})
    return [
        EvalItem(
            task=WORLD,
            question=one.question,
            gold=one.answer,
            groups={"kind": one.question.kind, "type": one.type, "seen by 8 frames": str(one.seen_by_overview[8])},
        )
        for one in asked
    ]
