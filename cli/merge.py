"""`paravt merge`: the shards of an evaluation as one folder, scored as a whole."""

from pathlib import Path
from typing import Annotated

import typer

from paravt_cli import tables
from paravt_cli.benchmarks import load_lmms_eval
from paravt_infer.errors import BackendError


def merge(
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER", help="Folders written by `paravt eval --shard`.")],
    out: Annotated[Path, typer.Option(help="Folder to write.")],
) -> None:
    """Join the shards of an evaluation and score the whole."""
    from lmms_tasks.results import load_results

    _, evaluation = load_lmms_eval()
    summaries = evaluation.merge(folders, out)
    tables.print_results(summaries, list(load_results(out)))
    failed = sum(summary.failed for summary in summaries.values())
    if failed:
        raise BackendError(f"{failed} episodes failed and are not scored; run their shards again")
