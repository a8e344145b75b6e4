"""Sequential traces to parallel ones: what is merged, what stays apart, and what is said of frames."""

import json
from copy import deepcopy
from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.protocols.calls import parse_calls
from paravt_training.data.check import call_window, conversation_faults
from paravt_training.data.convert import to_parallel
from paravt_training.data.rows import JsonMessage, RowError, message_text
from paravt_training.world.build import trace_row
from paravt_training.world.questions import question_at
from paravt_training.world.traces import call_text, main_trace

Window = tuple[float, float]
HEAD: list[JsonMessage] = [
    {"role": "system", "content": "You watch videos."},
    {"role": "user", "content": [{"type": "video", "video": "v.mp4"}, {"type": "text", "text": "Who?"}]},
]
FRAMES: JsonMessage = {"role": "tool", "content": [{"type": "video", "video": "v.mp4"}]}


def thinks(thought: str, *windows: Window) -> JsonMessage:
    return {"role": "assistant", "content": f"<think>{thought}</think>" + "".join(map(call_text, windows))}


def answers(thought: str) -> JsonMessage:
    return {"role": "assistant", "content": f"<think>{thought}</think><answer>Ann</answer>"}


def told(text: str) -> JsonMessage:
    return {"role": "tool", "content": text}


def turns(messages: list[JsonMessage]) -> list[list[Window]]:
    """The windows of each of the assistant's turns."""
    return [
        [call_window(call) for call in parse_calls(message_text(one))] for one in messages if one["role"] == "assistant"
    ]


def results(messages: list[JsonMessage]) -> list[str]:
    return [message_text(one) for one in messages if one["role"] == "tool"]


def test_an_independent_pair_becomes_one_turn_and_its_frames_become_words() -> None:
    """The paper's typical case: 00:30 to 00:50, then 02:10 to 02:25."""
    done = to_parallel(
        [
            *HEAD,
            thinks("Two moments matter. First I will inspect 00:30-00:50.", (30, 50)),
            FRAMES,
            thinks("A man in red opens the door. Next I will inspect 02:10-02:25.", (130, 145)),
            FRAMES,
            answers("A woman in blue closes it. So the answer is Ann."),
        ]
    )
    assert done == [
        *HEAD,
        {
            "role": "assistant",
            "content": "<think>Two moments matter. First I will inspect 00:30-00:50. Next I will inspect 02:10-02:25."
            f"</think>{call_text((30, 50))}\n{call_text((130, 145))}",
        },
        told(
            "1. [30.0 s - 50.0 s] A man in red opens the door.\n2. [130.0 s - 145.0 s] A woman in blue closes it.",
        ),
        answers("A woman in blue closes it. So the answer is Ann."),
    ]
    assert not list(conversation_faults(done))


def test_overlapping_windows_stay_apart() -> None:
    done = to_parallel([*HEAD, thinks("A.", (30, 50)), FRAMES, thinks("A man.", (45, 60)), FRAMES, answers("A woman.")])
    assert turns(done) == [[(30, 50)], [(45, 60)], []]
    assert results(done) == ["1. [30.0 s - 50.0 s] A man.", "1. [45.0 s - 60.0 s] A woman."]


def test_windows_that_touch_do_not_overlap() -> None:
    trace = [*HEAD, thinks("A.", (0, 16)), told("1. [0.0 s - 16.0 s] nothing until 16.0 s."), thinks("B.", (16, 32))]
    done = to_parallel([*trace, told("1. [16.0 s - 32.0 s] a car at 16.0 s."), answers("A car.")])
    assert turns(done) == [[(0, 16), (16, 32)], []]


