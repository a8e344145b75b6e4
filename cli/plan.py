"""`paravt train plan`: what a recipe's run needs, computed without loading a model."""

from typing import Annotated

import typer

from paravt_cli import options as shared


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
    import json
    from dataclasses import asdict

    from paravt_cli import tables
    from paravt_infer.console import stderr

    with stderr().status("reading the recipe and the model's configuration"):
        from paravt_training.plan.estimate import make_plan
        from paravt_training.plan.sizes import load_any_recipe, run_sizes

        chosen = load_any_recipe(recipe, set_ or [])
        found = make_plan(run_sizes(chosen, gpus=gpus), gpu)
    if not as_json:
        tables.print_plan(chosen.name, found)
        return
    values = asdict(found)
    if found.shape.sampling:
        values["shape"]["sampling"]["settings"] = found.shape.sampling.settings.model_dump()
    print(json.dumps({"recipe": chosen.name} | values, indent=1))
