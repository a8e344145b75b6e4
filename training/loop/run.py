"""What all training runs share: how one is prepared or resumed from its recipe, and how its processes start and end."""

import argparse
import ctypes
import json
import os
import signal
import sys
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import torch
from torch import nn

from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.files import write_text_atomic
from paravt_infer.model import load_pretrained
from paravt_training.loop.checkpoint import CheckpointManager, TrainingProgress
from paravt_training.loop.export import START_FILE, export_model
from paravt_training.loop.metrics import MetricsLog, ProgressDisplay
from paravt_training.model.attention import use_packed_attention
from paravt_training.model.distributed import DistributedContext, DType, init_distributed, shard, shutdown_distributed
from paravt_training.model.encode import Encoder
from paravt_training.model.packing import Learner, padding_row
from paravt_training.recipe import RunRecipe

R = TypeVar("R", bound=RunRecipe)


@dataclass(eq=False)
class TrainingRun(ABC, Generic[R]):
    """One run; its steps are defined by `paravt_training.sft` and `paravt_training.grpo.trainer`."""

    recipe: R
    distributed: DistributedContext
    start: str
    """Folder or hub id of the model that the run started from."""
    encoder: Encoder
    learner: Learner
    optimiser: torch.optim.Optimizer
    checkpoints: CheckpointManager
    progress: TrainingProgress

    @classmethod
    def from_recipe(cls, recipe: R, distributed: DistributedContext, *, resume: bool = False) -> Self:
        """Prepare a run: check its folder, write run.json, load the model and, to resume, the newest checkpoint.

        Raises:
            ModelError: the model that the run starts from could not be loaded.
            SettingsError: `recipe.out` holds a run and `resume` is off, or that run does not fit the recipe.
        """
        out, kept = Path(recipe.out), recipe.checkpoints
        checkpoints = CheckpointManager(out / "checkpoints", distributed, keep=kept.keep, keep_every=kept.keep_every)
        done = checkpoints.steps()
        if done and not resume:
            raise SettingsError(f"{out}: holds a run of {done[-1]} steps; use --resume, or choose another out")
        if compute_dtype(recipe, distributed) == "bf16" and not distributed.sharded:
            raise SettingsError("recipe precision: bf16 needs a GPU or torchrun; on one CPU process use auto or fp32")
        if recipe.threads:
            torch.set_num_threads(recipe.threads)
        start = cls.start_model(recipe, distributed)
        if distributed.is_main:
            record = {"start": start, "recipe": recipe.model_dump()}
            write_text_atomic(out / START_FILE, json.dumps(record, indent=1) + "\n")
        encoder = Encoder(start)
        torch.manual_seed(recipe.seed + distributed.rank)
        if distributed.device.type == "cpu":
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # it costs a tenth of a step
        learner = load_learner(start, recipe, distributed)
        optimiser = torch.optim.AdamW(
            parameter_groups(learner, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )
        progress = checkpoints.load(learner, optimiser, done[-1]) if done else TrainingProgress()
        return cls(recipe, distributed, start, encoder, learner, optimiser, checkpoints, progress)

    @classmethod
    def start_model(cls, recipe: R, distributed: DistributedContext) -> str:
        """Folder or hub id of the model that the run starts from."""
        return recipe.model.start

    def __post_init__(self) -> None:
        self.out = Path(self.recipe.out)
        self.padding_row = padding_row(self.encoder.chat.tokenizer.eos_token_id, self.encoder.patch_features)

    def set_learning_rates(self, rate: float, vision_rate: float) -> None:
        """Set the learning rates of the next step; the vision tower has its own."""
        for group in self.optimiser.param_groups:
            group["lr"] = vision_rate if group["vision"] else rate

    def save_if_due(self, *, last: bool) -> None:
        """Write a checkpoint if the recipe wants one after this step; the last step always gets one."""
        if last or self.progress.step % self.recipe.checkpoints.every == 0:
            self.checkpoints.save(self.learner, self.optimiser, self.progress)

    def run(self) -> Path | None:
        """Train to the last step and export the model; returns its folder on the main process."""
        step = self.progress.step
        steps: int = self.recipe.steps  # type: ignore[attr-defined]  # a key of GRPO, the sum of phases of SFT
        with ExitStack() as stack:
            log = display = None
            if self.distributed.is_main:
                log = stack.enter_context(MetricsLog(self.out, step=step))
                display = ProgressDisplay(steps=steps, step=step)
                if step:
                    display.say(f"resuming from step {step} of {steps}")
            self.train(log, display, stack)
        folder = self.out / "export"
        return export_model(self.learner, self.start, folder, self.distributed, dtype=self.recipe.export_dtype)

    @abstractmethod
    def train(self, log: MetricsLog | None, display: ProgressDisplay | None, stack: ExitStack) -> None:
        """Train to the last step.

        Args:
            log: of the main process; None on the others.
            display: likewise; to be entered into `stack` after data workers are forked, as it prints from a thread,
                whose lock a fork would copy.
            stack: closed when the run ends.
        """


def compute_dtype(recipe: RunRecipe, distributed: DistributedContext) -> DType:
    """What layers compute in."""
    auto: DType = "bf16" if distributed.device.type == "cuda" else "fp32"
    return auto if recipe.precision == "auto" else recipe.precision


def load_learner(start: str, recipe: RunRecipe, distributed: DistributedContext) -> Learner:
    """The model that a run starts from, sharded if there are several processes."""
    model: Any = load_pretrained(start, "AutoModelForImageTextToText", dtype=torch.float32)
    use_packed_attention(model)
    if recipe.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    learner: Learner = Learner(model).to(distributed.device)
    if distributed.sharded:
        shard(learner, distributed, compute_dtype(recipe, distributed))
    # Gradient checkpointing works in training mode only. The mode changes nothing else: Qwen3-VL has no dropout.
    learner.train(recipe.gradient_checkpointing)
    return learner


def parameter_groups(learner: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters grouped by whether they belong to the vision tower and whether they decay (matrices do)."""
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for name, parameter in learner.named_parameters():
        groups.setdefault((".visual." in name, parameter.ndim > 1), []).append(parameter)
    return [
        {"params": params, "weight_decay": weight_decay if decays else 0.0, "vision": vision}
        for (vision, decays), params in sorted(groups.items(), key=lambda item: item[0])
    ]


def release_memory() -> None:
    """Return freed memory to the system, where the C library can (glibc).

    Rows and batches of varying sizes, made on several threads, leave holes in its heaps that it keeps: a small GRPO
    run grew to 5 GB in 40 steps, of which 1.2 GB were in use.
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def run_recipe(trainer: "type[TrainingRun[R]]", recipe: R, *, resume: bool = False) -> Path | None:
    """Run a recipe in this process, or this process's share of it under torchrun.

    Returns:
        The exported model's folder; None outside the main process.
    """
    distributed = init_distributed()
    try:
        folder = trainer.from_recipe(recipe, distributed, resume=resume).run()
    except BaseException:
        if distributed.world_size == 1:  # with others, shutting down would wait for them, and they for this process
            shutdown_distributed()
        raise
    shutdown_distributed()
    return folder


def main(prog: str, description: str, load: Callable[..., R], train: Callable[..., Path | None]) -> None:
    """The command line of one training process, as torchrun starts it.

    A process that fails prints why and exits at once, so that torchrun ends the others, which wait for it. SIGTERM,
    with which torchrun ends them, stops it as Ctrl-C does, so that servers it started end with it.
    """
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--recipe", required=True, help="a YAML file, or the name of a bundled recipe")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one key")
    parser.add_argument("--resume", action="store_true", help="resume from the newest checkpoint")
    options = parser.parse_args()
    try:
        train(load(options.recipe, options.set), resume=options.resume)
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
