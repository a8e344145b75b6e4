"""Weights and switches of the rewards, one for every ablation of the paper; the defaults are its full recipe."""

from typing import Literal, Self

from pydantic import Field, model_validator

from paravt_infer.schema import FrozenModel


class JudgeConfig(FrozenModel):
    """The model that grades open answers."""

    server: str = Field(min_length=1)
    """Base URL of an OpenAI-compatible chat endpoint; its key is the environment's OPENAI_API_KEY."""
    model: str | None = None
    """The endpoint's name of the model; by default the first it lists."""
    seconds: float = Field(default=60.0, gt=0)
    """Timeout of one request."""
    tokens: int = Field(default=16, ge=1)
    """Maximum tokens of a reply; a judge that thinks aloud needs more."""


class TaskAwareConfig(FrozenModel):
    """Factors on the accuracy of multiple choice (appendix H.1: better training signal, no better held out)."""

    concise: float = Field(default=1.5, ge=0)
    """For an answer no longer than the longest option with its letter."""
    verbose: float = Field(default=0.35, ge=0)
    """For any other; the paper says 0.3 to 0.4."""


class NecessityConfig(FrozenModel):
    """A bonus where a tool was needed (Table 4: negligible effect). The paper gives no formula; this one is ours."""

    bonus: float = Field(default=0.2, ge=0)
    """For a right answer after a call that ran."""
    frames: int = Field(default=8, ge=1)
    """Paid where the overview has at most this many frames."""


class RewardConfig(FrozenModel):
    """R = R_acc + lambda_fmt R_fmt + R_tool, with R_fmt = min(1, R_base + lambda_anchor R_anchor) (section 3.2.3).

    The think prefix (`Settings.think_prefix`) and nFrames Gating (`grpo.gating`) change rollouts, not rewards.
    """

    accuracy: Literal["rule", "judge"] = "rule"
    """How open answers are graded: by token F1, or by a model."""
    judge: JudgeConfig | None = None
    """Used if `accuracy` is judge."""
    lambda_fmt: float = Field(default=1.0, ge=0)
    answer_suffix: bool = True
    """Whether an answer block earns more than a thought instead of less (Constrained Generation, section 3.2.1)."""
    anchoring: bool = True
    """Whether R_anchor is included (Selective Anchoring, section 3.2.1)."""
    lambda_anchor: float = Field(default=0.5, ge=0)
    alpha: float = Field(default=0.4, ge=0)
    """For closed thoughts."""
    beta: float = Field(default=0.3, ge=0)
    """For the full flow: thought, close, answer."""
    gamma: float = Field(default=0.3, ge=0)
    """Penalty for a thought that is never closed; 0 is the paper's ablation."""
    tool: bool = True
    """Whether R_tool is included."""
    right_above: float = Field(default=0.5, ge=0, lt=1)
    """For bonuses, an answer with accuracy above this is right: 0.5 is the usual threshold for spans, and means that an
    open answer shares more than half with the gold one. The paper gives no threshold."""

    format_steps: int = Field(default=0, ge=0)
    """For this many steps R_fmt alone is the reward (phase staging, appendix H.1: no improvement)."""
    task_aware: TaskAwareConfig | None = None
    """Off by default."""
    necessity: NecessityConfig | None = None
    """Off by default."""
    contrastive: float = Field(default=0.0, ge=0)
    """Weight of the contrast between rollouts with and without calls in a group (Table 4: hurts)."""
    structural_mask: bool = False
    """Whether tags are excluded from the policy gradient (TD-GRPO, appendix H.3: hurts)."""

    @model_validator(mode="after")
    def _judge_is_configured(self) -> Self:
        if self.accuracy == "judge" and self.judge is None:
            raise ValueError("accuracy is judge; set judge.server to the URL of a chat endpoint")
        return self
