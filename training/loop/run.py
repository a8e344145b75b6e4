"""What every training run begins with: its folder, the network, the optimiser, and where it left off."""

import argparse
import ctypes
import json
import os
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import nn

from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.model import load_pretrained
from paravt_training.loop.checkpoint import CheckpointManager, TrainingProgress
from paravt_training.loop.export import START_FILE
from paravt_training.model.attention import use_packed_attention
from paravt_training.model.distributed import DistributedContext, join_processes, leave_processes, shard
from paravt_training.model.encode import Encoder
from paravt_training.model.packing import Learner, empty_row
from paravt_training.recipe import RunRecipe

R = TypeVar("R", bound=RunRecipe)


class TrainingRun(ABC, Generic[R]):
    """One run; `paravt_training.sft` and `paravt_training.grpo.trainer` say what its steps are.

    Args:
        recipe: what to do.
        place: this process.
        resume: go on from the newest checkpoint in `recipe.out`.

    Raises:
        ModelError: the model that the run starts from cannot be had.
        SettingsError: `recipe.out` holds a run, and `resume` is off; or it does not fit the recipe.
    """

    def __init__(self, recipe: R, place: DistributedContext, *, resume: bool = False):
        self.recipe, self.place = recipe, place
        self.out = Path(recipe.out)
        kept = recipe.checkpoints
        self.checkpoints = CheckpointManager(
            self.out / "checkpoints", place, keep=kept.keep, keep_every=kept.keep_every
        )
        done = self.checkpoints.steps()
        if done and not resume:
            raise SettingsError(f"{self.out}: holds a run of {done[-1]} steps; use --resume, or another out")
        self.bf16 = recipe.precision == "bf16" or (recipe.precision == "auto" and place.device.type == "cuda")
        if self.bf16 and not place.sharded:
            raise SettingsError("recipe precision: bf16 needs a GPU or torchrun; on one CPU process use auto or fp32")
        if recipe.threads:
            torch.set_num_threads(recipe.threads)
        self.start = self._start()
        if place.leads:
            facts = {"start": self.start, "recipe": recipe.model_dump()}
            try:
                self.out.mkdir(parents=True, exist_ok=True)
                (self.out / START_FILE).write_text(json.dumps(facts, indent=1) + "\n")
            except OSError as error:
                raise SettingsError(f"{self.out}: cannot be written ({error.strerror}); name another out") from None
        self.encoder = Encoder(self.start)
        torch.manual_seed(recipe.seed + place.rank)
        if place.device.type == "cpu":
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # costs a tenth of a step
        self.learner = self._network()
        self.optimiser = torch.optim.AdamW(
            parameter_groups(self.learner, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )
        self.progress = TrainingProgress()
        if done:
            self.progress = self.checkpoints.load(self.learner, self.optimiser, done[-1])
        features = 3 * self.encoder.files.image_processor.temporal_patch_size * self.encoder.patch**2
        self.spare = empty_row(self.encoder.chat.tokenizer.eos_token_id, features)
        """A row for a process that has none left."""

    def _start(self) -> str:
        """The folder or id of the model that the run starts from."""
        return self.recipe.model.start

    def _network(self) -> Learner:
        """The model that the run starts from, in shards where there are several processes."""
        place = self.place
        model: Any = load_pretrained(self.start, "AutoModelForImageTextToText", dtype=torch.float32)
        use_packed_attention(model)
        if self.recipe.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        network: Learner = Learner(model).to(place.device)
        if place.sharded:
            shard(network, place, bf16=self.bf16)
        # Layers are computed again in training mode alone. Nothing else hangs on it: Qwen3-VL has no dropout.
        network.train(self.recipe.gradient_checkpointing)
        return network

    def set_rates(self, rate: float, vision_rate: float) -> None:
        """The learning rates of the next step, the vision tower's apart."""
        for group in self.optimiser.param_groups:
            group["lr"] = vision_rate if group["vision"] else rate

    def save_if_due(self, *, last: bool) -> None:
        """A checkpoint where the recipe wants one after this step; the last step always has one."""
        if last or self.progress.step % self.recipe.checkpoints.every == 0:
            self.checkpoints.save(self.learner, self.optimiser, self.progress)

    @abstractmethod
    def run(self) -> Path | None:
        """Train to the last step and export the model; returns its folder."""


def parameter_groups(learner: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters by whether they are the vision tower's and whether they decay (matrices do)."""
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for name, parameter in learner.named_parameters():
        groups.setdefault((".visual." in name, parameter.ndim > 1), []).append(parameter)
    return [
        {"params": params, "weight_decay": weight_decay if decays else 0.0, "vision": vision}
        for (vision, decays), params in sorted(groups.items(), key=lambda item: item[0])
    ]


def release_memory() -> None:
    """Hand freed memory back to the system, where the C library can (glibc).

    Rows and batches of ever other sizes, made on several threads, leave holes in its heaps that it keeps: a small GRPO
    run came to 5 GB in 40 steps, of which 1.2 were in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def train_here(trainer: "type[TrainingRun[R]]", recipe: R, *, resume: bool = False) -> Path | None:
    """Run a recipe in this process, or its part of it under torchrun; returns the exported model's folder."""
    place = join_processes()
    try:
        folder = trainer(recipe, place, resume=resume).run()
    except BaseException:
        if place.world == 1:  # leaving waits for the others, and they for this one's next step
            leave_processes()
        raise
    leave_processes()
    return folder


def under_torchrun(prog: str, about: str, load: Callable[..., R], train: Callable[..., Path | None]) -> None:
    """What torchrun starts: the command line of one process.

    A process that fails says so and is gone at once, so that torchrun ends the others, who wait for it. SIGTERM, with
    which torchrun ends them, stops it as Ctrl-C does: servers that it started end with it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog=prog, description=about)
    parser.add_argument("--recipe", required=True, help="a YAML file, or a name in training/recipes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one key")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    given = parser.parse_args()
    try:
        train(load(given.recipe, given.set), resume=given.resume)
    except ParavtError as error:
        rank = os.environ.get("RANK", "0")
        print(f"{prog}: {error}" if rank == "0" else f"{prog}, process {rank}: {error}", file=sys.stderr, flush=True)
        os._exit(1)
    except (SystemExit, KeyboardInterrupt):
        os._exit(143)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
