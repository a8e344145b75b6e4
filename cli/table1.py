"""`paravt table1`: results next to the paper's published numbers."""

from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from paravt_cli import options as shared
from paravt_infer.console import say
from paravt_infer.errors import SettingsError


def table1(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS", help="Folders written by `paravt eval`.")],
    scorer: shared.ScorerOption = "paravt",
    every: Annotated[bool, typer.Option("--all", help="Compare with every model of Table 1, not only ParaVT.")] = False,
    as_json: shared.JsonOption = False,
) -> None:
    """Compare results with the paper's Table 1: the differences and their intervals."""
    import json

    from lmms_tasks import table1_beside as paper
    from lmms_tasks.items import load_rows
    from lmms_tasks.scoring.scorers import get_scorer
    from lmms_tasks.table1_numbers import COLUMNS, SOURCE

    rule = get_scorer(scorer)
    compared: dict[str, list[paper.Table1Row]] = {}
    for folder in results:
        rows = paper.by_task(load_rows(folder), where=str(folder))
        compared[str(folder)] = paper.compare_to_paper(rows, rule)
        if others := sorted(rows.keys() - COLUMNS.keys()):
            say(f"{folder}: not in Table 1: {', '.join(others)}", style="dim")
        if not compared[str(folder)]:
            raise SettingsError(f"{folder}: holds no task of Table 1; it has {', '.join(COLUMNS)}")
    if as_json:
        lines = {name: [line.model_dump() for line in found] for name, found in compared.items()}
        print(json.dumps({"source": SOURCE, "scorer": rule.name, "results": lines}, indent=1))
        return
    for name, found in compared.items():
        Console().print(paper.table(found, title=f"{name}, scorer {rule.name}", every=every), highlight=False)
