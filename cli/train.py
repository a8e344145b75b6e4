"""`paravt train`: supervised fine-tuning by a recipe, and a run's checkpoint as a model folder."""

import os
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(help="Train a model.", no_args_is_help=True)


@app.command("sft")
def sft(
    recipe: Annotated[str, typer.Option(help="A YAML file, or one that ships: mini_sft, qwen3vl_8b_sft.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, such as batch=8.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in out.")] = False,
) -> None:
    """Fine-tune by a recipe in one process; for many GPUs: torchrun -m training.sft --recipe ..."""
    # Waiting threads that spin take the cores from the processes that make data. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from training.recipe import load_recipe

    chosen = load_recipe(recipe, set_ or [])
    from training.sft import train

    print(train(chosen, resume=resume))


@app.command("export")
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run: its recipe's out.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    step: Annotated[int | None, typer.Option(help="Of which checkpoint.", show_default="the newest")] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
) -> None:
    """Write a run's checkpoint as a folder that transformers and SGLang load."""
    from training.export import export_run

    print(export_run(run, out, step=step, dtype=dtype))


if __name__ == "__main__":
    app()
