"""`paravt train`: fine-tuning and reinforcement learning by a recipe, and what comes before and after a run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from paravt_cli.plan import plan
from paravt_cli.report import report

app = typer.Typer(help="Train a model.", no_args_is_help=True)


@app.command("sft")
def sft(
    recipe: Annotated[str, typer.Option(help="A YAML file, or one that ships: mini_sft, qwen3vl_8b_sft.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, such as batch=8.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in out.")] = False,
) -> None:
    """Fine-tune by a recipe in one process; for many GPUs: torchrun -m paravt_training.sft --recipe ..."""
    # Waiting threads that spin take the cores from the processes that make data. Read when torch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from paravt_training.recipe import load_recipe

    chosen = load_recipe(recipe, set_ or [])
    from paravt_training.sft import train

    print(train(chosen, resume=resume))


@app.command("grpo")
def grpo(
    recipe: Annotated[str, typer.Option(help="A YAML file, or one that ships: mini_paragrpo, paragrpo_8b.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, such as group=4.")
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the newest checkpoint in out.")] = False,
) -> None:
    """Learn by rewards (PARA-GRPO and its ablations) in one process; many GPUs: torchrun -m paravt_training.grpo ..."""
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    from paravt_training.grpo.recipe import load_grpo_recipe

    chosen = load_grpo_recipe(recipe, set_ or [])
    from paravt_training.grpo.trainer import train

    print(train(chosen, resume=resume))


@app.command("export")
def export(
    run: Annotated[Path, typer.Argument(help="The folder of a run: its recipe's out.")],
    out: Annotated[Path, typer.Argument(help="The folder to write.")],
    step: Annotated[int | None, typer.Option(help="Of which checkpoint.", show_default="the newest")] = None,
    dtype: Annotated[str, typer.Option(help="bf16 or fp32.")] = "bf16",
) -> None:
    """Write a run's checkpoint as a folder that transformers and SGLang load."""
    from paravt_training.loop.export import export_run

    print(export_run(run, out, step=step, dtype=dtype))


app.command("plan")(plan)
app.command("report")(report)

if __name__ == "__main__":
    app()