@pytest.mark.parametrize(
    "thought",
    [
        "He falls, but just outside. I should refine the window.",
        "A man runs. Let me zoom in on what follows.",
        "A man runs. I will check again, a little later.",
        "The sign says the race starts at 00:55, so let me inspect 00:52-01:00.",
        "Something happens between 53 and 58 seconds. Let me look.",
    ],
)
def test_a_refinement_stays_on_its_own_turn(thought: str) -> None:
    done = to_parallel([*HEAD, thinks("A.", (30, 50)), FRAMES, thinks(thought, (52, 60)), FRAMES, answers("He fell.")])
    assert turns(done) == [[(30, 50)], [(52, 60)], []]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("1. [30.0 s - 50.0 s] a poster says: show at 02:15", "1. [130.0 s - 145.0 s] a stage."),
        ("1. [30.0 s - 50.0 s] a man.", "1. [130.0 s - 145.0 s] the same man as at 40 s."),
        ("1. [30.0 s - 50.0 s] a man.", "1. [130.0 s - 145.0 s] as in the previous clip, a man."),
    ],
    ids=["forward, by a time", "back, by a time", "back, by a word"],
)
def test_responses_that_refer_to_one_another_keep_their_calls_apart(first: str, second: str) -> None:
    trace = [*HEAD, thinks("A.", (30, 50)), told(first), thinks("B.", (130, 145)), told(second), answers("Him.")]
    assert to_parallel(trace) == trace


def test_a_conclusion_that_compares_keeps_nothing_apart_and_is_no_summary() -> None:
    done = to_parallel(
        [
            *HEAD,
            thinks("Two parts.", (30, 50)),
            FRAMES,
            thinks("A red car at 00:40.", (130, 145)),
            FRAMES,
            answers("A blue car at 02:15. The car at 00:40 was red. The correct option is B."),
        ]
    )
    assert results(done) == [
        "1. [30.0 s - 50.0 s] A red car at 00:40.\n2. [130.0 s - 145.0 s] A blue car at 02:15.",
    ]


def test_a_chain_of_three_is_merged_in_part() -> None:
    trace = [
        *HEAD,
        thinks("A.", (0, 10)),
        FRAMES,
        thinks("A cat.", (20, 30)),
        FRAMES,
        thinks("A dog.", (28, 40)),
        FRAMES,
    ]
    done = to_parallel([*trace, answers("A bird.")])
    assert turns(done) == [[(0, 10), (20, 30)], [(28, 40)], []]
    assert results(done) == [
        "1. [0.0 s - 10.0 s] A cat.\n2. [20.0 s - 30.0 s] A dog.",
        "1. [28.0 s - 40.0 s] A bird.",
    ]


def test_a_call_joins_only_where_it_is_independent_of_all_in_the_turn() -> None:
    trace = [*HEAD, thinks("A.", (0, 10)), told("a"), thinks("B.", (20, 30)), told("b"), thinks("C.", (5, 15))]
    assert turns(to_parallel([*trace, told("c"), answers("C.")])) == [[(0, 10), (20, 30)], [(5, 15)], []]


def test_a_single_call_with_words_and_a_trace_without_calls_are_unchanged() -> None:
    one = [*HEAD, thinks("A.", (30, 50)), told("1. [30.0 s - 50.0 s] a man."), answers("A man.")]
    none = [*HEAD, answers("A man.")]
    assert to_parallel(one) == one and to_parallel(none) == none and to_parallel(HEAD) == HEAD


def test_several_calls_in_a_turn_stay_as_they_are() -> None:
    trace = [*HEAD, thinks("A.", (0, 10), (20, 30)), told("1. x\n2. y"), thinks("B.", (40, 50)), told("1. z")]
    assert to_parallel([*trace, answers("C.")]) == [*trace, answers("C.")]
    with pytest.raises(RowError, match="several_calls: turn 1 has 2 calls that returned frames"):
        to_parallel([*HEAD, thinks("A.", (0, 10), (20, 30)), FRAMES, answers("B.")])


def test_frames_of_which_nothing_is_said_are_a_fault() -> None:
    trace = [*HEAD, thinks("A.", (0, 10)), FRAMES, thinks("Next I will look at 00:20.", (20, 30)), FRAMES]
    with pytest.raises(RowError, match="no_summary: no later turn describes the window 0 to 10 s"):
        to_parallel([*trace, answers("A cat at 00:25.")])
    # What a later turn says of a time in the window is said of it.
    done = to_parallel([*trace, answers("A dog at 00:05. A cat at 00:25.")])
    assert results(done) == ["1. [0.0 s - 10.0 s] A dog at 00:05.\n2. [20.0 s - 30.0 s] A cat at 00:25."]


