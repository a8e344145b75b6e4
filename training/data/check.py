"""Checks of training traces: strict JSON calls, known tools, windows that start before they end, an answer (paper,
appendix "Gemini-CoT Distillation"), and roles in a valid order. Each fault has a name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paravt_infer.answers import TimeSpan, extract_answer
from paravt_infer.errors import suggestion
from paravt_infer.protocols import get_protocol
from paravt_infer.protocols.calls import has_forged_response
from paravt_infer.tools import TOOLS, ParsedCall, ToolCallError, ToolCallFault
from paravt_training.data.rows import ConversationRow, InvalidRow, JsonMessage, RowError, message_text

_MAY_FOLLOW = {
    "": ("system", "user"),
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("tool", "user"),
    "tool": ("tool", "assistant", "user"),
}
"""Role to the roles that may follow it; a user's message after a tool's asks for the answer."""


def check_row(row: ConversationRow) -> list[InvalidRow]:
    """Everything that is wrong with a row; empty if it can be trained on."""
    return [row.invalid(error) for error in conversation_faults(row.messages, row.info)]


def conversation_faults(messages: Sequence[JsonMessage], info: Mapping[str, Any] | None = None) -> Iterator[RowError]:
    """What is wrong with a conversation, each fault by name.

    - `role_order`: roles that cannot follow each other, a tool message without a call, no assistant message at the end.
    - `forged_response`: an assistant message contains a tool response; `paravt data convert` separates them.
    - `tool_code`: a call in the syntax that models fall back to.
    - the names of `paravt_infer.tools.ToolCallFault`: `bad_json`, `prose_around_json`, `unclosed_block`,
      `unknown_tool`, `start_not_before_end` and so on. Nothing is repaired.
    - `empty_answer`: the last message has no answer; of a question without a trace, `extra_info` has none.

    Args:
        info: `extra_info`; windows must start before its `duration` (seconds), if it has one.

    >>> messages = [{"role": "user", "content": "Who?"}, {"role": "tool", "content": "x"}]
    >>> [error.fault for error in conversation_faults(messages)]
    ['role_order', 'empty_answer']
    """
    info = info or {}
    protocol = get_protocol("paravt")
    before, calls = "", False
    for number, message in enumerate(messages, 1):
        role = message["role"]
        if role not in _MAY_FOLLOW.get(before, ()) or (role == "tool" and not calls):
            after = f"after {before}" + " without a call" * (role == "tool") if before else "first"
            yield RowError("role_order", f"message {number} is {role}, {after}")
        before = role
        if role != "assistant":
            continue
        parsed = protocol.parse_calls(message_text(message))
        calls = bool(parsed)
        for call in parsed:
            yield from _call_faults(call, number, info)
        if has_forged_response(message_text(message)):
            yield RowError("forged_response", f"message {number} contains a tool response, which only tools write")
    if all(message["role"] != "assistant" for message in messages):
        if not str(info.get("answer") or "").strip():
            yield RowError("empty_answer", "a question without a trace, and extra_info has no answer")
        return
    if before != "assistant":
        yield RowError("role_order", f"the last message is {before}; it must be the assistant's")
        return
    text = message_text(messages[-1])
    answer = extract_answer(text)
    # The last line of a thought is not an answer.
    if answer is None or (answer.source == "last_line" and "<think>" in text):
        yield RowError("empty_answer", "the last message has no answer")


def call_window(call: ParsedCall, duration: float = math.inf) -> TimeSpan:
    """The window that a call asks for, in seconds.

    Raises:
        RowError: the call could not run.
    """
    if call.fault:
        raise RowError(call.fault.value, call.message)
    if call.name not in TOOLS:
        raise RowError(ToolCallFault.UNKNOWN_TOOL.value, f"unknown tool {call.name!r}{suggestion(call.name, TOOLS)}")
    try:
        return TOOLS[call.name].parse_window(call, duration).span
    except ToolCallError as error:
        raise RowError(error.fault.value, str(error)) from None


def _call_faults(call: ParsedCall, number: int, info: Mapping[str, Any]) -> Iterator[RowError]:
    if call.syntax == "tool_code":
        yield RowError("tool_code", f"message {number} calls in Python instead of JSON")
    for repair in call.repairs:
        yield RowError(repair.value, f"message {number}: the call is not one closed block of JSON alone")
    try:
        call_window(call, float(info.get("duration") or math.inf))
    except RowError as error:
        yield RowError(error.fault, f"message {number}: {error.detail}")
