"""Recipes of reinforcement learning, validated before anything is loaded. Defaults are the paper's (Table 4)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel
from paravt_infer.settings import Settings
from paravt_training.grpo.gating import GatingConfig
from paravt_training.grpo.objective import ObjectiveConfig
from paravt_training.recipe import CheckpointConfig, ParquetData, RunRecipe, WorldData, read_recipe
from paravt_training.rewards.config import RewardConfig


class Gpus(FrozenModel):
    """How a machine's GPUs are shared; ignored on CPU."""

    train: int = Field(default=7, ge=1)
    """Training processes of torchrun, one GPU each."""
    rollout: int = Field(default=1, ge=1)
    """Further GPUs, one SGLang server each, if `rollouts.servers` is empty."""


class Rollouts(FrozenModel):
    """Where and how episodes are run."""

    backend: Literal["sglang", "transformers"] = "sglang"
    """`transformers` runs in the training process: for one process and small models."""
    servers: list[str] = Field(default_factory=list)
    """URLs of running SGLang servers that can read the run's folder; by default servers are started on `gpus.rollout`.
    If one is gone when weights are updated, the run ends with one line; `--resume` continues from the checkpoint."""
    weights: Literal["disk", "distributed"] = "disk"
    """How servers get new weights: from the run's folder, or broadcast into their memory, for which they must be able
    to connect to this machine. Ignored in process."""
    concurrency: int = Field(default=64, ge=1)
    """Maximum number of concurrent episodes."""
    staleness: int = Field(default=2, ge=0)
    """Maximum age of the weights that rollouts come from, in versions; 0 is synchronous."""
    retries: int = Field(default=1, ge=0)
    """How often a failed rollout is run again before it is dropped."""
    idle_steps: int = Field(default=10, ge=1)
    """The run ends with a reason after this many steps in a row with nothing to learn from."""
    keep_every: int = Field(default=20, ge=0)
    """Save the rollouts of every Nth step, for `paravt show`; 0 for never."""


class HeldOutEpisodes(FrozenModel):
    """Greedy episodes on questions that are never trained on."""

    every: int = Field(default=0, ge=0)
    """Measure before the first step and every N steps; 0 for never."""
    questions: int = Field(default=64, ge=1)
    seed: int = 77
    """Seed of the sample world; must differ from the data's."""
    frames: int = Field(default=8, ge=1)
    """Frame budget of their overviews."""


class GrpoRecipe(RunRecipe):
    """One run of PARA-GRPO or of one of its ablations. `model.start` is a cold start, never `mini`."""

    steps: int = Field(ge=1)
    prompts: int = Field(default=7, ge=1)
    """Per step."""
    group: int = Field(default=8, ge=2)
    """Rollouts per prompt: the paper's G."""
    learning_rate: float = Field(default=2e-6, gt=0)
    """Constant, without warm-up."""
    vision_rate: float = Field(default=1.0, ge=0)
    """The vision tower's learning rate relative to the others'."""
    temperature: float = Field(default=0.7, gt=0)
    """Temperature of sampling and of the log-probabilities in the objective."""
    settings: dict[str, Any] = Field(default_factory=dict)
    """Further settings of episodes (`paravt_infer.settings.Settings`), such as `think_prefix`."""
    gating: GatingConfig = GatingConfig()
    rewards: RewardConfig = RewardConfig()
    objective: ObjectiveConfig = ObjectiveConfig()
    sub_agents: bool = True
    """Also learn sub-agents' tokens, with their episode's advantage."""
    rollouts: Rollouts = Rollouts()
    gpus: Gpus = Gpus()
    row_tokens: int = Field(default=16384, ge=64)
    """Maximum tokens per packed row; a longer trajectory is left out and counted."""
    checkpoints: CheckpointConfig = CheckpointConfig(every=5)
    held_out: HeldOutEpisodes = HeldOutEpisodes()

    @field_validator("settings")
    @classmethod
    def _known_settings(cls, values: dict[str, Any]) -> dict[str, Any]:
        taken = {"temperature", "frames", "logprobs", "seed", "top_p", "top_k", "turn_regex"} & set(values)
        if taken:
            # Truncated or constrained sampling changes probabilities in a way that the learner's do not reflect.
            raise ValueError(f"{min(taken)} is set by the run itself; leave it out")
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
            raise ValueError("held_out.every must be 0 if data.kind is parquet: its questions are the sample world's")
        if isinstance(self.data, WorldData) and held_out.every and held_out.seed == self.data.seed:
            raise ValueError("held_out.seed must differ from data.seed, or nothing is held out")
        if self.rollouts.backend == "sglang":
            self.check_processes(self.gpus.train)
        return self

    def check_processes(self, processes: int) -> None:
        """Raises ValueError if a step's rollouts do not divide by the training processes; names sizes that do."""
        rollouts = self.prompts * self.group
        if rollouts % processes:
            divisible = [count for count in range(1, 4 * processes) if count * self.group % processes == 0]
            below = [count for count in divisible if count < self.prompts][-1:]
            above = [count for count in divisible if count > self.prompts][:1]
            sizes = " or ".join(str(count) for count in [*below, *above])
            raise ValueError(
                f"prompts x group = {self.prompts} x {self.group} = {rollouts} rollouts do not divide by "
                f"{processes} training processes; with group {self.group}, prompts must be {sizes}"
            )

    def episode_settings(self, *, frames: int, seed: int) -> Settings:
        """The settings of an episode."""
        fixed = {"temperature": self.temperature, "frames": frames, "seed": seed, "logprobs": True}
        return Settings.make(**(self.settings | fixed))


def load_grpo_recipe(file: str | Path, changes: Iterable[str] = ()) -> GrpoRecipe:
    """Load the GRPO recipe of a YAML file, or the bundled one of that name, and apply `changes` (`key=value`).

    Raises:
        SettingsError: one line that names the file, the key and what is allowed.
    """
    return read_recipe(file, changes, GrpoRecipe, "*grpo*.yaml")
