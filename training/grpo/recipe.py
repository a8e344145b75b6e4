"""Recipes of reinforcement learning, checked before anything is loaded. Defaults are the paper's (Table 4)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.settings import Settings
from paravt_training.grpo.gating import GatingConfig
from paravt_training.grpo.objective import ObjectiveConfig
from paravt_training.recipe import CheckpointConfig, ConfigModel, ParquetData, RunRecipe, WorldData, read_recipe
from paravt_training.rewards.config import RewardConfig


class Gpus(ConfigModel):
    """How a machine's GPUs are shared; of no account on a CPU."""

    train: int = Field(default=7, ge=1)
    """Processes of torchrun, one GPU each."""
    rollout: int = Field(default=1, ge=1)
    """GPUs after those, one SGLang server each, where `rollouts.servers` names none."""


class Rollouts(ConfigModel):
    """Where and how episodes are run."""

    backend: Literal["sglang", "transformers"] = "sglang"
    """`transformers` runs in the training process itself: one process, small models."""
    servers: list[str] = Field(default_factory=list)
    """URLs of running SGLang servers that can read the run's folder; by default they are started on `gpus.rollout`.
    One that is gone when weights are handed over ends the run, in one line; `--resume` goes on from the checkpoint."""
    weights: Literal["disk", "distributed"] = "disk"
    """How servers get new weights: from the run's folder, or broadcast into their memory, which they must be able to
    reach this machine for. In process they are handed over as they are."""
    concurrency: int = Field(default=64, ge=1)
    """Episodes under way at once."""
    staleness: int = Field(default=2, ge=0)
    """Rollouts may come from weights so many versions old; 0 is synchronous."""
    retries: int = Field(default=1, ge=0)
    """A rollout that failed is run again so often, then dropped."""
    idle_steps: int = Field(default=10, ge=1)
    """The run ends with a reason when so many steps in a row had nothing to learn from."""
    keep_every: int = Field(default=20, ge=0)
    """Every so many steps a step's rollouts are saved, for `paravt show`; 0 for never."""


class HeldOutEpisodes(ConfigModel):
    """Greedy episodes on questions that are never trained on."""

    every: int = Field(default=0, ge=0)
    """Steps from one to the next, and one at the beginning; 0 for never."""
    questions: int = Field(default=64, ge=1)
    seed: int = 77
    """Of the sample world; another than the data's."""
    frames: int = Field(default=8, ge=1)
    """Frames of their overviews."""


class GrpoRecipe(RunRecipe):
    """One run of PARA-GRPO or of one of its ablations. Its `model.start` is the cold start, never `mini`."""

    steps: int = Field(ge=1)
    prompts: int = Field(default=7, ge=1)
    """A step."""
    group: int = Field(default=8, ge=2)
    """Rollouts a prompt: the paper's G."""
    learning_rate: float = Field(default=2e-6, gt=0)
    """Constant, without a warm-up."""
    vision_rate: float = Field(default=1.0, ge=0)
    """The vision tower's learning rate as a part of the others'."""
    temperature: float = Field(default=0.7, gt=0)
    """Of sampling, and of the log-probabilities that are learned from."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further settings of the episodes (`paravt_infer.settings.Settings`), such as `think_prefix`."""
    gating: GatingConfig = GatingConfig()
    rewards: RewardConfig = RewardConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    sub_agents: bool = True
    """Whether sub-agents' tokens are learned too, with their episode's advantage."""
    rollouts: Rollouts = Rollouts()
    gpus: Gpus = Gpus()
    row_tokens: int = Field(default=16384, ge=64)
    """Trajectories are packed into rows of at most so many tokens; a longer one is left out and counted."""
    checkpoints: CheckpointConfig = CheckpointConfig(every=5)
    held_out: HeldOutEpisodes = HeldOutEpisodes()

    @field_validator("settings")
    @classmethod
    def _known_settings(cls, values: dict[str, Any]) -> dict[str, Any]:
        taken = {"temperature", "frames", "logprobs", "seed", "top_p", "top_k", "turn_regex"} & set(values)
        if taken:
            # Truncated or constrained sampling moves probability, which the learner's log-probabilities do not know of.
            raise ValueError(f"{sorted(taken)[0]} is set by the run itself; leave it out")
        try:
            Settings.make(**values)
        except SettingsError as error:
            raise ValueError(str(error)) from None
        return values

    @model_validator(mode="after")
    def _fits(self) -> "GrpoRecipe":
        if self.model.start == "mini":
            raise ValueError("model.start must be a checkpoint: reinforcement learning begins from a cold start")
        held_out = self.held_out
        if isinstance(self.data, ParquetData) and held_out.every:
            raise ValueError("held_out.every must be 0 where data.kind is parquet: it asks of the sample world")
        if isinstance(self.data, WorldData) and held_out.every and held_out.seed == self.data.seed:
            raise ValueError("held_out.seed must be another than data.seed, or nothing is held out")
        if self.rollouts.backend == "sglang":
            self.check_processes(self.gpus.train)
        return self

    def check_processes(self, processes: int) -> None:
        """Raises ValueError where a step's rollouts do not divide by the training processes; names sizes that do."""
        rollouts = self.prompts * self.group
        if rollouts % processes:
            fitting = [count for count in range(1, 4 * processes) if count * self.group % processes == 0]
            below = [count for count in fitting if count < self.prompts][-1:]
            above = [count for count in fitting if count > self.prompts][:1]
            sizes = " or ".join(str(count) for count in [*below, *above])
            raise ValueError(
                f"prompts x group = {self.prompts} x {self.group} = {rollouts} rollouts do not divide by "
                f"{processes} training processes; with group {self.group}, prompts must be {sizes}"
            )

    def episode_settings(self, *, frames: int, seed: int) -> Settings:
        """The settings of one rollout."""
        own = {"temperature": self.temperature, "frames": frames, "seed": seed, "logprobs": True}
        return Settings.make(**{**self.settings, **own})


def load_grpo_recipe(file: str | Path, changes: Iterable[str] = ()) -> GrpoRecipe:
    """The GRPO recipe of a YAML file, or of that name in `training/recipes`, with `changes` made to it.

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    return read_recipe(file, changes, GrpoRecipe, "*grpo*.yaml")
