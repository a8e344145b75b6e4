"""Supervised fine-tuning: the cold start. One process on a CPU or a GPU, or many under torchrun (FSDP2).

``paravt train sft --recipe mini_sft`` runs here; ``torchrun --nproc-per-node 8 -m paravt_training.sft --recipe FILE``
shards.
"""

import math
import time
from pathlib import Path
from typing import Any

from paravt_training.data.loading import StepBatch, step_batches
from paravt_training.data.parquet import ParquetSource
from paravt_training.data.sources import ConversationSource, WorldSource
from paravt_training.loop.export import export_model
from paravt_training.loop.held_out import HeldOutSet
from paravt_training.loop.metrics import MetricsLog
from paravt_training.loop.run import TrainingRun, train_here, under_torchrun
from paravt_training.model.distributed import DistributedContext, clip
from paravt_training.model.mini import build_mini
from paravt_training.model.packing import supervised_loss
from paravt_training.recipe import MINI, Phase, SftRecipe, WorldData, load_recipe

LEFT_OUT = "left_out.txt"
"""Says of each conversation that could not be used why."""


def rate_at(phase: Phase, step: int) -> float:
    """The learning rate of a phase's step `step` (from 0): a linear rise, then a cosine.

    >>> phase = Phase(steps=100, learning_rate=1.0, warmup=0.1)
    >>> [round(rate_at(phase, step), 3) for step in (0, 9, 10, 55, 99)]
    [0.1, 1.0, 1.0, 0.5, 0.0]
    """
    rise = round(phase.steps * phase.warmup)
    if step < rise:
        return phase.learning_rate * (step + 1) / rise
    way = (step - rise) / max(1, phase.steps - rise)
    return phase.learning_rate * (phase.final + (1 - phase.final) * (1 + math.cos(math.pi * way)) / 2)


class SftTrainer(TrainingRun[SftRecipe]):
    """One run of supervised fine-tuning; see `TrainingRun` for its arguments."""

    def __init__(self, recipe: SftRecipe, place: DistributedContext, *, resume: bool = False):
        super().__init__(recipe, place, resume=resume)
        self.held_out = HeldOutSet(recipe, self.encoder, place) if recipe.held_out.every else None
        self.left_out = 0

    def _start(self) -> str:
        """The mini model is made by the first process."""
        if self.recipe.model.start != MINI:
            return super()._start()
        folder = self.out / "start"
        assert isinstance(self.recipe.data, WorldData)  # the recipe sees to it
        if self.place.leads and not (folder / "tokenizer.json").exists():
            build_mini(folder, self.recipe.model.mini, frame=self.recipe.data.frame, seed=self.recipe.seed)
        self.place.wait()
        return str(folder)

    def source(self) -> ConversationSource:
        data = self.recipe.data
        if isinstance(data, WorldData):
            return WorldSource(data)
        return ParquetSource(data, self.encoder.files.multiple)

    def run(self) -> Path | None:
        recipe, place, progress = self.recipe, self.place, self.progress
        metrics = MetricsLog(self.out, steps=recipe.steps, step=progress.step) if place.leads else None
        stream = step_batches(
            recipe,
            self.source(),
            self.encoder,
            step=progress.step,
            first=progress.position,
            rank=place.rank,
            world=place.world,
        )
        if metrics is None:
            self._steps(stream, None)
        else:
            with metrics:
                if progress.step:
                    metrics.say(f"going on from step {progress.step}, conversation {progress.position}")
                self._steps(stream, metrics)
        return export_model(self.learner, self.start, self.out / "export", place, dtype=recipe.export_dtype)

    def _steps(self, stream: Any, metrics: MetricsLog | None) -> None:
        recipe, progress = self.recipe, self.progress
        while progress.step < recipe.steps:
            began = time.monotonic()
            portion: StepBatch = next(stream)
            waited = time.monotonic() - began
            phase, number = recipe.phase_at(progress.step)
            rate = rate_at(phase, number)
            if portion.dropped:
                with (self.out / LEFT_OUT).open("a") as file:
                    file.writelines(f"step {portion.step + 1}: {reason}\n" for reason in portion.dropped)
            values = self.learn(portion, rate, rate * phase.vision_rate)
            progress.step, progress.position = portion.step + 1, portion.after
            due = recipe.held_out.every and progress.step % recipe.held_out.every == 0
            if self.held_out is not None and (due or progress.step == recipe.steps):
                values |= self.held_out.measure(self.learner, self.spare)
            if metrics is not None:
                seconds = time.monotonic() - began
                speed = {"tokens_per_second": round(values["tokens"] / seconds), "seconds": round(seconds, 4)}
                told = {"phase": phase.name, "learning_rate": rate, "data_wait": round(waited, 4)}
                metrics.write(progress.step, values | told | speed)
                metrics.tell(progress.step, phase=phase.name, loss=values["loss"], tokens=int(values["tokens"]))
                self._report(values, metrics)
            self.save_if_due(last=progress.step == recipe.steps)

    def learn(self, portion: StepBatch, rate: float, vision_rate: float) -> dict[str, Any]:
        """One step on all processes' portions: the mean loss of all learned tokens, and its gradient's norm."""
        place = self.place
        self.set_rates(rate, vision_rate)
        sizes = (sum(len(row.targets) for row in portion.rows), sum(len(row.ids) for row in portion.rows))
        learned, tokens, samples, left_out = place.sums(*sizes, portion.samples, len(portion.dropped))
        loss_sum = 0.0
        for number in range(max(1, place.most(len(portion.rows)))):
            row = (portion.rows[number] if number < len(portion.rows) else self.spare).to(place.device)
            loss, _ = supervised_loss(self.learner, row)
            # Sharded gradients are averaged over the processes: times their number, they are summed.
            (loss * (place.world / max(1.0, learned))).backward()
            loss_sum += float(loss.detach())
        norm = clip(self.learner.parameters(), self.recipe.clip)
        self.optimiser.step()
        self.optimiser.zero_grad()
        (total,) = place.sums(loss_sum)
        return {
            "loss": total / max(1.0, learned),
            "gradient_norm": norm,
            "tokens": int(tokens),
            "learned_tokens": int(learned),
            "samples": int(samples),
            "left_out": int(left_out),
        }

    def _report(self, values: dict[str, Any], metrics: MetricsLog) -> None:
        """Say what was left out, and what was measured."""
        if values["left_out"] and not self.left_out:
            metrics.say(f"left out {values['left_out']} of this step's conversations; why is in {self.out / LEFT_OUT}")
        self.left_out += values["left_out"]
        measured = {name.removeprefix("held_out/"): v for name, v in values.items() if name.startswith("held_out/")}
        if measured:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in measured.items())
            metrics.say(f"held out at step {self.progress.step}: {parts}")


def train(recipe: SftRecipe, *, resume: bool = False) -> Path | None:
    """Run a recipe in this process, or its part of it under torchrun; returns the exported model's folder."""
    return train_here(SftTrainer, recipe, resume=resume)


if __name__ == "__main__":
    under_torchrun("paravt_training.sft", "Supervised fine-tuning by a recipe.", load_recipe, train)
