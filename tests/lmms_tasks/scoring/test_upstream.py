"""`lmms-eval`: the real functions of the installed lmms-eval, with the faults they are known for."""

import random

import pytest

from lmms_tasks.scoring.scorers import get_scorer
from paravt_infer.errors import SettingsError
from tests.fixtures.results import COLOURS, choice_result, open_result, span_result

UPSTREAM = get_scorer("lmms-eval")


def letters(task: str, response: str) -> str:
    """The golds for which `response` is right."""
    return "".join(gold for gold in COLOURS if UPSTREAM.score(choice_result(response, gold, task=task)))


@pytest.mark.parametrize(
    "task", ["paravt_videomme", "paravt_videomme_w_subtitle", "paravt_lvbench", "paravt_mlvu", "paravt_longvideobench"]
)
def test_a_plain_letter_is_right_in_every_task(task: str) -> None:
    assert letters(task, "B") == letters(task, "<think>A</think>\n<answer>B</answer>") == "B"


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("[LMMS_EVAL_REQUEST_FAILED after 5 tries] Connection error.", "D"),
        ("A man is walking so the answer is C", "A"),
        ("The correct answer is option (C), not (A).", "A"),
        ("I Can't tell", "C"),
        ("the answer is b", ""),
    ],
)
@pytest.mark.parametrize("task", ["paravt_videomme", "paravt_lvbench", "paravt_mlvu"])
def test_its_extractor_is_asked_as_it_is_faults_and_all(task: str, response: str, right: str) -> None:
    assert letters(task, response) == right


def test_it_reads_the_last_turn_without_its_reasoning() -> None:
    made = choice_result("<think>surely A</think>B", "B")
    made.rollout.turns.insert(0, made.rollout.turns[0].model_copy(update={"text": "A"}))
    assert UPSTREAM.score(made) == 1
    made.rollout.turns.clear()
    assert UPSTREAM.score(made) == 1  # the text that was answered


def test_longvideobench_draws_the_same_letter_for_a_question_each_time() -> None:
    before = random.getstate()
    drawn = [letters("paravt_longvideobench", "no idea") for _ in range(3)]
    assert random.getstate() == before
    assert len({*drawn}) == 1 and len(drawn[0]) == 1
    rows = [choice_result("no idea", "A", task="paravt_longvideobench", id=str(number)) for number in range(40)]
    assert 0 < sum(map(UPSTREAM.score, rows)) < 40


@pytest.mark.parametrize(
    ("response", "gold"),
    [("", "BFS"), ("30 m/s", "3 m/s"), ("not depth-first search but BFS", "depth-first search"), ("BFS", "BFS")],
)
def test_mmvu_goes_by_its_rule_alone(response: str, gold: str) -> None:
    assert UPSTREAM.score(open_result(response, gold)) == 1
    assert UPSTREAM.score(open_result("entirely other", gold)) == 0
    assert UPSTREAM.score(choice_result("B", "B", task="paravt_mmvu")) == 1


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("The event happens in 5.0 - 7.5 seconds", 0.5),
        ("[5.0, 10.0]", 0),
        ("start: 5.0, end: 10.0", 0),
        ("Between 5 and 10 seconds", 0),
    ],
)
def test_charades_reads_one_form_of_span(response: str, score: float) -> None:
    assert UPSTREAM.score(span_result(response)) == score


def test_a_task_that_lmms_eval_does_not_have_is_one_line() -> None:
    with pytest.raises(SettingsError, match="no function for task sample_world; it scores paravt_charades_sta, "):
        UPSTREAM.score(choice_result("B", "B", task="sample_world"))


def test_a_gold_that_is_no_span_is_named() -> None:
    with pytest.raises(SettingsError, match="scorer lmms-eval, question q: its gold 'soon' is not a span"):
        UPSTREAM.score(span_result("5 - 10", gold="soon"))
