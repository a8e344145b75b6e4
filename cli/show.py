"""`paravt show`: a saved rollout, drawn as `paravt ask` draws a running one."""

from typing import Annotated

import typer
from rich.console import Console

from paravt_infer.errors import SettingsError


def show(
    file: Annotated[str, typer.Argument(help="File written by --save or --out (.json, .jsonl or .parquet).")],
    pick: Annotated[
        str, typer.Option("--id", help="Rollout to draw: its id, its question's id or its number.", show_default=False)
    ] = "",
    turns: Annotated[bool, typer.Option("--turns", help="Also print the text of every turn.")] = False,
) -> None:
    """Draw a saved rollout: the timeline, the windows, each sub-agent's evidence, the answer."""

    from paravt_cli import view
    from paravt_infer.rollout_files import load_rollouts

    console = Console()
    rollouts = list(load_rollouts(file))
    if not rollouts:
        raise SettingsError(f"{file}: holds no rollout")
    if not pick and len(rollouts) > 1:
        console.print(view.listing(rollouts))
        console.print(f"{len(rollouts)} rollouts; draw one with --id", style="dim")
        return
    by_id = [rollout for rollout in rollouts if pick in (rollout.id, rollout.question.id)]
    by_number = [rollout for number, rollout in enumerate(rollouts, 1) if pick == str(number)]
    chosen = (by_id or by_number) if pick else rollouts
    if not chosen:
        raise SettingsError(f"{file}: holds no rollout {pick!r}; leave out --id to list them")
    console.print(view.draw(chosen[0], width=console.width))
    if turns:
        console.print(view.transcript(chosen[0]))
