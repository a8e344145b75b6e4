"""`paravt` and `strict`: what they make of answers of each kind, the built-in extractors' faults among them."""

import pytest

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.scorers import SCORERS, get_scorer
from paravt_infer.errors import SettingsError
from tests.fixtures.results import COLOURS, choice_result, open_result, span_result

PARAVT, STRICT = get_scorer("paravt"), get_scorer("strict")


def letters(response: str) -> str:
    """The golds for which `response` is right."""
    return "".join(gold for gold in COLOURS if PARAVT.score(choice_result(response, gold)))


@pytest.mark.parametrize(
    ("response", "right"),
    [
        ("[LMMS_EVAL_REQUEST_FAILED after 5 tries] Connection error.", ""),
        ("A man is walking so the answer is C", "C"),
        ("The correct answer is option (C), not (A).", "C"),
        ("I Can't tell", ""),
        ("the answer is b", "B"),
        ("<answer>B</answer><think>A was tempting</think>", "B"),
        ("<think>perhaps A</think><answer>**(b)**</answer>", "B"),
        ("<answer>It is blue, not red.</answer>", "B"),
        ("", ""),
    ],
)
def test_paravt_reads_the_option_that_an_answer_commits_to(response: str, right: str) -> None:
    assert letters(response) == right


@pytest.mark.parametrize("letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ")
def test_paravt_reads_every_letter(letter: str) -> None:
    options = {chr(ord("A") + number): f"thing {number}" for number in range(26)}
    assert PARAVT.score(choice_result(f"The answer is ({letter.lower()}).", letter, options=options)) == 1


@pytest.mark.parametrize(
    ("response", "gold", "right"),
    [
        ("", "BFS", 0),
        ("30 m/s", "3 m/s", 0),
        ("<answer>3.0 m/s</answer>", "3 m/s", 1),
        ("not depth-first search but BFS", "depth-first search", 0),
        ("not depth-first search but BFS", "BFS", 1),
    ],
)
def test_paravt_compares_open_answers_by_what_they_say(response: str, gold: str, right: float) -> None:
    assert PARAVT.score(open_result(response, gold)) == right


@pytest.mark.parametrize(
    ("response", "score"),
    [
        ("[5.0, 10.0]", 1),
        ('{"start": 5, "end": 10}', 1),
        ("start: 5.0, end: 10.0", 1),
        ("starts at 5.2 seconds and ends at 9.8 seconds", 4.6 / 5),
        ("Between 5 and 10 seconds", 1),
        ("<think>first I saw 1 - 2</think>The event happens in 7.5 - 10.0 seconds", 0.5),
        ("10 to 5", 0),
        ("never", 0),
    ],
)
def test_paravt_scores_spans_by_their_iou(response: str, score: float) -> None:
    assert PARAVT.score(span_result(response)) == pytest.approx(score)


@pytest.mark.parametrize(
    ("made", "score"),
    [
        (choice_result("<answer>B</answer>", "B"), 1),
        (choice_result("<answer> B\n</answer>", "B"), 1),
        (choice_result("<answer>(B)</answer>", "B"), 0),
        (choice_result("<answer>b</answer>", "B"), 0),
        (choice_result("<answer>B. blue</answer>", "B"), 0),
        (choice_result("B", "B"), 0),
        (choice_result("<think>so</think>B", "B"), 0),
        (choice_result("<answer></answer>", "B"), 0),
        (open_result("<answer>red car</answer>", "red car"), 1),
        (open_result("<answer>a red car</answer>", "red car"), 0),
        (span_result("<answer>[5.0, 7.5]</answer>"), 0.5),
        (span_result("<answer>5.0 to 7.5</answer>"), 0),
        (span_result("[5.0, 7.5]"), 0),
    ],
)
def test_strict_wants_the_exact_form_in_an_answer_block(made: EvalResult, score: float) -> None:
    assert STRICT.score(made) == score


def test_scorers_are_found_by_name() -> None:
    assert [get_scorer(name).name for name in SCORERS if name != "judge"] == [
        "paravt",
        "strict",
        "lmms-eval",
        "official",
    ]
    with pytest.raises(SettingsError, match="unknown scorer 'exact'; choose from paravt, strict, lmms-eval"):
        get_scorer("exact")
    with pytest.raises(SettingsError, match="scorer judge asks a language model; add its endpoint: --server"):
        get_scorer("judge")
