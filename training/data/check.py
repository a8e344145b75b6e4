"""Traces checked: strict JSON calls, known tools, windows that begin before they end, an answer (paper, appendix
"Gemini-CoT Distillation"), and roles in an order that a conversation can have. Each fault has a name."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from paravt_infer.answers import extract_answer
from paravt_infer.protocols import get_protocol
from paravt_infer.protocols.calls import has_forged_response
from paravt_infer.tools import TOOLS, ParsedCall, ToolCallError, ToolCallFault
from paravt_training.data.rows import BadRow, ConversationRow, JsonMessage, RowFault, text_of

_MAY_FOLLOW = {
    "": ("system", "user"),
    "system": ("user",),
    "user": ("assistant",),
    "assistant": ("tool", "user"),
    "tool": ("tool", "assistant", "user"),
}
"""Roles that may come next; a user's turn after a tool's asks for the answer."""


def check(row: ConversationRow) -> list[BadRow]:
    """Everything that is wrong with a row; empty where it can be trained on."""
    return [row.bad(fault) for fault in faults(row.messages, row.info)]


def faults(messages: Sequence[JsonMessage], info: Mapping[str, Any] | None = None) -> Iterator[RowFault]:
    """What is wrong with a conversation, each fault by name.

    - `role_order`: roles that cannot follow each other, a tool's turn without a call, no assistant's turn at the end.
    - `forged_response`: an assistant's message holds a tool response; `paravt data convert` takes it apart.
    - `tool_code`: a call in the form that models revert to.
    - the names of `paravt_infer.tools.Fault`: `bad_json`, `prose_around_json`, `unclosed_block`, `unknown_tool`,
      `start_not_before_end` and so on. Nothing is repaired.
    - `empty_answer`: the last turn answers nothing; of a question without a trace, `extra_info` has no answer.

    Args:
        info: `extra_info`; windows are held against its `duration` (seconds) where it has one.

    >>> [fault.fault for fault in faults([{"role": "user", "content": "Who?"}, {"role": "tool", "content": "x"}])]
    ['role_order', 'empty_answer']
    """
    info = info or {}
    protocol = get_protocol("paravt")
    before, calls = "", False
    for number, message in enumerate(messages, 1):
        role = message["role"]
        if role not in _MAY_FOLLOW.get(before, ()) or (role == "tool" and not calls):
            after = f"after {before}" + " without a call" * (role == "tool") if before else "first"
            yield RowFault("role_order", f"message {number} is {role}, {after}")
        before = role
        if role != "assistant":
            continue
        found = protocol.parse_calls(text_of(message))
        calls = bool(found)
        for call in found:
            yield from _call_faults(call, number, info)
        if has_forged_response(text_of(message)):
            yield RowFault("forged_response", f"message {number} holds a tool response that the model is to write")
    if all(message["role"] != "assistant" for message in messages):
        if not str(info.get("answer") or "").strip():
            yield RowFault("empty_answer", "a question without a trace, and extra_info has no answer")
        return
    if before != "assistant":
        yield RowFault("role_order", f"the last message is {before}; it must be the assistant's")
        return
    said = text_of(messages[-1])
    reading = extract_answer(said)
    # A last line that is the thought's own is no answer.
    if reading is None or (reading.source == "last_line" and "<think>" in said):
        yield RowFault("empty_answer", "the last message answers nothing")


def call_window(call: ParsedCall, duration: float = math.inf) -> tuple[float, float]:
    """The window that a call asks for, in seconds.

    Raises:
        RowFault: the call could not run.
    """
    if call.fault:
        raise RowFault(call.fault.value, call.message)
    if call.name not in TOOLS:
        raise RowFault(ToolCallFault.UNKNOWN_TOOL.value, f"there is no tool {call.name!r}")
    try:
        return TOOLS[call.name].parse_window(call, duration).span
    except ToolCallError as fault:
        raise RowFault(fault.fault.value, str(fault)) from None


def _call_faults(call: ParsedCall, number: int, info: Mapping[str, Any]) -> Iterator[RowFault]:
    if call.syntax == "tool_code":
        yield RowFault("tool_code", f"message {number} calls in Python, not in JSON")
    for repair in call.repairs:
        yield RowFault(repair.value, f"message {number}: the call is not one closed block with JSON alone")
    try:
        call_window(call, float(info.get("duration") or math.inf))
    except RowFault as fault:
        yield RowFault(fault.fault, f"message {number}: {fault.detail}")
