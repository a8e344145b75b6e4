"""R_base, R_anchor and R_fmt: worked values, turn by turn, and the closure of tags."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt_training.rewards.config import RewardConfig
from paravt_training.rewards.format import (
    anchor_reward,
    base_reward,
    format_reward,
    is_degenerate,
    parse_format,
    tag_closure,
)
from tests.fixtures.responses import call_text
from tests.fixtures.reward_records import ANSWER, CODE, OPEN, THOUGHT, ZOOM, record

FULL = RewardConfig()
CALL = call_text(2, 5)


@pytest.mark.parametrize(
    ("responses", "base", "anchor", "form"),
    [
        # Well formed: 0.2 thought, 0.5 answer, 0.3 call, 0.1 balance; 0.4 closed, 0.3 flow.
        ([THOUGHT + ANSWER], 0.8, 0.7, 1.0),
        ([THOUGHT + CALL, ANSWER], 1.1, 0.7, 1.0),
        ([THOUGHT + CALL + call_text(7, 9), THOUGHT + ANSWER], 1.1, 0.7, 1.0),
        # Collapse: the thought is never closed.
        ([OPEN + ANSWER], 0.7, -0.3, 0.55),
        ([OPEN], 0.2, -0.3, 0.05),
        ([OPEN + CALL, ANSWER], 1.0, -0.3, 0.85),
        (["<think>\n"], 0.0, -0.3, -0.15),
        ([THOUGHT + CALL, OPEN + ANSWER], 1.0, -0.3, 0.85),  # in the second turn
        ([OPEN + CALL, THOUGHT + ANSWER], 1.0, -0.3, 0.85),  # in the first
        # A part of the flow.
        ([THOUGHT], 0.3, 0.4, 0.5),
        ([THOUGHT + "B"], 0.3, 0.4, 0.5),
        ([THOUGHT + CALL, "B"], 0.6, 0.4, 0.8),
        ([THOUGHT + "<answer>B"], 0.5, 0.4, 0.7),
        ([ANSWER], 0.6, 0.0, 0.6),
        ([CALL, ANSWER], 0.6, 0.0, 0.6),
        ([CALL, THOUGHT + ANSWER], 0.8, 0.7, 1.0),  # no thought before the call
        ([CALL + THOUGHT, ANSWER], 0.8, 0.7, 1.0),  # nor here
        ([ANSWER + THOUGHT], 0.8, 0.4, 1.0),  # no flow: the thought comes after the answer
        (["the red one moves first</think>" + ANSWER], 0.5, 0.0, 0.5),  # never opened
        # Nothing.
        (["B"], 0.0, 0.0, 0.0),
        ([""], 0.0, 0.0, 0.0),
        ([], 0.0, 0.0, 0.0),
    ],
)
def test_the_form_of_a_rollout(responses: list[str], base: float, anchor: float, form: float) -> None:
    made = record(*responses)
    got = (base_reward(made, FULL), anchor_reward(made, FULL), format_reward(made, FULL))
    assert got == pytest.approx((base, anchor, form))


@pytest.mark.parametrize("responses", [[THOUGHT + ANSWER], [OPEN + ANSWER], [THOUGHT + CALL, OPEN + ANSWER], [OPEN]])
def test_the_think_prefix_is_part_of_the_response(responses: list[str]) -> None:
    """In the release it is not: what never closes its thought scores 0.6, what is well formed 0.5."""
    prefix = "<think>\n"
    prefixed, plain = record(*responses, prefix=prefix), record(*responses)
    assert prefixed.turns[0].text == responses[0].removeprefix(prefix)
    assert [turn.response for turn in prefixed.turns] == responses
    assert format_reward(prefixed, FULL) == format_reward(plain, FULL)


def test_a_collapse_is_not_rewarded() -> None:
    sound, collapsed = record(THOUGHT + ANSWER, prefix="<think>\n"), record(OPEN + ANSWER, prefix="<think>\n")
    assert format_reward(sound, FULL) - format_reward(collapsed, FULL) == pytest.approx(0.45)
    bare = RewardConfig(anchoring=False)
    assert format_reward(sound, bare) - format_reward(collapsed, bare) == pytest.approx(0.1)  # the anchor has an effect


@pytest.mark.parametrize(
    ("responses", "base"),
    [
        ([THOUGHT + ANSWER], 0.7),
        ([THOUGHT + CALL, ANSWER], 1.0),
        ([ANSWER], 0.4),
        ([THOUGHT + "<answer>B"], 0.5),
        ([THOUGHT], 0.4),
    ],
)
def test_without_the_answer_suffix_the_thought_weighs_more(responses: list[str], base: float) -> None:
    assert base_reward(record(*responses), RewardConfig(answer_suffix=False)) == pytest.approx(base)


@pytest.mark.parametrize(
    "response",
    [
        "<think></think><answer></answer>",
        "<think> \n </think><tool_call></tool_call><answer> </answer>",
        "<think><think></think></think><answer><answer></answer></answer>",
        "<think>.</think><answer>...</answer>",
        "<answer><|im_start|></answer>",
        "<tool_code></tool_code>",
        "<tool_response>\nthe red one\n</tool_response>",
        "</think></answer>",
    ],
)
def test_empty_tags_earn_nothing(response: str) -> None:
    assert base_reward(record(response), FULL) == 0
    assert anchor_reward(record(response), FULL) <= 0


@pytest.mark.parametrize(
    ("responses", "base", "anchor"),
    [
        (["<think>" * 5 + "the red one moves first</think>" + ANSWER], 0.7, 0.0),
        (["<think>the red one moves first" + "</think>" * 5 + ANSWER], 0.7, 0.0),
        ([THOUGHT * 5 + ANSWER], 0.8, 0.0),
        ([THOUGHT + ANSWER * 5], 0.3, 0.4),
        ([THOUGHT + "<answer>A</answer><answer>B</answer><answer>C</answer>"], 0.3, 0.4),
        ([THOUGHT + "<answer>B" + "</answer>" * 5], 0.5, 0.4),
        ([THOUGHT + "<answer>" * 5 + "B</answer>"], 0.2, 0.4),
        ([THOUGHT + CALL * 5, ANSWER], 1.1, 0.7),  # no more than one call earns
        ([THOUGHT + CALL + "</tool_call>" * 4, ANSWER], 1.0, 0.7),
    ],
)
def test_repeated_tags_earn_no_more_than_one_and_lose_what_they_break(
    responses: list[str], base: float, anchor: float
) -> None:
    made = record(*responses)
    assert (base_reward(made, FULL), anchor_reward(made, FULL)) == pytest.approx((base, anchor))


@pytest.mark.parametrize(
    ("call", "earned"),
    [
        (CALL, 0.4),
        (CALL.replace("\n", ""), 0.4),
        (ZOOM, 0.1),  # no such tool
        (CODE, 0.1),  # the pretrained form
        (call_text(5, 2), 0.1),  # no window
        (call_text(90, 95), 0.1),  # beyond the video
        ("<tool_call>crop 2 to 5</tool_call>", 0.1),
        (CALL.removesuffix("</tool_call>"), 0.0),  # left open: it may run, but is not the form
        (f"<tool_call>I look: {CALL[11:]}", 0.1),  # prose around the JSON, likewise
        (f"<tool_response>{CALL}</tool_response>", 0.0),  # in a made-up response
    ],
)
def test_only_a_valid_call_in_its_exact_form_earns(call: str, earned: float) -> None:
    """Over the thought and the answer, with 0.1 of it for tags that balance."""
    assert base_reward(record(THOUGHT + call, ANSWER), FULL) == pytest.approx(0.7 + earned)


def test_tags_inside_calls_and_made_up_responses_are_none() -> None:
    path = "<think>long enough a thought</think></tool_call><answer>B</answer>"
    hidden = call_text(1, 2).replace('"v"', f'"{path}"')
    assert path in hidden
    assert parse_format(hidden).text.strip() == ""
    assert base_reward(record(hidden), FULL) == 0
    made_up = f"<tool_response>{THOUGHT}{ANSWER}</tool_response>"
    assert base_reward(record(made_up), FULL) == 0
    assert parse_format(f"<thi{CALL}nk>long enough a thought</think>").text.startswith("<thi nk>")


def test_tags_that_a_thought_talks_of_are_no_blocks() -> None:
    seen = parse_format(f"<think>then I write <answer>B or {CALL} or <tool_response>, well</think>{ANSWER}")
    assert seen.answer_block == (True, True) and seen.ends_in_answer and not seen.calls and not seen.forged
    assert not seen.balanced


@pytest.mark.parametrize(
    ("responses", "degenerate"),
    [
        (["<|im_start|>" * 5], True),
        ([THOUGHT + "<|im_start|>" * 5 + ANSWER], True),
        (["<|im_start|>" * 3, "<|im_start|>" * 3], True),
        ([THOUGHT + "x" * 300, "<|im_start|>" * 5 + ANSWER], True),
        (["<|im_start|>" * 4 + ANSWER], False),
        (["<|im_start|>" * 5 + "x" * 239], True),
        (["<|im_start|>" * 5 + "x" * 240], False),
        ([], False),
    ],
)
def test_five_turn_openings_in_a_short_response_are_degenerate(responses: list[str], degenerate: bool) -> None:
    assert is_degenerate(record(*responses)) is degenerate


def test_closure_counts_each_tag_opened_and_closed() -> None:
    made = record(THOUGHT + CALL + "<tool_call>{broken</tool_call>" + CODE + CALL[:-12], OPEN + "<answer>B")
    assert tag_closure(made) == {"think": (2, 1), "tool_call": (3, 1), "tool_code": (1, 1), "answer": (1, 0)}


PIECES = st.sampled_from(
    [
        "<think>", "</think>", "<answer>", "</answer>", "<tool_call>", "</tool_call>", "<tool_code>", "</tool_code>",
        "<tool_response>", "</tool_response>", "<|im_start|>", THOUGHT, ANSWER, CALL, CODE, ZOOM, '{"name": "',
    ]
)  # fmt: skip
RESPONSES = st.lists((st.lists(PIECES | st.text(max_size=12), max_size=12)).map("".join), max_size=4)


@given(responses=RESPONSES)
@settings(deadline=None)
def test_any_text_has_a_form_within_bounds(responses: list[str]) -> None:
    made = record(*responses)
    assert 0 <= base_reward(made, FULL) <= 1.1 + 1e-9
    assert -0.3 <= anchor_reward(made, FULL) <= 0.7
    assert -0.15 <= format_reward(made, FULL) <= 1
    assert all(0 <= closed <= opened for opened, closed in tag_closure(made).values())
