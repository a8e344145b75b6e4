"""How an episode is run: every choice that can change its outcome, checked when it is made."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from paravt_infer.errors import SettingsError


class Settings(BaseModel):
    """The settings of an episode. Numbers are the paper's (section 4.1 and Table 4) unless a line says otherwise."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False)

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


def validation_message(error: ValidationError, what: str, *, known: Iterable[str] = ()) -> str:
    """The first complaint of a validation error as one line.

    >>> try:
    ...     Settings(frames=0)
    ... except ValidationError as error:
    ...     print(validation_message(error, "setting"))
    setting frames: must be at least 1, not 0

    Args:
        what: what the fields are to the reader: setting, question, field.
        known: the names there are, for one that there is not.
    """
    fault = error.errors()[0]
    name, kind = ".".join(str(part) for part in fault["loc"]), fault["type"]
    place = f"{what} {name}: " if name else ""
    if kind == "missing":
        return f"{place}is missing"
    if kind == "extra_forbidden":
        near = get_close_matches(name, list(known), n=1)
        there = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(known)}" if known else ""
        return f"{place}there is none of this name{there}"
    if kind == "value_error":  # a check of our own: its words say it all
        return f"{place}{fault['ctx']['error']}"
    message = re.sub(r"^[A-Z][a-z]+ should ", "must ", fault["msg"])
    message = re.sub(r", (?:unable|got) .*", "", message)
    message = message.replace("greater than or equal to", "at least").replace("less than or equal to", "at most")
    if kind == "json_invalid":  # its input is the whole text
        return f"{place}{message}"
    given = repr(fault["input"])
    return f"{place}{message}, not {given if len(given) <= 80 else given[:80] + '...'}"
