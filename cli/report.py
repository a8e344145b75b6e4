"""`paravt train report`: runs as the paper's pictures, and as one page."""

from pathlib import Path
from typing import Annotated

import typer


def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN...", help="Folders of runs: their recipes' out.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="The folder to write.")] = Path("report"),
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Draw runs of one recipe as one: their mean, in a band from least to most.")
    ] = False,
) -> None:
    """Draw runs together: dynamics, tag closure, format against accuracy, tool use, as PNG files and one HTML page."""
    from rich.console import Console

    with Console(stderr=True).status("drawing"):
        from paravt_training.report.page import write_report

        files = write_report(runs, out, seeds=seeds)
    for file in files:
        print(file)
