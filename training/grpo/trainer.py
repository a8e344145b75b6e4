"""PARA-GRPO: reinforcement learning of parallel tool use, on FSDP2, with rollouts from SGLang or in process.

``paravt train grpo --recipe mini_paragrpo`` runs in one process; ``torchrun --nproc-per-node 7 -m paravt_training.grpo
--recipe paragrpo_8b`` shards the model over seven GPUs and starts a server on the eighth.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor

from paravt_infer.engine import EngineSpec
from paravt_infer.errors import ParavtError, SettingsError
from paravt_infer.rollout_files import save_rollouts
from paravt_training.grpo.live import GrpoMonitor
from paravt_training.grpo.objective import Advantages, Tally, advantages, token_loss
from paravt_training.grpo.prompts import WorldPrompts, open_prompts
from paravt_training.grpo.recipe import GrpoRecipe
from paravt_training.grpo.rollouts import RolloutGroup, RolloutProducer
from paravt_training.grpo.step_metrics import batch_values, held_out_values
from paravt_training.grpo.trajectory import with_advantage
from paravt_training.loop.export import export_model
from paravt_training.loop.metrics import MetricsLog, ProgressDisplay
from paravt_training.loop.run import TrainingRun, compute_dtype, load_learner, release_memory, run_recipe
from paravt_training.model.distributed import DistributedContext, clip_gradients, gather_weights
from paravt_training.model.encode import EncodedSample
from paravt_training.model.packing import Learner, PackedRow, pack, padded_rows
from paravt_training.world.questions import question_set

WEIGHTS = "weights"
"""The folder through which servers get new weights."""


class NothingToLearnError(ParavtError):
    """Too many steps in a row had nothing to learn from."""


@dataclass(eq=False)
class GrpoTrainer(TrainingRun[GrpoRecipe]):
    """One run of reinforcement learning; made by `from_recipe`.

    The main process produces the rollouts and scatters them to all processes.
    """

    reference: Learner | None = None
    """The frozen model that the policy is kept close to, where the objective has a KL term."""
    engine: EngineSpec | None = None
    """Generates the rollouts, in place of what the recipe names."""

    @classmethod
    def from_recipe(
        cls,
        recipe: GrpoRecipe,
        distributed: DistributedContext,
        *,
        resume: bool = False,
        engine: EngineSpec | None = None,
    ) -> Self:
        _check_processes(recipe, distributed, starts_servers=engine is None)
        run = super().from_recipe(recipe, distributed, resume=resume)
        run.engine = engine
        # The recipe's rates, even if the checkpoint was written with others.
        run.set_learning_rates(recipe.learning_rate, recipe.learning_rate * recipe.vision_rate)
        if recipe.objective.kl:
            run.reference = load_learner(run.start, recipe, distributed).requires_grad_(False).eval()
        return run

    def __post_init__(self) -> None:
        super().__post_init__()
        media = sorted(self.encoder.chat.media_token_ids)
        self.banned_tokens = torch.tensor(media, device=self.distributed.device)
        self.idle_steps = 0

    def train(self, log: MetricsLog | None, display: ProgressDisplay | None, stack: ExitStack) -> None:
        monitor = producer = None
        if log is not None and display is not None:
            monitor = GrpoMonitor(log, stack.enter_context(display))
            producer = stack.enter_context(self.rollout_producer(display.say))
        self.update_rollout_weights(producer)
        if not self.progress.step:
            self._measure_held_out(producer, monitor, {})
        while self.progress.step < self.recipe.steps:
            self._step(producer, monitor)

    def rollout_producer(self, say: Callable[[str], None]) -> RolloutProducer:
        """What produces this run's rollouts, not entered yet; `say` gets a line when something is starting."""
        prompts, engine = open_prompts(self.recipe.data), self.engine or self._engine_spec()
        return RolloutProducer(self.recipe, prompts, engine, self.encoder, step=self.progress.step, say=say)

    def _engine_spec(self) -> EngineSpec:
        rollouts, gpus = self.recipe.rollouts, self.recipe.gpus
        if rollouts.backend == "transformers":
            weights = str(self._export_weights())
            return EngineSpec(backend="transformers", model=weights, max_batch=rollouts.concurrency)
        return EngineSpec(
            backend="sglang",
            model=self.start,
            servers=tuple(rollouts.servers),
            gpus=tuple(range(gpus.train, gpus.train + gpus.rollout)),
            # Both from Table 4.
            server_arguments=("--watchdog-timeout", "600"),
            server_environment={"SGLANG_VLM_CACHE_SIZE_MB": os.environ.get("SGLANG_VLM_CACHE_SIZE_MB", "4096")},
        )

    def _export_weights(self) -> Path | None:
        """Export the current weights in the compute dtype; every process must call it."""
        dtype = compute_dtype(self.recipe, self.distributed)
        return export_model(self.learner, self.start, self.out / WEIGHTS, self.distributed, dtype=dtype)

    def update_rollout_weights(self, producer: RolloutProducer | None) -> None:
        """Pass the current weights to the engine; their version is the number of steps. Every process must call it.

        Args:
            producer: of the main process; None on the others.
        """
        version, rollouts, distributed = self.progress.step, self.recipe.rollouts, self.distributed
        if rollouts.backend == "transformers" or rollouts.weights == "distributed":
            tensors = gather_weights(self.learner.model, distributed, compute_dtype(self.recipe, distributed))
            if producer is not None:
                producer.update_weights(version, tensors=tensors)
        else:
            folder = self._export_weights()
            if producer is not None and folder is not None:
                producer.update_weights(version, folder=folder.resolve())
        distributed.barrier()

    def _step(self, producer: RolloutProducer | None, monitor: GrpoMonitor | None) -> None:
        recipe, progress, distributed = self.recipe, self.progress, self.distributed
        started = time.monotonic()
        groups: list[RolloutGroup] = producer.groups(progress.step) if producer is not None else []
        rolled_out = time.monotonic()
        values: dict[str, Any] = {}
        rows: list[PackedRow] = []
        if distributed.is_main:
            group_advantages = advantages(
                [[reward.total for reward in group.rewards] for group in groups],
                recipe.objective,
                tokens=[[sum(len(s.behaviour) for s in samples) for samples in group.samples] for group in groups],
            )
            rows = pack(_with_advantages(groups, group_advantages), recipe.row_tokens)
            values = batch_values(groups, group_advantages, version=progress.step)
            self._save_rollouts(groups)
        rows = distributed.scatter([rows[rank :: distributed.world_size] for rank in range(distributed.world_size)])
        values |= self.learn(rows)
        # A flat group's advantages are all 0: the KL term may apply to it, but no reward is learned from it.
        has_signal = distributed.max(any(bool(row.advantages.any()) for row in rows))
        self.idle_steps = 0 if has_signal else self.idle_steps + 1
        learned = time.monotonic()
        progress.step += 1
        progress.position += recipe.prompts
        self.update_rollout_weights(producer)
        ended = time.monotonic()
        values |= {
            "idle": self.idle_steps,
            "learning_rate": recipe.learning_rate,
            "seconds": round(ended - started, 4),
            "seconds/rollout": round(rolled_out - started, 4),
            "seconds/learn": round(learned - rolled_out, 4),
            "seconds/weights": round(ended - learned, 4),
            "tokens_per_second": round(values["tokens"] / (ended - started)),
        }
        if recipe.held_out.every and progress.step % recipe.held_out.every == 0:
            self._measure_held_out(producer, monitor, values)
        elif monitor is not None:
            monitor.log_step(progress.step, values)
        self.save_if_due(last=progress.step == recipe.steps)
        release_memory()
        self._stop_if_idle(groups)

    def learn(self, rows: Sequence[PackedRow]) -> dict[str, Any]:
        """One update from the rows of all processes; `rows` are this process's."""
        distributed, objective = self.distributed, self.recipe.objective
        learned, tokens = distributed.sum(sum(len(row.targets) for row in rows), sum(len(row.ids) for row in rows))
        tally = Tally()
        loss_sum = fresh_drift = fresh_tokens = max_fresh_drift = 0.0
        for row in padded_rows(rows, self.padding_row, distributed):
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
                config=objective,
                reference=reference,
            )
            # FSDP averages gradients over the processes: times their number, they are summed.
            (loss * (distributed.world_size / max(1.0, learned)) + zero).backward()
            loss_sum += float(loss.detach())
            tally = tally + measured
            drift = (logprobs.detach() - row.behaviour).abs()[row.fresh]
            fresh_drift, fresh_tokens = fresh_drift + float(drift.sum()), fresh_tokens + drift.numel()
            max_fresh_drift = max(max_fresh_drift, float(drift.max()) if drift.numel() else 0.0)
        norm = 0.0
        if learned:
            norm = clip_gradients(self.learner.parameters(), self.recipe.clip)
            self.optimiser.step()
        self.optimiser.zero_grad()
        tally = tally.all_reduce(distributed.sum)
        loss_sum, fresh_drift, fresh_tokens = distributed.sum(loss_sum, fresh_drift, fresh_tokens)
        means = tally.means()
        return {
            "loss": loss_sum / max(1.0, learned),
            "gradient_norm": norm,
            "tokens": int(tokens),
            "learned_tokens": int(learned),
            **{name: means[key] for name, key in _TALLY_METRICS.items()},
            "drift/mean": fresh_drift / max(1.0, fresh_tokens),
            "drift/most": distributed.max(max_fresh_drift),
            "drift/tokens": int(fresh_tokens),
        }

    def logprobs(self, learner: Learner, row: PackedRow) -> tuple[Tensor, Tensor]:
        """Log-probabilities of a row's learned tokens at the sampling temperature; visual tokens are impossible.

        Returns:
            Log-probabilities, and a zero that must be added to any loss of them.  # [learned], []
        """
        logits, zero = learner(row)
        logits = (logits / self.recipe.temperature).index_fill(-1, self.banned_tokens, float("-inf"))
        chosen: Tensor = logits.log_softmax(-1).gather(-1, row.targets[:, None])[:, 0]
        return chosen, zero

    def _measure_held_out(
        self, producer: RolloutProducer | None, monitor: GrpoMonitor | None, values: dict[str, Any]
    ) -> None:
        """Log a step's `values` and, if the recipe wants them, measures of greedy episodes on held-out questions."""
        config = self.recipe.held_out
        if config.every and producer is not None:
            assert isinstance(producer.prompts, WorldPrompts)  # checked by the recipe
            questions = question_set(config.seed, "rl", config.questions)
            prompts = [producer.prompts.add(question) for question in questions]
            greedy = self.recipe.episode_settings(frames=config.frames, seed=0).model_copy(
                update={"temperature": 0.0, "logprobs": False}
            )
            values = values | held_out_values(prompts, producer.rollouts(prompts, greedy), self.recipe.rewards)
        if monitor is not None and values:
            monitor.log_step(self.progress.step, values)

    def _save_rollouts(self, groups: Sequence[RolloutGroup]) -> None:
        every = self.recipe.rollouts.keep_every
        if every and self.progress.step % every == 0:
            name = f"step-{self.progress.step:06}.jsonl"
            save_rollouts([rollout for group in groups for rollout in group.rollouts], self.out / "rollouts" / name)

    def _stop_if_idle(self, groups: Sequence[RolloutGroup]) -> None:
        """Raise on every process when there has been nothing to learn for too long; the main one's error says why."""
        if self.idle_steps >= self.recipe.rollouts.idle_steps:
            failed = sum(group.failed for group in groups)
            succeeded = sum(len(group.rollouts) for group in groups)
            failure = next((f" ({group.failure})" for group in groups if group.failure), "")
            raise NothingToLearnError(
                f"{self.out}: {self.idle_steps} steps in a row had nothing to learn from; in the last step {failed} "
                f"rollouts failed{failure} and {succeeded} succeeded, with equal rewards within each group; "
                f"see some of them with `paravt show` in {self.out}/rollouts"
            )


