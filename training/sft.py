"""Supervised fine-tuning (the cold start): one process on a CPU or a GPU, or many under torchrun (FSDP2).

``paravt train sft --recipe mini_sft`` runs in one process; ``torchrun --nproc-per-node 8 -m paravt_training.sft
--recipe FILE`` shards the model.
"""

import math
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from paravt_training.data.loading import StepBatch, step_batches
from paravt_training.data.parquet import ParquetSource
from paravt_training.data.sources import ConversationSource, WorldSource
from paravt_training.loop.held_out import HeldOutSet
from paravt_training.loop.metrics import MetricsLog, ProgressDisplay
from paravt_training.loop.run import TrainingRun, main, run_recipe
from paravt_training.model.distributed import DistributedContext, clip_gradients
from paravt_training.model.packing import padded_rows, supervised_loss
from paravt_training.model.random_checkpoint import build_mini
from paravt_training.recipe import MINI, Phase, SftRecipe, WorldData, load_recipe

LEFT_OUT = "left_out.txt"
"""Lists the conversations that could not be used, with the reason."""


def learning_rate_at(phase: Phase, step: int) -> float:
    """The learning rate of a phase's step `step` (from 0): a linear warm-up, then a cosine.

    >>> phase = Phase(steps=100, learning_rate=1.0, warmup=0.1)
    >>> [round(learning_rate_at(phase, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    warmup_steps = round(phase.steps * phase.warmup)
    if step < warmup_steps:
        return phase.learning_rate * (step + 1) / warmup_steps
    elapsed = (step - warmup_steps) / max(1, phase.steps - warmup_steps)
    return phase.learning_rate * (phase.final + (1 - phase.final) * (1 + math.cos(math.pi * elapsed)) / 2)


@dataclass(eq=False)
class SftTrainer(TrainingRun[SftRecipe]):
    """One run of supervised fine-tuning; made by `from_recipe`."""

    held_out: HeldOutSet | None = None

    @classmethod
    def from_recipe(cls, recipe: SftRecipe, distributed: DistributedContext, *, resume: bool = False) -> Self:
        run = super().from_recipe(recipe, distributed, resume=resume)
        if recipe.held_out.every:
            run.held_out = HeldOutSet(recipe, run.encoder, distributed)
        return run

    @classmethod
    def start_model(cls, recipe: SftRecipe, distributed: DistributedContext) -> str:
        """The recipe's; the main process makes the mini model."""
        if recipe.model.start != MINI:
            return recipe.model.start
        folder = Path(recipe.out) / "start"
        assert isinstance(recipe.data, WorldData)  # checked by the recipe
        if distributed.is_main and not (folder / "tokenizer.json").exists():
            build_mini(folder, recipe.model.mini, frame=recipe.data.frame, seed=recipe.seed)
        distributed.barrier()
        return str(folder)

    def source(self) -> ConversationSource:
        data = self.recipe.data
        if isinstance(data, WorldData):
            return WorldSource(data)
        return ParquetSource(data, self.encoder.files.multiple)

    def train(self, log: MetricsLog | None, display: ProgressDisplay | None, stack: ExitStack) -> None:
        recipe, progress = self.recipe, self.progress
        stream = step_batches(
            recipe,
            self.source(),
            self.encoder,
            step=progress.step,
            first=progress.position,
            rank=self.distributed.rank,
            world=self.distributed.world_size,
        )
        monitor = None
        if log is not None and display is not None:
            monitor = SftMonitor(log, stack.enter_context(display), self.out / LEFT_OUT)
        while progress.step < recipe.steps:
            self._step(stream, monitor)

    def _step(self, stream: Iterator[StepBatch], monitor: "SftMonitor | None") -> None:
        recipe, progress = self.recipe, self.progress
        started = time.monotonic()
        batch = next(stream)
        waited = time.monotonic() - started
        phase, number = recipe.phase_at(progress.step)
        rate = learning_rate_at(phase, number)
        if batch.dropped:
            with (self.out / LEFT_OUT).open("a") as file:
                file.writelines(f"step {batch.step + 1}: {reason}\n" for reason in batch.dropped)
        values = self.learn(batch, rate, rate * phase.vision_rate)
        progress.step, progress.position = batch.step + 1, batch.after
        last = progress.step == recipe.steps
        if self.held_out is not None and (last or progress.step % recipe.held_out.every == 0):
            values |= self.held_out.measure(self.learner, self.padding_row)
        if monitor is not None:
            seconds = time.monotonic() - started
            values |= {"phase": phase.name, "learning_rate": rate, "data_wait": round(waited, 4)}
            values |= {"tokens_per_second": round(values["tokens"] / seconds), "seconds": round(seconds, 4)}
            monitor.log_step(progress.step, values)
        self.save_if_due(last=last)

    def learn(self, batch: StepBatch, rate: float, vision_rate: float) -> dict[str, Any]:
        """One step on the batches of all processes: the mean loss over all learned tokens, and the gradient norm."""
        distributed = self.distributed
        self.set_learning_rates(rate, vision_rate)
        sizes = (sum(len(row.targets) for row in batch.rows), sum(len(row.ids) for row in batch.rows))
        learned, tokens, samples, left_out = distributed.sum(*sizes, batch.samples, len(batch.dropped))
        loss_sum = 0.0
        for row in padded_rows(batch.rows, self.padding_row, distributed, minimum=1):
            loss, _ = supervised_loss(self.learner, row)
            # FSDP averages gradients over the processes: times their number, they are summed.
            (loss * (distributed.world_size / max(1.0, learned))).backward()
            loss_sum += float(loss.detach())
        norm = clip_gradients(self.learner.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        (total,) = distributed.sum(loss_sum)
        return {
            "loss": total / max(1.0, learned),
            "gradient_norm": norm,
            "tokens": int(tokens),
            "learned_tokens": int(learned),
            "samples": int(samples),
            "left_out": int(left_out),
        }


class SftMonitor:
    """Logs and shows the steps of a run.

    Args:
        left_out: the file that lists conversations that could not be used.
    """

    def __init__(self, log: MetricsLog, display: ProgressDisplay, left_out: Path):
        self.log, self.display, self.left_out = log, display, left_out
        self.has_warned = False

    def log_step(self, step: int, values: dict[str, Any]) -> None:
        """Log one step's metrics, show where the run is, and report left-out data and held-out measures."""
        self.log.write(step, values)
        line = f"{values['phase']} step {step}/{self.display.steps}  loss {values['loss']:.4f}"
        self.display.update(step, values["tokens"], line)
        if values["left_out"] and not self.has_warned:
            self.has_warned = True
            self.display.say(f"left out {values['left_out']} of this step's conversations; see {self.left_out}")
        measured = {name.removeprefix("held_out/"): v for name, v in values.items() if name.startswith("held_out/")}
        if measured:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in measured.items())
            self.display.say(f"held out at step {step}: {parts}")


def train(recipe: SftRecipe, *, resume: bool = False) -> Path | None:
    """Run a recipe; see `run_recipe`."""
    return run_recipe(SftTrainer, recipe, resume=resume)


if __name__ == "__main__":
    main("paravt_training.sft", "Supervised fine-tuning by a recipe.", load_recipe, train)
