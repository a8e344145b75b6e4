"""`paravt table1`: results laid beside the paper's published numbers."""

from pathlib import Path
from typing import Annotated

import typer


def table1(
    results: Annotated[list[Path], typer.Argument(metavar="RESULTS...", help="Folders that `paravt eval` wrote.")],
    scorer: Annotated[str, typer.Option(help="Which scorer reads the answers.")] = "paravt",
    every: Annotated[bool, typer.Option("--all", help="Beside every model of Table 1, not ParaVT alone.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON: the lines of each folder.")] = False,
) -> None:
    """Lay results beside the paper's Table 1, with the difference and its interval."""
    import json

    from rich.console import Console

    from lmms_tasks.reports.published import COLUMNS, SOURCE
    from lmms_tasks.reports.table1 import Table1Row, compare_to_paper
    from lmms_tasks.reports.tables import table1_table
    from lmms_tasks.results import group_by_task, index_by_question, load_results
    from lmms_tasks.scoring.scorers import get_scorer
    from paravt_infer.errors import SettingsError

    rule = get_scorer(scorer)
    laid: dict[str, list[Table1Row]] = {}
    for folder in results:
        rows = group_by_task(index_by_question(load_results(folder), where=str(folder)).values())
        laid[str(folder)] = compare_to_paper(rows, rule)
        if others := sorted(rows.keys() - COLUMNS.keys()):
            Console(stderr=True).print(f"{folder}: not in Table 1: {', '.join(others)}", style="dim", markup=False)
        if not laid[str(folder)]:
            raise SettingsError(f"{folder}: holds no task of Table 1; it has {', '.join(COLUMNS)}")
    if as_json:
        lines = {name: [line.model_dump() for line in found] for name, found in laid.items()}
        print(json.dumps({"source": SOURCE, "scorer": rule.name, "results": lines}, indent=1))
        return
    for name, found in laid.items():
        Console().print(table1_table(found, title=f"{name}, scorer {rule.name}", all_models=every), highlight=False)
