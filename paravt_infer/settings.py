"""How an episode is run: every choice that can change its outcome, checked when it is made."""

from typing import Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel, validation_message


class Settings(FrozenModel):
    """The settings of an episode. Numbers are the paper's (section 4.1 and Table 4) unless a line says otherwise."""

    model_config = ConfigDict(allow_inf_nan=False)

    protocol: str = "paravt"
    """How the model is spoken to: a name in `paravt_infer.protocols`."""
    system_prompt: str | None = None
    """Text used in place of the protocol's own system prompt, for a checkpoint trained with another one."""
    dispatch: Literal["parallel", "sequential"] = "parallel"
    """All calls of a turn at once, or one call a turn with generation stopped at the first call's end."""
    evidence: Literal["text", "frames"] = "text"
    """A sub-agent's summary, or the window's frames put into the main context."""
    tool_code: Literal["run", "refuse"] = "run"
    """What to do with a call in the `<tool_code>` form that models revert to. Recorded either way."""
    repair: bool = True
    """Whether a call with prose around its JSON, or a block left open, still runs. Recorded either way."""
    question_in_subagent: bool = False
    """Whether sub-agents are told the question. The paper's are not."""
    think_prefix: Literal["off", "first", "every"] = "off"
    """Whether main turns start with `<think>` already written: none, the first, or every one."""

    frames: int = Field(default=64, ge=1, le=4096)
    """The overview's budget."""
    fps: float = Field(default=1.0, gt=0, le=60)
    """Frames a second looked at, in the overview and in windows, before thinning."""
    window_frames: int = Field(default=16, ge=1, le=1024)
    """At most so many frames a window."""
    min_pixels: int = Field(default=784, ge=1)
    """Pixels a frame has at least, where the model's processor allows so few."""
    max_pixels: int = Field(default=50176, ge=1)
    """Pixels a frame has at most, where the model's processor allows so few."""

    max_tool_turns: int = Field(default=3, ge=0, le=64)
    """After so many turns with calls, the answer is asked for."""
    max_calls: int = Field(default=5, ge=1, le=64)
    """Calls a turn; further ones are answered with an error."""
    max_new_tokens: int = Field(default=2048, ge=1)
    """Tokens a main turn may have."""
    summary_tokens: int = Field(default=512, ge=1)
    """Tokens a sub-agent's summary may have; a longer one is cut and marked as cut."""
    call_seconds: float = Field(default=180.0, gt=0)
    """A call that takes longer is answered with an error. This project's own choice."""

    temperature: float = Field(default=0.0, ge=0)
    """0 is greedy."""
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    """-1 for no limit."""
    seed: int | None = None
    """Fixes sampling where the backend can; each turn and call draws from a seed of its own."""
    logprobs: bool = False
    """Whether to record each generated token's log-probability."""
    turn_regex: tuple[str | None, ...] = ()
    """A regular expression for the whole text of main turn 0, 1, ...: generation is held to it."""

    @model_validator(mode="after")
    def _bounds_in_order(self) -> "Settings":
        if self.min_pixels > self.max_pixels:
            raise ValueError(f"setting min_pixels ({self.min_pixels}) is above max_pixels ({self.max_pixels})")
        return self

    @classmethod
    def make(cls, **values: Any) -> "Settings":
        """Settings from keyword values.

        Raises:
            SettingsError: one line that names the setting, what is wrong with it and what is allowed.
        """
        try:
            return cls(**values)
        except ValidationError as error:
            raise SettingsError(validation_message(error, "setting", known=cls.model_fields)) from None
