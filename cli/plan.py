"""`paravt train plan`: what a recipe's run needs, before a model is loaded."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.console import Console
    from rich.table import Table

    from paravt_training.plan.estimate import Estimate, TrainingPlan


def plan(
    recipe: Annotated[str, typer.Option(help="A YAML file, or one that ships: qwen3vl_8b_sft.")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change one key, such as row_tokens=8192.")
    ] = None,
    gpu: Annotated[str, typer.Option(help="What GPUs there are: a100, h100 or h200.")] = "h100",
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="How many of them train.", show_default="the recipe's, or 1"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON, in bytes, tokens and seconds.")] = False,
) -> None:
    """Say what a run needs: parameters, memory a GPU, tokens a step, shares of time; and what does not fit."""
    import json

    from rich.console import Console

    with Console(stderr=True).status("reading the recipe and the model's configuration"):
        from paravt_training.plan.estimate import make_plan
        from paravt_training.plan.sizes import load_any_recipe, run_sizes

        chosen = load_any_recipe(recipe, set_ or [])
        made = make_plan(run_sizes(chosen, gpus=gpus), gpu)
    if as_json:
        print(json.dumps({"recipe": chosen.name} | made.to_json(), indent=1))
        return
    _print(chosen.name, made, Console())


def _print(name: str, plan: "TrainingPlan", console: "Console") -> None:
    """What does not fit, then a table a subject."""
    from rich.text import Text

    shape = plan.shape

    def say(line: str, style: str = "") -> None:
        console.print(Text(line, style=style), soft_wrap=True)

    for line in plan.unfit:
        say(f"does not fit: {line}", "bold red")
    if not plan.unfit:
        say("all of it fits", "bold green")
    rolling = f", {shape.sampling.gpus} for rollouts" if shape.sampling else ""
    say(f"{name}: {shape.model.name} on {plan.gpu.name}: {shape.gpus} for training{rolling}")

    parts = shape.model.parameters
    counts = [(part, f"{count:,}", "") for part, count in parts.items()]
    if not parts["head"]:
        counts[-1] = ("head", "0", "the embeddings serve as one")
    tokens = [
        (line.name, f"{line.value:,.0f}", f"{line.maximum:,.0f}" if line.maximum else "", line.explanation)
        for line in plan.tokens
    ]
    seconds = [(line.name, f"{line.value:,.3g}", line.explanation) for line in plan.seconds]
    tables = [
        _table("parameters", [*counts, ("all", f"{shape.model.total:,}", "exact")]),
        _memory("GB on each GPU that trains", plan.training, plan.gpu.memory),
        _memory("GB on each GPU for rollouts", plan.rollout, plan.gpu.memory) if plan.rollout else None,
        _table(
            f"tokens of a {'rollout' if shape.sampling else 'conversation'}, and of a step",
            tokens,
            "expected",
            "at most",
        ),
        _table("seconds a step, at the least: an estimate", seconds),
    ]
    for table in filter(None, tables):
        console.print()
        console.print(table)
    if shape.sampling:
        shares = ", ".join(f"{part} {share:.0%}" for part, share in plan.shares.items())
        say(f"expected shares: {shares}")
    known = ": the paper's run took some 35 + 15 minutes a step" if shape.sampling else ""
    say(f"Decoding videos, waiting for the longest answer and traffic between GPUs come on top{known}.", "dim")


def _memory(title: str, lines: "list[Estimate]", there: float) -> "Table":
    total = sum(line.value for line in lines)
    digits = 1 if total > 1e9 else 4  # the small model's
    rows = [(line.name, f"{line.value / 1e9:,.{digits}f}", line.explanation) for line in lines]
    return _table(title, [*rows, ("all", f"{total / 1e9:,.{digits}f}", f"of {there / 1e9:.0f}")])


def _table(title: str, rows: "Sequence[tuple[str, ...]]", *numbers: str) -> "Table":
    """A table of names, numbers and how they are made; `numbers` are the columns' heads where they need any."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", title_style="bold", box=None, show_header=bool(numbers))
    table.add_column()
    for head in numbers or ("",):
        table.add_column(head, justify="right", no_wrap=True)
    table.add_column(style="dim")
    for row in rows:
        table.add_row(*row)
    return table
