"""R_tool: worked values, from the record alone."""

import pytest

from paravt_training.rewards.tool import tool_reward
from tests.fixtures.responses import call_text
from tests.fixtures.reward_records import ANSWER, CODE, THOUGHT, ZOOM, record

CALL = call_text(2, 5)


@pytest.mark.parametrize(
    ("first", "ran", "accuracy", "earned"),
    [
        (THOUGHT, True, 1.0, 0.0),
        (THOUGHT + CALL, False, 0.0, 0.1),
        (THOUGHT + CALL, False, 1.0, 0.6),
        (THOUGHT + CALL, True, 0.0, 0.3),
        (THOUGHT + CALL, True, 1.0, 0.8),
        (THOUGHT + CALL + call_text(7, 9) + call_text(9, 12), True, 1.0, 0.8),
        (THOUGHT + CALL + ZOOM, True, 1.0, 0.8),
        (THOUGHT + CODE, True, 0.0, 0.3),
        (THOUGHT + ZOOM, True, 1.0, 0.0),  # a made-up tool
        (THOUGHT + call_text(90, 95), True, 1.0, 0.0),
        (THOUGHT + "<tool_call>{}</tool_call>", True, 1.0, 0.0),
        (THOUGHT + "<tool_call></tool_call><tool_code></tool_code>", True, 1.0, 0.0),
        (THOUGHT + "<tool_response>seen</tool_response>", True, 1.0, 0.0),  # a made-up response
        (f"{THOUGHT}<tool_response>{CALL}</tool_response>", True, 1.0, 0.0),
        (f"<think>{CALL}</think>", True, 1.0, 0.0),
    ],
)
def test_what_a_call_earns(first: str, ran: bool, accuracy: float, earned: float) -> None:
    assert tool_reward(record(first, ANSWER, ran=ran), accuracy, right_above=0.5) == pytest.approx(earned)


@pytest.mark.parametrize(("accuracy", "earned"), [(0.0, 0.3), (0.01, 0.3), (0.5, 0.3), (0.51, 0.8), (1.0, 0.8)])
def test_an_answer_that_is_hardly_right_does_not_pay_the_bonus(accuracy: float, earned: float) -> None:
    """In the release any accuracy above 0 does."""
    assert tool_reward(record(CALL, ANSWER), accuracy, right_above=0.5) == pytest.approx(earned)


def test_a_call_in_the_final_turn_does_not_count() -> None:
    """The engine does not run it, so the record does not have it."""
    made = record(THOUGHT + CALL)
    made.evidence.clear()
    assert tool_reward(made, 1.0, right_above=0.5) == 0
