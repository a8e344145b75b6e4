"""`paravt train report`: training runs as the paper's figures, and as one page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs (out in their recipes).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("report"),
    seeds: Annotated[
        bool,
        typer.Option("--seeds", help="Merge runs of one recipe: their mean, and a band from minimum to maximum."),
    ] = False,
) -> None:
    """Plot runs together as PNG files and one HTML page: dynamics, tag closure, format and accuracy, tool use."""
    from paravt_infer.console import stderr

    with stderr().status("drawing"):
        from paravt_training.report.page import write_report

        files = write_report(runs, out, seeds=seeds)
    for file in files:
        print(file)
