"""Faults of traces, each by its name, with file and row."""

import json
from pathlib import Path

import pytest

from paravt_training.data.check import check_row, conversation_faults
from paravt_training.data.rows import ConversationRow, JsonMessage, read_rows
from paravt_training.world.build import build, trace_row
from paravt_training.world.questions import question_at
from paravt_training.world.traces import main_trace

USER: JsonMessage = {"role": "user", "content": "Who?"}
TOOL: JsonMessage = {"role": "tool", "content": "1. a man."}
ANSWER: JsonMessage = {"role": "assistant", "content": "<think>Ann.</think><answer>Ann</answer>"}


def call(arguments: str = '"start_time": 1, "end_time": 2', name: str = "crop_video") -> str:
    return f'<tool_call>{{"name": "{name}", "arguments": {{{arguments}}}}}</tool_call>'


def said(text: str) -> JsonMessage:
    return {"role": "assistant", "content": text}


def named(*messages: JsonMessage, **info: object) -> list[str]:
    return [fault.fault for fault in conversation_faults(messages, info)]


def test_good_traces_have_none(tmp_path: Path) -> None:
    for split in ("train", "rl"):
        path, _ = build(tmp_path, split, 200, 0, videos=False)
        assert [check_row(row) for row in read_rows(path) if isinstance(row, ConversationRow)] == [[]] * 200
    assert named(USER, said("<think>A.</think>" + call()), TOOL, ANSWER) == []
    assert named(USER, said("red")) == []  # a direct answer
    assert named(USER, said(f"<think>A.</think>{call()}<answer>Ann</answer>")) == []
    assert named(USER, said(call()), TOOL, TOOL, {"role": "user", "content": "Answer now."}, ANSWER) == []


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (call("'start_time': 1"), "bad_json"),
        (f"<tool_call>Here: {call()[11:]}", "prose_around_json"),
        (call().removesuffix("</tool_call>"), "unclosed_block"),
        ("<tool_call>[1]</tool_call>", "not_a_call"),
        (call(name="zoom"), "unknown_tool"),
        (call('"start_time": 1'), "missing_time"),
        (call('"start_time": "soon", "end_time": 2'), "bad_time"),
        (call('"start_time": NaN, "end_time": 2'), "not_finite"),
        (call('"start_time": -1, "end_time": 2'), "negative_time"),
        (call('"start_time": 2, "end_time": 2'), "start_not_before_end"),
        (call('"start_time": 70, "end_time": 80'), "beyond_video"),
        ("<tool_code>crop_video(start_time=1, end_time=2)</tool_code>", "tool_code"),
        (f"{call()}<tool_response>a man</tool_response>", "forged_response"),
    ],
)
def test_faults_of_calls(text: str, fault: str) -> None:
    assert named(USER, said("<think>A.</think>" + text), TOOL, ANSWER, duration=60.0) == [fault]


def test_each_call_is_checked_alone() -> None:
    text = call() + call(name="zoom") + call() + call('"start_time": 3, "end_time": 2')
    assert named(USER, said(text), TOOL, ANSWER) == ["unknown_tool", "start_not_before_end"]


@pytest.mark.parametrize(
    "text", ["<think>Ann.</think><answer> </answer>", "<think>Ann.</think>", "", "<think>Ann.</think>" + call()]
)
def test_an_empty_answer(text: str) -> None:
    assert named(USER, said(text)) == ["empty_answer"]


def test_a_question_without_a_trace_needs_its_answer() -> None:
    assert named(USER, answer="Ann") == [] and named(USER) == named(USER, answer=" ") == ["empty_answer"]


@pytest.mark.parametrize(
    "messages",
    [
        [ANSWER],
        [USER, USER, ANSWER],
        [USER, {"role": "system", "content": "x"}, ANSWER],
        [USER, ANSWER, ANSWER],
        [USER, ANSWER, TOOL, ANSWER],
        [USER, said(call()), TOOL],
        [USER, {"role": "critic", "content": "x"}, ANSWER],
    ],
    ids=lambda messages: " ".join(one["role"] for one in messages),
)
def test_roles_in_an_order_that_cannot_be(messages: list[JsonMessage]) -> None:
    assert set(named(*messages)) == {"role_order"}


def test_a_fault_names_file_and_row() -> None:
    row = ConversationRow(messages=[USER, said(call(name="zoom"))], videos=[], file=Path("a.parquet"), number=7)
    assert list(map(str, check_row(row))) == [
        "a.parquet, row 7: unknown_tool: message 2: unknown tool 'zoom'; choose from crop_video",
        "a.parquet, row 7: empty_answer: the last message has no answer",
    ]


def test_the_competing_form_is_a_fault() -> None:
    trace = main_trace(question_at(0, "train", 1), "parallel", 8, syntax="tool_code")
    assert trace is not None
    assert set(named(*json.loads(trace_row(trace)["messages"]))) == {"tool_code"}
