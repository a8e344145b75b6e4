"""Tokens: the paper's two formulas by hand, and an episode's account added up from its record."""

import pytest

from paravt_infer.budget import critical_path, fill_usage, predicted_parallel, predicted_sequential
from paravt_infer.questions import Question
from paravt_infer.rollout import Evidence, FrameRef, GenerationRecord, Rollout, Turn


@pytest.mark.parametrize(
    ("calls", "sequential", "parallel"),
    [
        (0, 0, 16_300),
        (1, 16_300 + 50, 16_350),
        (3, 3 * 16_300 + 6 * 50, 16_450),
        (5, 5 * 16_300 + 15 * 50, 16_550),
    ],
)
def test_the_papers_formulas(calls: int, sequential: int, parallel: int) -> None:
    assert predicted_sequential(calls) == sequential
    assert predicted_parallel(calls) == parallel


def test_the_formulas_take_the_visual_tokens_there_were() -> None:
    assert predicted_sequential(3, visual=1000) == 3 * 1300 + 300
    assert predicted_parallel(3, visual=1000) == 1450


def evidence(turn: int, *, status: str = "ok", decode: float = 0.0, looking: float | None = None) -> Evidence:
    sub_agent = None
    if looking is not None:
        sub_agent = GenerationRecord(
            prompt_tokens=100, visual_tokens=80, cached_tokens=20, output_ids=[1, 2, 3], seconds=looking
        )
    call = Evidence(turn=turn, tool="crop_video", raw="", decode_seconds=decode, sub_agent=sub_agent)
    call.status = status  # type: ignore[assignment]
    return call


def rollout() -> Rollout:
    """Two turns with calls and a last one; one call never ran, one has no sub-agent."""
    frame = FrameRef(time=0, width=32, height=32, tokens=60, digest="0")
    return Rollout(
        question=Question(video="v", text="Q?"),
        overview=[frame, frame],
        overview_seconds=1.0,
        turns=[
            Turn(prompt_tokens=1000, visual_tokens=120, cached_tokens=None, output_ids=[1] * 10, seconds=2.0),
            Turn(prompt_tokens=1100, visual_tokens=120, cached_tokens=900, output_ids=[1] * 20, seconds=3.0),
            Turn(prompt_tokens=1300, visual_tokens=150, cached_tokens=1000, output_ids=[1] * 5, seconds=4.0),
        ],
        evidence=[
            evidence(0, decode=0.5, looking=1.0),
            evidence(0, decode=0.25, looking=2.0),
            evidence(0, status="error"),
            evidence(1, decode=0.75),
        ],
    )


def test_an_account_is_the_sum_of_the_record() -> None:
    measured = rollout()
    fill_usage(measured, seconds=12.5)
    usage = measured.usage
    assert usage.main_prompt_tokens == 1000 + 1100 + 1300
    assert usage.prompt_tokens == usage.main_prompt_tokens + 2 * 100
    assert usage.visual_tokens == 120 + 120 + 150 + 2 * 80
    assert usage.main_visual_tokens == 150
    assert usage.output_tokens == 10 + 20 + 5 + 2 * 3
    assert usage.cached_tokens == 900 + 1000 + 2 * 20
    assert (usage.calls, usage.calls_ok, usage.tool_turns) == (4, 3, 2)
    assert usage.predicted_sequential == predicted_sequential(4, visual=120)
    assert usage.predicted_parallel == predicted_parallel(4, visual=120)
    assert usage.seconds == 12.5


def test_the_critical_path_holds_each_turns_slowest_call() -> None:
    measured = rollout()
    fill_usage(measured, seconds=12.5)
    assert critical_path(measured) == 1.0 + (2.0 + 2.25) + (3.0 + 0.75) + 4.0
    assert measured.usage.critical_path_seconds == critical_path(measured)


def test_an_episode_that_never_began_has_spent_nothing() -> None:
    empty = Rollout(question=Question(video="v", text="Q?"))
    fill_usage(empty, seconds=0.0)
    assert (empty.usage.prompt_tokens, empty.usage.output_tokens, empty.usage.main_visual_tokens) == (0, 0, 0)
    assert empty.usage.critical_path_seconds == 0.0
