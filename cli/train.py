"""`paravt train`: supervised fine-tuning and reinforcement learning by a recipe, and the export of a run."""

import os
from pathlib import Path
from typing import Annotated

import typer

from paravt_cli import options as shared

app = typer.Typer(help="Train a model, plan a run, plot and export its results.", no_args_is_help=True)


@app.callback()
def _set_threads() -> None:
    # Idle threads that spin take the cores from the processes that prepare data. torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command("sft")
def sft(recipe: shared.RecipeOption, set_: shared.RecipeSetOption = None, resume: shared.ResumeOption = False) -> None:
    """Fine-tune on conversations in one process, by a recipe such as mini_sft or qwen3vl_8b_sft.

    On several GPUs: torchrun -m paravt_training.sft --recipe ...
    """
    from paravt_training.recipe import load_recipe

    chosen = load_recipe(recipe, set_ or [])
    from paravt_training.sft import train

    print(train(chosen, resume=resume))


@app.command("grpo")
def grpo(recipe: shared.RecipeOption, set_: shared.RecipeSetOption = None, resume: shared.ResumeOption = False) -> None:
    """Train on rewards (PARA-GRPO and its ablations) in one process, by a recipe such as mini_paragrpo or paragrpo_8b.

    On several GPUs: torchrun -m paravt_training.grpo --recipe ...
    """
    from paravt_training.grpo.recipe import load_grpo_recipe

    chosen = load_grpo_recipe(recipe, set_ or [])
    from paravt_training.grpo.trainer import train

    print(train(chosen, resume=resume))


@app.command("export")
def export(
    run: Annotated[Path, typer.Argument(help="Folder of a run (out in its recipe).")],
    out: Annotated[Path, typer.Argument(help="Folder to write.")],
    step: Annotated[int | None, typer.Option(help="Step of the checkpoint.", show_default="the newest")] = None,
    dtype: Annotated[str, typer.Option(help="Data type of the weights: bf16 or fp32.")] = "bf16",
) -> None:
    """Write a run's checkpoint as a folder that transformers and SGLang load."""
    from paravt_training.loop.export import export_run

    print(export_run(run, out, step=step, dtype=dtype))
