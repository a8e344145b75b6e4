"""`paravt rescore`: stored results scored again; no episode is run."""

from pathlib import Path
from typing import Annotated

import typer

from paravt_cli import tables
from paravt_infer.console import delayed_progress
from paravt_infer.errors import SettingsError
from paravt_infer.files import write_text_atomic

DEFAULT_SCORERS = ("paravt", "strict", "lmms-eval")


def rescore(
    results: Annotated[Path, typer.Argument(help="Folder of results, or one file of them (.parquet).")],
    scorer: Annotated[
        list[str] | None,
        typer.Option(
            help="paravt, strict, lmms-eval, official or judge. Repeatable.", show_default=", ".join(DEFAULT_SCORERS)
        ),
    ] = None,
    server: Annotated[str | None, typer.Option(help="Chat endpoint of the judge: http://HOST:PORT/v1.")] = None,
    model: Annotated[
        str | None, typer.Option(help="The judge's model.", show_default="the first that the endpoint lists")
    ] = None,
    out: Annotated[Path | None, typer.Option(help="Also write everything to this JSON file.")] = None,
) -> None:
    """Score results again with several scorers and show the questions on which they disagree.

    paravt: the option, text or span that the answer commits to.
    strict: only its exact form, in an answer block.
    lmms-eval: the functions of lmms-eval's own tasks.
    official: the benchmark authors' rule where it differs.
    judge: a language model.
    """
    from lmms_tasks.results import load_results
    from lmms_tasks.scoring.rescore import rescore as score_again
    from lmms_tasks.scoring.scorers import get_scorer

    names = list(dict.fromkeys(scorer or DEFAULT_SCORERS))
    if server and not {"judge", "official"} & {*names}:
        raise SettingsError("--server names a judge, which none of the scorers asks; add --scorer judge")
    scorers = [get_scorer(name, server=server, model=model) for name in names]
    rows = list(load_results(results))
    with delayed_progress("scoring", total=len(rows) * len(scorers)) as advance:
        found = score_again(rows, scorers, done=advance)
    if out:
        write_text_atomic(out, found.model_dump_json(indent=1) + "\n")
    tables.print_scores(found)