_TALLY_METRICS = {
    "surrogate": "surrogate",
    "kl": "kl",
    "ratio": "ratio",
    "clipped": "clipped",
    "behaviour_weight": "weight",
    "capped": "capped",
    "drift/all": "drift",
}
"""Metrics, and the means of a `Tally` that they are."""


def _check_processes(recipe: GrpoRecipe, distributed: DistributedContext, *, starts_servers: bool) -> None:
    """Raises SettingsError if the recipe cannot run in this number of processes."""
    rollouts, world_size = recipe.rollouts, distributed.world_size
    try:
        recipe.check_processes(world_size)
    except ValueError as error:
        raise SettingsError(f"recipe: {error}") from None
    if rollouts.backend == "transformers" and world_size > 1:
        raise SettingsError("recipe rollouts.backend: transformers works in one process only; use sglang")
    shares_gpus = starts_servers and rollouts.backend == "sglang" and not rollouts.servers
    if shares_gpus and distributed.device.type == "cuda" and world_size != recipe.gpus.train:
        raise SettingsError(
            f"recipe gpus.train: {recipe.gpus.train}, but the number of processes is {world_size}; start it with "
            f"torchrun --nproc-per-node {recipe.gpus.train} -m paravt_training.grpo"
        )


def _with_advantages(groups: Sequence[RolloutGroup], group_advantages: Advantages) -> list[EncodedSample]:
    """All contexts of the groups that are learned from, each token with its episode's advantage."""
    return [
        with_advantage(sample, advantage)
        for number, values in group_advantages.values.items()
        for advantage, samples in zip(values, groups[number].samples, strict=True)
        for sample in samples
    ]


def train(recipe: GrpoRecipe, *, resume: bool = False) -> Path | None:
    """Run a recipe; see `run_recipe`."""
    return run_recipe(GrpoTrainer, recipe, resume=resume)
