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

    from lmms_tasks.reports.published import SOURCE, TABLE1_TITLES
    from lmms_tasks.reports.table1 import Table1Row, compare_to_paper
    from lmms_tasks.reports.tables import table1_table
    from lmms_tasks.results import group_by_task, index_by_question, load_results
    from lmms_tasks.scoring.scorers import get_scorer

    rule = get_scorer(scorer)
    compared: dict[str, list[Table1Row]] = {}
    for folder in results:
        by_task = group_by_task(index_by_question(load_results(folder), where=str(folder)).values())
        compared[str(folder)] = compare_to_paper(by_task, rule)
        if others := sorted(by_task.keys() - TABLE1_TITLES.keys()):
            say(f"{folder}: not in Table 1: {', '.join(others)}", style="dim")
        if not compared[str(folder)]:
            raise SettingsError(f"{folder}: holds no task of Table 1; it has {', '.join(TABLE1_TITLES)}")
    if as_json:
        lines = {name: [line.model_dump() for line in found] for name, found in compared.items()}
        print(json.dumps({"source": SOURCE, "scorer": rule.name, "results": lines}, indent=1))
        return
    for name, found in compared.items():
        Console().print(table1_table(found, title=f"{name}, scorer {rule.name}", all_models=every), highlight=False)
