"""Supervised fine-tuning: the cold start. One process on a CPU or a GPU, or many under torchrun (FSDP2).

``paravt train sft --recipe mini_sft`` runs here; ``torchrun --nproc-per-node 8 -m training.sft --recipe FILE`` shards.
"""

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import torch
from torch import nn

from paravt_infer.errors import SettingsError
from paravt_infer.model import load_part
from training.attention import use_packed_attention
from training.checkpoint import Checkpoints, Progress
from training.encode import Encoder
from training.export import START_FILE, export_model
from training.heldout import HeldOutSet
from training.loading import Portion, portions
from training.metrics import Metrics
from training.mini import build_mini
from training.packing import Learner, empty_row, supervised_loss
from training.parallel import Place, clip, join_processes, leave_processes, shard
from training.parquet import Parquet
from training.recipe import MINI, Phase, Recipe, WorldData, load_recipe
from training.sources import Source, World

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


class Trainer:
    """One run.

    Args:
        recipe: what to do.
        place: this process.

    Raises:
        ModelError: the model that the run starts from cannot be had.
        SettingsError: `recipe.out` holds a run, and `resume` is off; or it does not fit the recipe.
    """

    def __init__(self, recipe: Recipe, place: Place, *, resume: bool = False):
        self.recipe, self.place = recipe, place
        self.out = Path(recipe.out)
        kept = recipe.checkpoints
        self.checkpoints = Checkpoints(self.out / "checkpoints", place, keep=kept.keep, keep_every=kept.keep_every)
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
            self.out.mkdir(parents=True, exist_ok=True)
            facts = {"start": self.start, "recipe": recipe.model_dump()}
            (self.out / START_FILE).write_text(json.dumps(facts, indent=1) + "\n")
        self.encoder = Encoder(self.start)
        torch.manual_seed(recipe.seed + place.rank)
        if place.device.type == "cpu":
            torch.use_deterministic_algorithms(True, warn_only=True)
            torch.utils.deterministic.fill_uninitialized_memory = False  # costs a tenth of a step
        self.learner = self._learner()
        self.optimiser = torch.optim.AdamW(
            parameter_groups(self.learner, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )
        self.progress = Progress()
        if done:
            self.progress = self.checkpoints.load(self.learner, self.optimiser, done[-1])
        features = 3 * self.encoder.files.image_processor.temporal_patch_size * self.encoder.patch**2
        self.spare = empty_row(self.encoder.chat.tokenizer.eos_token_id, features)
        self.held_out = HeldOutSet(recipe, self.encoder, place) if recipe.held_out.every else None
        self.left_out = 0

    def _start(self) -> str:
        """The folder or id of the model that the run starts from; the mini model is made by the first process."""
        if self.recipe.model.start != MINI:
            return self.recipe.model.start
        folder = self.out / "start"
        assert isinstance(self.recipe.data, WorldData)  # the recipe sees to it
        if self.place.leads and not (folder / "tokenizer.json").exists():
            build_mini(folder, self.recipe.model.mini, frame=self.recipe.data.frame, seed=self.recipe.seed)
        self.place.wait()
        return str(folder)

    def _learner(self) -> Learner:
        place = self.place
        model: Any = load_part(self.start, "AutoModelForImageTextToText", dtype=torch.float32)
        use_packed_attention(model)
        if self.recipe.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})
        learner: Learner = Learner(model).to(place.device)
        if place.sharded:
            shard(learner, place, bf16=self.bf16)
        learner.train()
        return learner

    def source(self) -> Source:
        data = self.recipe.data
        if isinstance(data, WorldData):
            return World(data)
        return Parquet(data, self.encoder.files.multiple)

    def run(self) -> Path | None:
        """Train to the last step and export the model; returns its folder."""
        recipe, place, progress = self.recipe, self.place, self.progress
        metrics = Metrics(self.out, steps=recipe.steps, step=progress.step) if place.leads else None
        stream = portions(
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

    def _steps(self, stream: Any, metrics: Metrics | None) -> None:
        recipe, progress = self.recipe, self.progress
        while progress.step < recipe.steps:
            began = time.monotonic()
            portion: Portion = next(stream)
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
            if progress.step % recipe.checkpoints.every == 0 or progress.step == recipe.steps:
                self.checkpoints.save(self.learner, self.optimiser, progress)

    def learn(self, portion: Portion, rate: float, vision_rate: float) -> dict[str, Any]:
        """One step on all processes' portions: the mean loss of all learned tokens, and its gradient's norm."""
        place = self.place
        for group in self.optimiser.param_groups:
            group["lr"] = vision_rate if group["vision"] else rate
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

    def _report(self, values: dict[str, Any], metrics: Metrics) -> None:
        """Say what was left out, and what was measured."""
        if values["left_out"] and not self.left_out:
            metrics.say(f"left out {values['left_out']} of this step's conversations; why is in {self.out / LEFT_OUT}")
        self.left_out += values["left_out"]
        measured = {name.removeprefix("held_out/"): v for name, v in values.items() if name.startswith("held_out/")}
        if measured:
            parts = "  ".join(f"{name} {value:.2f}" for name, value in measured.items())
            metrics.say(f"held out at step {self.progress.step}: {parts}")


def parameter_groups(learner: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Parameters by whether they are the vision tower's and whether they decay (matrices do)."""
    groups: dict[tuple[bool, bool], list[Any]] = {}
    for name, parameter in learner.named_parameters():
        groups.setdefault((".visual." in name, parameter.ndim > 1), []).append(parameter)
    return [
        {"params": params, "weight_decay": weight_decay if decays else 0.0, "vision": vision}
        for (vision, decays), params in sorted(groups.items(), key=lambda item: item[0])
    ]


def train(recipe: Recipe, *, resume: bool = False) -> Path | None:
    """Run a recipe in this process, or its part of it under torchrun; returns the exported model's folder."""
    place = join_processes()
    try:
        return Trainer(recipe, place, resume=resume).run()
    finally:
        leave_processes()


def main() -> None:
    """What torchrun starts."""
    parser = argparse.ArgumentParser(prog="training.sft", description="Supervised fine-tuning by a recipe.")
    parser.add_argument("--recipe", required=True, help="a YAML file, or a name in training/recipes")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="change one key")
    parser.add_argument("--resume", action="store_true", help="go on from the newest checkpoint")
    given = parser.parse_args()
    train(load_recipe(given.recipe, given.set), resume=given.resume)


if __name__ == "__main__":
    main()
