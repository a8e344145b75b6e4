"""`paravt eval`: benchmarks through lmms-eval, resumable."""

from pathlib import Path
from typing import Annotated

import typer

from paravt_cli import options as shared
from paravt_cli import tables
from paravt_cli.benchmarks import load_lmms_eval, task_files
from paravt_infer.console import say
from paravt_infer.errors import BackendError


def evaluate(
    tasks: Annotated[str, typer.Option(help="Comma-separated tasks or groups: paravt_table1, paravt_mlvu ...")],
    model: shared.ModelOption = "",
    server: shared.ServerOption = None,
    backend: shared.BackendOption = "",
    device: shared.DeviceOption = "",
    out: shared.ResultsOption = Path("paravt-results"),
    protocol: shared.ProtocolOption = "paravt",
    dispatch: shared.DispatchOption = "parallel",
    evidence: shared.EvidenceOption = "text",
    frames: shared.FramesOption = 64,
    settings: shared.SetOption = None,
    system_prompt: shared.SystemPromptOption = "",
    videos: shared.VideosOption = None,
    concurrency: shared.ConcurrencyOption = 64,
    limit: shared.LimitOption = None,
    shard: Annotated[
        str, typer.Option(metavar="I/N", help="Run only part I of N; join with `paravt merge`.", show_default=False)
    ] = "",
    fixture: shared.FixtureOption = None,
    reader: shared.ReaderOption = "pyav",
) -> None:
    """Run benchmarks. Every episode is saved as it finishes; run again with the same --out to resume."""
    adapter_module, evaluation = load_lmms_eval()
    include, roots = task_files(videos or [], fixture)
    values = dict(protocol=protocol, dispatch=dispatch, evidence=evidence, frames=frames)
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
        **(values | shared.parse_settings(settings)),
    )
    part = evaluation.Shard.parse(shard) if shard else None
    names = shared.split_names(tasks)
    outcome = evaluation.evaluate(adapter, names, include=include, limit=limit, shard=part)
    tables.print_results(outcome.summaries, adapter.results)
    for task, values in outcome.lmms_eval.items():
        if task not in outcome.summaries:
            metrics = (f"{name} {value:.4g}" for name, value in values.items() if isinstance(value, float))
            print(f"{task}: {', '.join(metrics)}")
    say(f"results, rollouts and settings are in {out}")
    if outcome.failed:
        raise BackendError(f"{outcome.failed} episodes failed and are not scored; running this again retries only them")
