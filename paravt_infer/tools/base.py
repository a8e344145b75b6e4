"""A call as parsed, the faults it can have, and what a tool is."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class ToolCallFault(StrEnum):
    """What can be wrong with a call, by name. The name stands in the record and in the error response."""

    UNCLOSED_BLOCK = "unclosed_block"
    PROSE_AROUND_JSON = "prose_around_json"
    BAD_JSON = "bad_json"
    BAD_PYTHON = "bad_python"
    NOT_A_CALL = "not_a_call"
    TOOL_CODE_REFUSED = "tool_code_refused"
    UNKNOWN_TOOL = "unknown_tool"
    TOO_MANY_CALLS = "too_many_calls"
    MISSING_TIME = "missing_time"
    BAD_TIME = "bad_time"
    NOT_FINITE = "not_finite"
    NEGATIVE_TIME = "negative_time"
    START_NOT_BEFORE_END = "start_not_before_end"
    BEYOND_VIDEO = "beyond_video"
    DUPLICATE_WINDOW = "duplicate_window"
    DECODE_FAILED = "decode_failed"
    SUB_AGENT_FAILED = "sub_agent_failed"
    SUB_AGENT_LATE = "sub_agent_late"
    EMPTY_SUMMARY = "empty_summary"


class ToolCallError(Exception):
    """A call that cannot run: the fault's name and a line for the model that says what and how to mend it."""

    def __init__(self, fault: ToolCallFault, message: str):
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, kw_only=True)
class ParsedCall:
    """One call as a protocol's parser read it. With a `fault`, `name` and arguments may be empty."""

    raw: str
    """What the model wrote."""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    syntax: Literal["tool_call", "tool_code"] = "tool_call"
    repairs: tuple[ToolCallFault, ...] = ()
    """Faults of form that were got over."""
    fault: ToolCallFault | None = None
    message: str = ""
    """What is wrong, where there is a fault."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A span of the video, in seconds, inside it."""

    start: float
    end: float
    asked: tuple[float, float]
    clamped: bool

    @property
    def span(self) -> tuple[float, float]:
        return self.start, self.end


class Tool(ABC):
    """Something that looks at a window of the video."""

    name: str

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The tool as a JSON schema, in the form chat templates take."""

    @abstractmethod
    def window(self, call: ParsedCall, duration: float) -> Window:
        """The window a call asks for, checked against a video of `duration` seconds.

        Raises:
            CallFault: the call cannot run.
        """

    def asked(self, call: ParsedCall) -> tuple[float, float] | None:
        """The two times as asked for, whatever is wrong with them; None where they cannot be read."""
        return None
