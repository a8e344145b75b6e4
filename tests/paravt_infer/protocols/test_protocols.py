"""What each protocol says to the model, and how it reads what the model says."""

import os
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.chat import Message
from paravt_infer.errors import SettingsError
from paravt_infer.protocols import PROTOCOLS, ChatProtocol, ToolResult, get_protocol
from paravt_infer.questions import Question, Subtitle
from paravt_infer.video.types import Frame

QUESTION = Question(video="v.mp4", text="Which comes first?", options={"A": "the dog", "B": "the cat"})
OPEN = Question(video="v.mp4", text="What happens?")
SPAN = Question(video="v.mp4", text="When?", kind="grounding")
LINES = [Subtitle(start=1, end=2.5, text="Hello"), Subtitle(start=3600, end=3601, text="Bye")]

ALL = pytest.mark.parametrize("name", list(PROTOCOLS))
CALLING = pytest.mark.parametrize("name", ["paravt", "tools"])


def frames(*times: float) -> list[Frame]:
    return [Frame(time, np.full((4, 4, 3), number, np.uint8)) for number, time in enumerate(times)]


def roles(messages: list[Message]) -> list[str]:
    return [message.role for message in messages]


@ALL
def test_the_opening_is_timed_frames_then_subtitles_then_the_question(name: str) -> None:
    shown = frames(0.0, 12.04)
    user = get_protocol(name).opening_messages(QUESTION, shown, 40.0, LINES)[-1]
    assert user.role == "user"
    assert user.parts == [
        "<0.0 seconds>",
        shown[0],
        "<12.0 seconds>",
        shown[1],
        "\nSubtitles:\n[00:01 - 00:02.5] Hello\n[1:00:00 - 1:00:01] Bye\n",
        "Which comes first?\nA. the dog\nB. the cat",
    ]


@ALL
def test_without_subtitles_and_options_there_are_no_words_of_them(name: str) -> None:
    assert get_protocol(name).opening_messages(OPEN, [], 40.0)[-1].parts == ["What happens?"]


@ALL
def test_a_span_is_asked_for_where_one_is_wanted(name: str) -> None:
    assert "[start, end] in seconds" in get_protocol(name).opening_messages(SPAN, [], 40.0)[-1].text


@pytest.mark.parametrize(
    ("name", "system", "tools"),
    [("paravt", True, False), ("tools", False, True), ("reasoning", True, False), ("direct", False, False)],
)
def test_who_tells_of_the_tools(name: str, system: bool, tools: bool) -> None:
    protocol = get_protocol(name)
    assert roles(protocol.opening_messages(QUESTION, [], 40.0)) == ["system"] * system + ["user"]
    assert (protocol.tools() is not None) == tools
    assert protocol.calls_tools == (name in ("paravt", "tools"))
    assert protocol.call_ends == (("</tool_call>", "</tool_code>") if protocol.calls_tools else ())


def test_the_paravt_prompt_shows_the_form_of_every_part_of_a_turn() -> None:
    system = get_protocol("paravt").opening_messages(QUESTION, [], 40.0)[0].text
    for form in ("<think>reasoning</think>", '<tool_call>{"name": "crop_video"', "<answer>final answer</answer>"):
        assert form in system
    assert "seconds from the start of the video" in system


@ALL
def test_a_system_prompt_of_ones_own_takes_the_place_of_the_protocols(name: str) -> None:
    opening = get_protocol(name, system_prompt="Be brief.").opening_messages(QUESTION, [], 40.0)
    assert opening[0] == Message(role="system", parts=["Be brief."])
    assert roles(get_protocol(name, system_prompt="").opening_messages(QUESTION, [], 40.0)) == ["user"]


TOLD = [
    ToolResult(window=(1.0, 5.5), text="a dog runs"),
    ToolResult(window=None, text="there is no tool 'zoom'", ok=False),
    ToolResult(window=(7.0, 9.0), text="2 frames:", frames=frames(7.0, 8.25)),
]


def test_paravt_feeds_all_evidence_back_in_one_numbered_tool_turn() -> None:
    (message,) = get_protocol("paravt").tool_messages(TOLD)
    assert message.role == "tool"
    assert message.text == (
        "1. [1.0 s - 5.5 s] a dog runs\n2. Error: there is no tool 'zoom'\n3. [7.0 s - 9.0 s] 2 frames:"
        "<7.0 seconds><8.2 seconds>"
    )
    assert message.frames == list(TOLD[2].frames)


def test_tools_feeds_each_calls_evidence_back_as_a_tool_message_in_order() -> None:
    messages = get_protocol("tools").tool_messages(TOLD)
    assert roles(messages) == ["tool"] * 3
    assert [message.text for message in messages] == [
        "[1.0 s - 5.5 s] a dog runs",
        "Error: there is no tool 'zoom'",
        "[7.0 s - 9.0 s] 2 frames:<7.0 seconds><8.2 seconds>",
    ]
    assert [part for part in messages[2].parts if isinstance(part, Frame)] == list(TOLD[2].frames)
    assert messages[2].parts[1:3] == ["<7.0 seconds>", TOLD[2].frames[0]]


TAGS = [
    f"<{slash}{tag}>" for tag in ("tool_response", "tool_call", "tool_code", "think", "answer") for slash in ("", "/")
]


