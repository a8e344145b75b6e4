"""The rewards' weights and switches, one for every ablation of the paper. Defaults are its full recipe."""

from typing import Literal

from pydantic import Field, model_validator

from paravt_training.recipe import ConfigModel


class JudgeConfig(ConfigModel):
    """The model that grades open answers."""

    server: str = Field(min_length=1)
    """Base URL of an OpenAI-compatible chat endpoint; its key is the environment's OPENAI_API_KEY."""
    model: str | None = None
    """The endpoint's name of the model; by default the first it lists."""
    seconds: float = Field(default=60.0, gt=0)
    """One request may take so long."""
    tokens: int = Field(default=16, ge=1)
    """The verdict may have so many tokens. A judge that thinks aloud needs more."""


class TaskAware(ConfigModel):
    """Factors on a choice's accuracy (appendix H.1: better training signal, no better held out)."""

    concise: float = Field(default=1.5, ge=0)
    """For an answer no longer than the longest option with its letter."""
    verbose: float = Field(default=0.35, ge=0)
    """For any other; the paper says 0.3 to 0.4."""


class Necessity(ConfigModel):
    """A bonus where a tool was needed (Table 4: negligible effect). The paper gives no formula; this is our own."""

    bonus: float = Field(default=0.2, ge=0)
    """For a right answer after a call that ran."""
    frames: int = Field(default=8, ge=1)
    """Paid where the overview's budget is at most this."""


class RewardConfig(ConfigModel):
    """R = R_acc + lambda_fmt R_fmt + R_tool, with R_fmt = min(1, R_base + lambda_anchor R_anchor) (section 3.2.3).

    The think prefix is `Settings.think_prefix`, nFrames Gating `grpo.gating`: they change rollouts, not rewards.
    """

    accuracy: Literal["rule", "judge"] = "rule"
    """How open answers are graded: by token F1, or by a model."""
    judge: JudgeConfig | None = None
    """Of account where `accuracy` is judge."""
    lambda_fmt: float = Field(default=1.0, ge=0)
    answer_suffix: bool = True
    """Whether an answer block earns more than a thought, not less (Constrained Generation, section 3.2.1)."""
    anchoring: bool = True
    """Whether R_anchor counts (Selective Anchoring, section 3.2.1)."""
    lambda_anchor: float = Field(default=0.5, ge=0)
    alpha: float = Field(default=0.4, ge=0)
    """For thoughts that are closed."""
    beta: float = Field(default=0.3, ge=0)
    """For the whole flow: thought, close, answer."""
    gamma: float = Field(default=0.3, ge=0)
    """Taken off for a thought that is never closed. 0 is the paper's ablation of the penalty."""
    tool: bool = True
    """Whether R_tool counts."""
    right_above: float = Field(default=0.5, ge=0, lt=1)
    """An answer whose accuracy is above this is right, where a bonus asks: 0.5 is the usual mark for spans, and an open
    answer has more than half in common with the right one. The paper names none."""

    format_steps: int = Field(default=0, ge=0)
    """For so many steps R_fmt alone is the reward (phase staging, appendix H.1: no improvement)."""
    task_aware: TaskAware | None = None
    """Off by default."""
    necessity: Necessity | None = None
    """Off by default."""
    contrastive: float = Field(default=0.0, ge=0)
    """Weight of the contrast between a group's rollouts with and without calls (Table 4: hurts)."""
    structural_mask: bool = False
    """Whether tags are left out of the policy gradient (TD-GRPO, appendix H.3: hurts)."""

    @model_validator(mode="after")
    def _judge_is_named(self) -> "RewardConfig":
        if self.accuracy == "judge" and self.judge is None:
            raise ValueError("accuracy is judge, so judge.server must name a chat endpoint")
        return self
