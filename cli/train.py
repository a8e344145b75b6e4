"""`paravt train`: plan, run, plot and export training runs."""

import json
import os
from pathlib import Path
from typing import Annotated

import typer

from paravt_cli import options as shared
from paravt_cli import tables
from paravt_infer.console import stderr

app = typer.Typer(help="Plan, run, plot and export training runs.", no_args_is_help=True)


@app.callback()
def _set_threads() -> None:
    # Idle threads that spin take the cores from the processes that prepare data. torch reads this when it is imported.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


@app.command("sft")
def sft(recipe: shared.RecipeOption, set_: shared.RecipeSetOption = None, resume: shared.ResumeOption = False) -> None:
    """Fine-tune on conversations by a recipe such as mini_sft or qwen3vl_8b_sft, in one process.

    On several GPUs: torchrun -m paravt_training.sft --recipe ...
    """
    from paravt_training.recipe import load_recipe

    chosen = load_recipe(recipe, set_ or [])
    from paravt_training.sft import train

    print(train(chosen, resume=resume))


@app.command("grpo")
def grpo(recipe: shared.RecipeOption, set_: shared.RecipeSetOption = None, resume: shared.ResumeOption = False) -> None:
    """Train on rewards (PARA-GRPO and its ablations) by a recipe such as mini_paragrpo or paragrpo_8b, in one process.

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


@app.command("plan")
def plan(
    recipe: shared.RecipeOption,
    set_: shared.RecipeSetOption = None,
    gpu: Annotated[str, typer.Option(help="Kind of GPU: a100, h100 or h200.")] = "h100",
    gpus: Annotated[
        int | None, typer.Option(min=1, help="Number of training GPUs.", show_default="the recipe's, or 1")
    ] = None,
    as_json: shared.JsonOption = False,
) -> None:
    """Show what a run needs: parameters, memory per GPU, tokens per step, shares of time; and what does not fit.

    Loads no model. --json is in bytes, tokens and seconds.
    """

    with stderr().status("reading the recipe and the model's configuration"):
        from paravt_training.plan.estimate import make_plan
        from paravt_training.plan.sizes import load_any_recipe, run_sizes

        chosen = load_any_recipe(recipe, set_ or [])
        estimates = make_plan(run_sizes(chosen, gpus=gpus), gpu)
    if not as_json:
        tables.print_plan(chosen.name, estimates)
    else:
        print(json.dumps({"recipe": chosen.name} | estimates.to_json(), indent=1))


@app.command("report")
def report(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN", help="Folders of runs (out in their recipes).")],
    out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write.")] = Path("report"),
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Merge runs of one recipe: their mean, with a band from lowest to highest.")
    ] = False,
) -> None:
    """Plot runs together as PNG files and one HTML page: dynamics, tag closure, format and accuracy, tool use."""
    with stderr().status("drawing"):
        from paravt_training.report.page import write_report

        files = write_report(runs, out, seeds=seeds)
    for file in files:
        print(file)