def test_a_response_inside_the_assistants_message_becomes_a_tool_turn() -> None:
    """As LongVT's traces are generated: all in one message, the response without a word."""
    said = (
        f"<think>A.</think>{call_text((0, 10))}<tool_response>The tool executed successfully.</tool_response>"
        f"<think>A cat.</think>{call_text((20, 30))}<tool_response>\nThe tool executed successfully.\n</tool_response>"
        "<think>A dog.</think><answer>cat</answer>"
    )
    trace = [*HEAD, {"role": "assistant", "content": said}]
    assert [fault.fault for fault in conversation_faults(trace)] == ["forged_response"]
    done = to_parallel(trace)
    assert results(done) == ["1. [0.0 s - 10.0 s] A cat.\n2. [20.0 s - 30.0 s] A dog."]
    assert message_text(done[-1]) == "<think>A dog.</think><answer>cat</answer>" and not list(conversation_faults(done))


def test_a_users_turn_with_frames_is_a_response() -> None:
    frames = {"role": "user", "content": [{"type": "image", "image": "1.png"}, {"type": "text", "text": "Go on."}]}
    done = to_parallel([*HEAD, thinks("A.", (0, 10)), frames, answers("A cat.")])
    assert [one["role"] for one in done] == ["system", "user", "assistant", "tool", "assistant"]


def test_a_tag_in_a_summary_closes_nothing() -> None:
    done = to_parallel([*HEAD, thinks("A.", (0, 10)), FRAMES, answers("A sign: <tool_response>!")])
    assert results(done) == ["1. [0.0 s - 10.0 s] A sign: (tool_response)!"]


def test_the_sample_worlds_sequential_traces_become_its_parallel_ones() -> None:
    """Calls, evidence and answer are the same; the request for an answer after three turns goes."""
    merged = 0
    for number in range(60):
        one, many = (main_trace(question_at(0, "train", number), form, 8) for form in ("sequential", "parallel"))
        if one is None or many is None or one.windows != many.windows:
            continue
        before, wanted = (json.loads(trace_row(trace)["messages"]) for trace in (one, many))
        merged += len(one.windows) > 1
        assert to_parallel(before) == [{"role": said["role"], "content": said["content"]} for said in wanted]
    assert merged > 10


WORDS = st.sampled_from(["A cat at {:.0f} s.", "A dog.", "As in the previous clip.", "Let me look at {:.0f} s."])
STEPS = st.lists(
    st.tuples(st.integers(0, 90), st.integers(1, 30), WORDS, st.integers(0, 120), st.booleans()), max_size=6
)


@given(STEPS)
def test_calls_are_kept_in_their_order_whatever_is_merged(steps: list[tuple[int, int, str, int, bool]]) -> None:
    trace, windows = list(HEAD), []
    thought = "Begin."
    for start, length, words, time, frames in steps:
        windows.append((float(start), float(start + length)))
        trace += [thinks(thought, windows[-1]), FRAMES if frames else told("1. " + words.format(time))]
        thought = "It is seen. " + words.format(time)
    trace.append(answers(thought))
    before = deepcopy(trace)
    done = to_parallel(trace)
    assert trace == before
    assert list(chain(*turns(done))) == windows
    calls = [call.raw for one in done for call in parse_calls(message_text(one)) if one["role"] == "assistant"]
    assert calls == [call_text(window) for window in windows]
    for turn, result in zip((turn for turn in turns(done) if turn), results(done), strict=True):
        assert all(one[1] <= two[0] or two[1] <= one[0] for one in turn for two in turn if one != two)
        assert len(turn) == len(set(turn))
        assert [line.split(".")[0] for line in result.split("\n")] == [str(number + 1) for number in range(len(turn))]
    assert not list(conversation_faults(done))
    assert to_parallel(done) == done  # nothing is left to merge
