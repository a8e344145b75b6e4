"""PARA-GRPO: reinforcement learning of parallel tool use, on FSDP2 with rollouts from SGLang or in process.

``paravt train grpo --recipe mini_paragrpo`` runs here; ``torchrun --nproc-per-node 7 -m paravt_training.grpo --recipe
paragrpo_8b`` shards the model over seven GPUs and starts a server on the eighth.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from paravt_infer.backends.base import Backend
from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.rollout_files import save_rollouts
from paravt_training.grpo.live import GrpoMetrics
from paravt_training.grpo.objective import Advantages, Tally, advantages, token_loss
from paravt_training.grpo.prompts import WorldPrompts, open_prompts
from paravt_training.grpo.recipe import GrpoRecipe
from paravt_training.grpo.rollouts import RolloutGroup, RolloutProducer
from paravt_training.grpo.step_metrics import batch_values, held_out_values
from paravt_training.grpo.trajectory import with_advantage
from paravt_training.loop.export import export_model
from paravt_training.loop.run import TrainingRun, release_memory, train_here
from paravt_training.model.distributed import DistributedContext, clip, full_tensor
from paravt_training.model.encode import EncodedSample
from paravt_training.model.packing import Learner, PackedRow, pack
from paravt_training.world.questions import question_set

WEIGHTS = "weights"
"""The folder that weights go through to the servers."""


class Idle(ParavtError):
    """Step after step had nothing to learn from."""


class GrpoTrainer(TrainingRun[GrpoRecipe]):
    """One run of reinforcement learning. The first process makes the rollouts and deals them out.

    Args:
        backend: what generates; by default as the recipe says. It is started and closed with the run. The others are
            `TrainingRun`'s.
    """

    def __init__(
        self, recipe: GrpoRecipe, place: DistributedContext, *, resume: bool = False, backend: Backend | None = None
    ):
        try:
            recipe.check_processes(place.world)
        except ValueError as error:
            raise SettingsError(f"recipe: {error}") from None
        if recipe.rollouts.backend == "transformers" and place.world > 1:
            raise SettingsError("recipe rollouts.backend: transformers rolls out in one process; use sglang")
        launches = backend is None and recipe.rollouts.backend == "sglang" and not recipe.rollouts.servers
        if launches and place.device.type == "cuda" and place.world != recipe.gpus.train:
            raise SettingsError(
                f"recipe gpus.train: {recipe.gpus.train}, but the number of processes is {place.world}; start it with "
                f"torchrun --nproc-per-node {recipe.gpus.train} -m paravt_training.grpo"
            )
        super().__init__(recipe, place, resume=resume)
        # The recipe's, also where a checkpoint was made with others.
        self.set_rates(recipe.learning_rate, recipe.learning_rate * recipe.vision_rate)
        self.reference = self._network().requires_grad_(False).eval() if recipe.objective.kl else None
        self.banned = torch.tensor(sorted(self.encoder.chat.media_token_ids), device=place.device)
        self._backend = backend
        self._idle = 0

    def run(self) -> Path | None:
        recipe, place, progress = self.recipe, self.place, self.progress
        with ExitStack() as open_now:
            metrics = producer = None
            if place.leads:
                metrics = open_now.enter_context(GrpoMetrics(self.out, steps=recipe.steps, step=progress.step))
                producer = self._producer(metrics.say)
                open_now.enter_context(producer)
                if progress.step:
                    metrics.say(f"going on from step {progress.step}")
            self._hand_over(producer)
            if not progress.step:
                self._measure(producer, metrics, {})
            while progress.step < recipe.steps:
                self._step(producer, metrics)
        return export_model(self.learner, self.start, self.out / "export", place, dtype=recipe.export_dtype)

    def _producer(self, say: Callable[[str], None]) -> RolloutProducer:
        backend = self._backend or self._open_backend(say)
        return RolloutProducer(
            self.recipe, open_prompts(self.recipe.data), backend, self.encoder, step=self.progress.step
        )

    def _open_backend(self, say: Callable[[str], None]) -> Backend:
        """What generates, as the recipe says."""
        recipe = self.recipe
        if recipe.rollouts.backend == "transformers":
            from paravt_infer.backends.transformers import TransformersBackend

            return TransformersBackend(str(self._written()), max_batch=recipe.rollouts.concurrency)
        from paravt_infer.backends.launch import LaunchedSGLangBackend
        from paravt_infer.backends.sglang import SGLangBackend

        if recipe.rollouts.servers:
            return SGLangBackend(list(recipe.rollouts.servers), model=self.start)
        first = recipe.gpus.train
        gpus = range(first, first + recipe.gpus.rollout)
        cache = {"SGLANG_VLM_CACHE_SIZE_MB": os.environ.get("SGLANG_VLM_CACHE_SIZE_MB", "4096")}
        patience = ("--watchdog-timeout", "600")  # both: Table 4
        return LaunchedSGLangBackend(self.start, gpus=gpus, arguments=patience, environment=cache, say=say)

    def _written(self) -> Path | None:
        """The weights as they are, as a folder in what the learner computes in; every process takes part."""
        dtype = "bf16" if self.bf16 else "fp32"
        return export_model(self.learner, self.start, self.out / WEIGHTS, self.place, dtype=dtype)

    def _hand_over(self, producer: RolloutProducer | None) -> None:
        """Give the weights to what generates, under the number of steps learned; every process takes part."""
        version, rollouts = self.progress.step, self.recipe.rollouts
        if rollouts.backend == "transformers" or rollouts.weights == "distributed":
            tensors = self._gathered()
            if producer is not None:
                producer.update(version, tensors=tensors)
        else:
            folder = self._written()
            if producer is not None and folder is not None:
                producer.update(version, folder=folder.resolve())
        self.place.wait()

    def _gathered(self) -> dict[str, Tensor]:
        """The weights whole, in what the learner computes in; every process takes part, the first one has them."""
        dtype = torch.bfloat16 if self.bf16 else torch.float32
        gathered = {}
        for name, tensor in self.learner.model.state_dict().items():
            full = full_tensor(tensor)
            if self.place.leads:
                gathered[name] = full.to("cpu", dtype)
        return gathered

    def _step(self, producer: RolloutProducer | None, metrics: GrpoMetrics | None) -> None:
        recipe, progress, place = self.recipe, self.progress, self.place
        began = time.monotonic()
        groups: list[RolloutGroup] = producer.batch(progress.step) if producer is not None else []
        rolled = time.monotonic()
        values: dict[str, Any] = {}
        rows: list[PackedRow] = []
        if place.leads:
            gains = advantages(
                [[reward.total for reward in group.rewards] for group in groups],
                recipe.objective,
                tokens=[[sum(len(s.behaviour) for s in own) for own in group.samples] for group in groups],
            )
            rows = pack(_weighed(groups, gains), recipe.row_tokens)
            values = batch_values(groups, gains, version=progress.step)
            self._keep(groups)
        rows = place.deal([rows[rank :: place.world] for rank in range(place.world)])
        values |= self.learn(rows)
        # A flat group's advantages are all 0: it may be held to the reference, but no reward is learned from it.
        self._idle = 0 if place.most(any(bool(row.advantages.any()) for row in rows)) else self._idle + 1
        learned = time.monotonic()
        progress.step += 1
        progress.position += recipe.prompts
        self._hand_over(producer)
        ended = time.monotonic()
        values |= {
            "idle": self._idle,
            "learning_rate": recipe.learning_rate,
            "seconds": round(ended - began, 4),
            "seconds/rollout": round(rolled - began, 4),
            "seconds/learn": round(learned - rolled, 4),
            "seconds/weights": round(ended - learned, 4),
            "tokens_per_second": round(values["tokens"] / (ended - began)),
        }
        if recipe.held_out.every and progress.step % recipe.held_out.every == 0:
            self._measure(producer, metrics, values)
        elif metrics is not None:
            metrics.step(progress.step, values)
        self.save_if_due(last=progress.step == recipe.steps)
        release_memory()
        self._check_idle(groups)

    def learn(self, rows: Sequence[PackedRow]) -> dict[str, Any]:
        """One update from all processes' rows of a step; these are this one's."""
        place, recipe = self.place, self.recipe
        (total,) = place.sums(sum(len(row.targets) for row in rows))
        tally = Tally()
        (tokens,) = place.sums(sum(len(row.ids) for row in rows))
        loss_sum = drift = fresh = 0.0
        most = 0.0
        for number in range(place.most(len(rows))):
            row = (rows[number] if number < len(rows) else self.spare).to(place.device)
            reference = None
            if self.reference is not None:
                with torch.no_grad():
                    reference, _ = self.logprobs(self.reference, row)
            logprobs, zero = self.logprobs(self.learner, row)
            loss, measured = token_loss(
                logprobs,
                behaviour=row.behaviour,
                advantages=row.advantages,
                mask=torch.ones_like(row.targets, dtype=torch.bool),
                config=recipe.objective,
                reference=reference,
            )
            # Sharded gradients are averaged over the processes: times their number, they are summed.
            (loss * (place.world / max(1.0, total)) + zero).backward()
            loss_sum += float(loss.detach())
            tally = tally + measured
            apart = (logprobs.detach() - row.behaviour).abs()[row.fresh]
            drift, fresh = drift + float(apart.sum()), fresh + apart.numel()
            most = max(most, float(apart.max()) if apart.numel() else 0.0)
        norm = 0.0
        if total:
            norm = clip(self.learner.parameters(), recipe.clip)
            self.optimiser.step()
        self.optimiser.zero_grad()
        tally = tally.over(place.sums, place.largest)
        loss_sum, drift, fresh = place.sums(loss_sum, drift, fresh)
        means = tally.means()
        return {
            "loss": loss_sum / max(1.0, total),
            "gradient_norm": norm,
            "tokens": int(tokens),
            "learned_tokens": int(total),
            **{name: means[key] for name, key in _TALLIED.items() if key in means},
            "drift/mean": drift / max(1.0, fresh),
            "drift/most": place.largest(most),
            "drift/tokens": int(fresh),
        }

    def logprobs(self, network: Learner, row: PackedRow) -> tuple[Tensor, Tensor]:
        """What `network` thinks of a row's learned tokens under the sampling temperature, frames' tokens impossible.

        Returns:
            Log-probabilities, and a zero that has to be added to any loss of them.  # [learned], []
        """
        logits, zero = network(row)
        logits = (logits / self.recipe.temperature).index_fill(-1, self.banned, float("-inf"))
        chosen: Tensor = logits.log_softmax(-1).gather(-1, row.targets[:, None])[:, 0]
        return chosen, zero

    def _measure(self, producer: RolloutProducer | None, metrics: GrpoMetrics | None, values: dict[str, Any]) -> None:
        """Greedy episodes on held-out questions, beside what a step measured."""
        wanted = self.recipe.held_out
        if wanted.every and producer is not None:
            assert isinstance(producer.prompts, WorldPrompts)  # the recipe sees to it
            prompts = [producer.prompts.ask(one) for one in question_set(wanted.seed, "rl", wanted.questions)]
            greedy = self.recipe.episode_settings(frames=wanted.frames, seed=0).model_copy(
                update={"temperature": 0.0, "logprobs": False}
            )
            values = values | held_out_values(prompts, producer.rollouts(prompts, greedy), self.recipe.rewards)
        if metrics is not None and values:
            metrics.step(self.progress.step, values)

    def _keep(self, groups: Sequence[RolloutGroup]) -> None:
        every = self.recipe.rollouts.keep_every
        if every and self.progress.step % every == 0:
            name = f"step-{self.progress.step:06}.jsonl"
            save_rollouts([rollout for group in groups for rollout in group.rollouts], self.out / "rollouts" / name)

    def _check_idle(self, groups: Sequence[RolloutGroup]) -> None:
        """Stop with a reason when there has been nothing to learn for too long; every process does."""
        if self._idle >= self.recipe.rollouts.idle_steps:
            failed = sum(group.failed for group in groups)
            full_tensor = sum(len(group.rollouts) for group in groups)
            why = next((f" ({group.why})" for group in groups if group.why), "")
            raise Idle(
                f"{self.out}: {self._idle} steps in a row had nothing to learn from; in the last one {failed} rollouts "
                f"failed{why} and {full_tensor} did not, the rewards of each group all the same; "
                f"{self.out}/rollouts holds some of them, for `paravt show`"
            )


_TALLIED = {
    "surrogate": "surrogate",
    "kl": "kl",
    "ratio": "ratio",
    "clipped": "clipped",
    "behaviour_weight": "weight",
    "capped": "capped",
    "drift/all": "drift",
}
"""Metrics' names of what the objective measures."""


def _weighed(groups: Sequence[RolloutGroup], gains: Advantages) -> list[EncodedSample]:
    """All contexts of the groups that count, each token with its episode's advantage."""
    return [
        with_advantage(sample, gain)
        for number, values in gains.values.items()
        for gain, own in zip(values, groups[number].samples, strict=True)
        for sample in own
    ]


def train(recipe: GrpoRecipe, *, resume: bool = False) -> Path | None:
    """Run a recipe in this process, or its part of it under torchrun; returns the exported model's folder."""
    return train_here(GrpoTrainer, recipe, resume=resume)