@CALLING
@given(pieces=st.lists(st.sampled_from([*TAGS, "<", ">", "/", "tool_response", "think"]) | st.text(max_size=3)))
def test_evidence_can_open_and_close_no_tag(name: str, pieces: list[str]) -> None:
    (message,) = get_protocol(name).tool_messages([ToolResult(window=(0.0, 1.0), text="".join(pieces))])
    assert not any(tag in message.text for tag in TAGS)


@CALLING
def test_the_answer_is_asked_for_by_its_form(name: str) -> None:
    (message,) = get_protocol(name).ask_for_answer(QUESTION)
    assert message.role == "user"
    assert "<answer>...</answer>" in message.text


@ALL
def test_a_sub_agent_sees_its_window_and_not_the_question(name: str) -> None:
    shown = frames(12.0, 13.5)
    (message,) = get_protocol(name).sub_agent_prompt((12.0, 75.5), shown, LINES[:1])
    assert message.role == "user"
    assert message.parts[:4] == ["<12.0 seconds>", shown[0], "<13.5 seconds>", shown[1]]
    assert "Hello" in message.text
    assert "from 00:12 to 01:15.5 (63.5 seconds)" in message.text
    assert QUESTION.text not in message.text


@ALL
def test_a_sub_agent_that_is_given_the_question_sees_its_options_too(name: str) -> None:
    (message,) = get_protocol(name).sub_agent_prompt((12.0, 14.0), [], (), QUESTION)
    assert "Which comes first?\nA. the dog\nB. the cat" in message.text


@pytest.mark.parametrize(
    ("text", "summary"),
    [
        ("A dog runs.", "A dog runs."),
        ("<think>hm</think>\nA dog runs.\n", "A dog runs."),
        ("hm</think> A dog runs.", "A dog runs."),
        ("<think>never closed", "never closed"),
        ("<think>only thought</think>", ""),
        ("", ""),
    ],
)
def test_a_summary_is_a_sub_agents_words_without_its_thoughts(text: str, summary: str) -> None:
    assert get_protocol("paravt").summary(text) == summary


CALL = '<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>'


@ALL
def test_only_protocols_with_tools_read_calls(name: str) -> None:
    protocol = get_protocol(name)
    assert len(protocol.parse_calls(CALL)) == protocol.calls_tools


@pytest.mark.parametrize(
    ("response", "answers"),
    [
        ("<answer>B</answer>", {"paravt": "B", "tools": "B", "reasoning": "B", "direct": "B"}),
        ("<think>a</think>It is B.", {"tools": "It is B.", "reasoning": "It is B.", "direct": "It is B."}),
        ("It is B.", {"tools": "It is B.", "reasoning": "It is B.", "direct": "It is B."}),
        ("<think>cut off", {"reasoning": "cut off", "direct": "cut off"}),
        ("<answer></answer>", {}),
        ("", {}),
    ],
    ids=["block", "after a thought", "words", "cut in its thoughts", "empty block", "nothing"],
)
def test_what_ends_an_episode(response: str, answers: dict[str, str]) -> None:
    read = {name: get_protocol(name).extract_answer(response, QUESTION) for name in PROTOCOLS}
    assert {name: reading.text for name, reading in read.items() if reading is not None} == answers


def test_the_checksum_is_the_same_in_every_process() -> None:
    code = "from paravt_infer.protocols import *; print(*(get_protocol(name).checksum() for name in PROTOCOLS))"
    environment = {**os.environ, "PYTHONHASHSEED": "7"}
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert printed.stdout.split() == [get_protocol(name).checksum() for name in PROTOCOLS]


def test_the_checksum_tells_protocols_and_system_prompts_apart() -> None:
    protocols = [get_protocol(name) for name in PROTOCOLS] + [
        get_protocol(name, system_prompt="x") for name in PROTOCOLS
    ]
    assert len({protocol.checksum() for protocol in protocols}) == len(protocols)


said = get_protocol("direct").question_text


@pytest.mark.parametrize(
    ("method", "changed"),
    [
        ("frame_parts", lambda self, frames: [part for frame in frames for part in (f"[{frame.time}]", frame)]),
        ("question_text", lambda self, question: "Q?" if question.kind == "grounding" else said(question)),
        ("question_text", lambda self, question: said(question) if question.kind == "grounding" else "Q?"),
        ("subtitle_text", lambda self, subtitles: "subtitles"),
        ("result_parts", lambda self, told: ["evidence"]),
        ("ask_for_answer", lambda self, question: [Message(role="user", parts=["answer!"])]),
        ("tools", lambda self: [{"name": "zoom"}]),
    ],
    ids=["frame times", "span", "question", "subtitles", "evidence", "asking", "tools"],
)
@ALL
def test_the_checksum_changes_with_every_word_that_is_said(name: str, method: str, changed: Any) -> None:
    other = type("Other", (PROTOCOLS[name],), {method: changed})
    assert other().checksum() != get_protocol(name).checksum()


def test_a_protocol_that_there_is_not_names_those_there_are() -> None:
    with pytest.raises(SettingsError) as raised:
        get_protocol("longvt")
    assert str(raised.value) == "unknown protocol 'longvt'; choose from paravt, tools, reasoning, direct"
    assert all(isinstance(get_protocol(name), ChatProtocol) for name in PROTOCOLS)
