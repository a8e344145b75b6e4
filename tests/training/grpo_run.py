"""GRPO recipes small enough for a test, and a policy that says what a test tells it to.

As a module it runs a recipe with that policy: ``python -m grpo_run --recipe FILE``, alone or as torchrun starts it.
"""

import asyncio
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import yaml
from forms import call_text
from processes import ROOT
from scripted import ScriptedBackend

from paravt_infer.backends.base import Generation, Request
from training.grpo import Trainer
from training.grpo_recipe import GrpoRecipe, load_grpo_recipe
from training.parallel import join_processes, leave_processes

MINI = ROOT / "paravt_infer/checkpoint"
"""A small model that knows the sample world's forms; its rollouts differ in their rewards."""
RECIPE: dict[str, Any] = {
    "name": "test",
    "data": {"kind": "world"},
    "steps": 3,
    "prompts": 2,
    "group": 2,
    "temperature": 1.0,
    "learning_rate": 1e-3,
    "settings": {"max_new_tokens": 60, "summary_tokens": 24, "max_pixels": 4096},
    "gating": {"budgets": [4, 8]},
    "row_tokens": 2048,
    "threads": 1,
    "rollouts": {"backend": "transformers", "staleness": 0, "keep_every": 1},
    "gpus": {"train": 1},
    "export_dtype": "fp32",
}
LOGPROB = -6.65
"""What the policy says of each of its tokens; a mini model at its start thinks about as much of any."""


def write_recipe(folder: Path, start: Path, **changes: Any) -> Path:
    """A recipe whose run is in `folder`/run; mappings among `changes` are laid over the recipe's own."""
    path = folder / "recipe.yaml"
    values = RECIPE | {"out": str(folder / "run"), "model": {"start": str(start)}}
    for key, value in changes.items():
        values[key] = RECIPE[key] | value if isinstance(value, dict) and key in RECIPE else value
    path.write_text(yaml.safe_dump(values))
    return path


def recipe(folder: Path, start: Path, **changes: Any) -> GrpoRecipe:
    return load_grpo_recipe(write_recipe(folder, start, **changes))


def talk(request: Request) -> str:
    """Two calls and then a letter, or for every other seed a letter at once: what is said follows from the request."""
    seed = request.sampling.seed or 0
    if not request.affinity:
        return "a red circle."
    if seed % 2 and not any(message.role == "assistant" for message in request.messages):
        return "<think>I must look closely</think>" + call_text(1, 4) + call_text(6, 9)
    return f"<think>I have seen enough now</think><answer>{'ABCD'[seed % 4]}</answer>"


class Policy(ScriptedBackend):
    """Says what `say` makes of a request, under the version of the weights that it was given last."""

    name = "policy"
    takes_tensors = True

    def __init__(self, model: Path, say: Callable[[Request], str | Exception] = talk):
        super().__init__(model, turns=[])
        self.say = say
        self.version: str | None = None
        self.updates: list[tuple[str, Path | None]] = []

    async def generate(self, request: Request) -> Generation:
        assert self.chat is not None
        self.requests.append(request)
        await asyncio.sleep(0)
        said = self.say(request)
        if isinstance(said, Exception):
            raise said
        end = [self.chat.end_ids[0]]
        for stop in request.sampling.stop:  # it ends at the first one, with its turn open
            head, found, _ = said.partition(stop)
            said, end = head + found, [] if found else end
        ids = self.chat.text_ids(said) + end
        visual = sum((frame.width // 32) * (frame.height // 32) for frame in request.frames)
        return Generation(
            ids=ids,
            text=self.chat.decode(ids),
            finish="stop",
            prompt_tokens=len(request.ids) - len(request.frames) + visual,
            visual_tokens=visual,
            logprobs=[LOGPROB] * len(ids),
            weight_version=self.version,
        )

    async def update_weights(
        self, version: str, *, folder: Path | None = None, tensors: Mapping[str, Any] | None = None
    ) -> None:
        self.version = version
        self.updates.append((version, folder))


def main() -> None:
    file = sys.argv[sys.argv.index("--recipe") + 1]
    chosen = load_grpo_recipe(file)
    try:
        Trainer(chosen, join_processes(), backend=Policy(Path(chosen.model.start))).run()
    finally:
        leave_processes()


if __name__ == "__main__":
    main()
