"""How an episode is run: every setting that can change its outcome, validated on construction."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel, validation_message


class Settings(FrozenModel):
    """The settings of an episode. Defaults are the paper's (section 4.1 and Table 4) unless noted otherwise."""

    model_config = ConfigDict(allow_inf_nan=False)

    protocol: str = "paravt"
    """Prompts and tool-call syntax: a name in `paravt_infer.protocols`."""
    system_prompt: str | None = None
    """Replaces the protocol's system prompt, for a checkpoint that was trained with another one."""
    dispatch: Literal["parallel", "sequential"] = "parallel"
    """All calls of a turn at once, or one call per turn, with generation stopped at the end of the first call."""
    evidence: Literal["text", "frames"] = "text"
    """What a call returns: a sub-agent's summary, or the window's frames, put into the main context."""
    tool_code: Literal["run", "refuse"] = "run"
    """Whether to run a call in the `<tool_code>` form, to which models revert. Recorded either way."""
    repair: bool = True
    """Whether a call with prose around its JSON, or in an unclosed block, still runs. Recorded either way."""
    question_in_subagent: bool = False
    """Whether sub-agents see the question. The paper's do not."""
    think_prefix: Literal["off", "first", "every"] = "off"
    """Which main turns start with `<think>` already written: none, the first, or all."""

    frames: int = Field(default=64, ge=1, le=4096)
    """Maximum frames in the overview."""
    fps: float = Field(default=1.0, gt=0, le=60)
    """Frames sampled per second, in the overview and in windows, before thinning to the maximum."""
    window_frames: int = Field(default=16, ge=1, le=1024)
    """Maximum frames per window."""
    min_pixels: int = Field(default=784, ge=1)
    """Minimum pixels per frame, as far as the model's image processor allows."""
    max_pixels: int = Field(default=50176, ge=1)
    """Maximum pixels per frame, as far as the model's image processor allows."""

    max_tool_turns: int = Field(default=3, ge=0, le=64)
    """Maximum turns with calls; after the last one the model is asked for its answer."""
    max_calls: int = Field(default=5, ge=1, le=64)
    """Maximum calls per turn; further ones get an error response."""
    max_new_tokens: int = Field(default=2048, ge=1)
    """Maximum tokens per main turn."""
    summary_tokens: int = Field(default=512, ge=1)
    """Maximum tokens of a sub-agent's summary; a longer one is truncated and marked as cut."""
    call_seconds: float = Field(default=180.0, gt=0)
    """Timeout of a call, which then gets an error response. Not from the paper."""

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    """-1 for no limit."""
    seed: int | None = None
    """Makes sampling reproducible where the backend can; each turn and call derives its own seed."""
    logprobs: bool = False
    """Whether to record each generated token's log-probability."""
    turn_regex: tuple[str | None, ...] = ()
    """Regular expressions that constrain the whole text of main turn 0, 1, ...; None for no constraint."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> "Settings":
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"setting min_pixels ({self.min_pixels}) is above max_pixels ({self.max_pixels})")
        return self

    @classmethod
    def make(cls, **values: Any) -> "Settings":
        """Settings from keyword values.

        Raises:
            SettingsError: names the setting, what is wrong with it and what is allowed, in one line.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(validation_message(error, "setting", known=cls.model_fields)) from None
