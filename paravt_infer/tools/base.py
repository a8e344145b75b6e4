"""The tool interface: parsed calls, the faults they can have, and the windows they ask for."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Literal


class ToolCallFault(StrEnum):
    """What can be wrong with a call. The value is what records hold."""

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
    """A call that cannot run. The message is for the model: what is wrong and how to fix it."""

    def __init__(self, fault: ToolCallFault, message: str):
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, kw_only=True)
class ParsedCall:
    """One call as parsed by a protocol. Where it has a `fault`, name and arguments may be empty."""

    raw: str
    """The call as the model wrote it."""
    name: str = ""
    arguments: dict[str, Any] = field(default_factory=dict)
    positional: tuple[Any, ...] = ()
    syntax: Literal["tool_call", "tool_code"] = "tool_call"
    repairs: tuple[ToolCallFault, ...] = ()
    """Faults of form that did not prevent parsing."""
    fault: ToolCallFault | None = None
    message: str = ""
    """What is wrong, if there is a fault."""


@dataclass(frozen=True, kw_only=True)
class Window:
    """A time window inside the video, in seconds."""

    start: float
    end: float
    requested: tuple[float, float]
    """As the model asked for it; reaches beyond the video's end where `clamped`."""
    clamped: bool

    @property
    def span(self) -> tuple[float, float]:
        return self.start, self.end


class Tool(ABC):
    """A tool that inspects a window of the video."""

    name: str

    @abstractmethod
    def schema(self) -> dict[str, Any]:
        """The tool's JSON schema, as chat templates expect it."""

    @abstractmethod
    def parse_window(self, call: ParsedCall, duration: float) -> Window:
        """The window that a call asks for, validated against a video of `duration` seconds.

        Raises:
            ToolCallError: the call cannot run.
        """

    def requested_times(self, call: ParsedCall) -> tuple[float, float] | None:
        """The start and end that a call asks for, valid or not; None where they cannot be parsed."""
        return None
