"""`paravt show`: a saved rollout drawn as `paravt ask` draws a running one."""

from typing import Annotated

import typer


def show(
    file: Annotated[str, typer.Argument(help="A file that --save or --out wrote (.json, .jsonl or .parquet).")],
    pick: Annotated[
        str, typer.Option("--id", help="Which one of several: its id, its question's id, or its number.")
    ] = "",
    turns: Annotated[bool, typer.Option("--turns", help="Also print every turn's text.")] = False,
) -> None:
    """Draw a saved rollout: the timeline, the windows, each sub-agent's evidence, the answer."""
    from rich.console import Console

    from paravt_cli import view
    from paravt_infer.errors import SettingsError
    from paravt_infer.rollout_files import load_rollouts

    console = Console()
    rollouts = list(load_rollouts(file))
    if not rollouts:
        raise SettingsError(f"{file}: holds no rollout")
    if not pick and len(rollouts) > 1:
        console.print(view.listing(rollouts))
        console.print(f"{len(rollouts)} rollouts; draw one with --id", style="dim")
        return
    named = [rollout for rollout in rollouts if pick in (rollout.id, rollout.question.id)]
    numbered = [rollout for number, rollout in enumerate(rollouts, 1) if pick == str(number)]
    chosen = (named or numbered) if pick else rollouts
    if not chosen:
        raise SettingsError(f"{file}: holds no rollout {pick!r}; leave --id out to see which there are")
    console.print(view.draw(chosen[0], width=console.width))
    if turns:
        console.print(view.transcript(chosen[0]))
