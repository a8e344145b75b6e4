"""The filter before RL."""

from pathlib import Path

import pytest

from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout
from paravt_infer.rollout_files import save_rollouts
from paravt_training.data.filter import FilterCounts, RolloutAnswer, filter_rows, load_rollout_answers
from paravt_training.data.rows import ConversationRow, InvalidRow

OPTIONS = {"A": "a red car", "B": "a blue car"}


def row(number: int, answer: str, question_type: str = "oe", **info: object) -> ConversationRow:
    info = {"answer": answer, "question_type": question_type, **info}
    return ConversationRow(
        messages=[{"role": "user", "content": "?"}], videos=[], info=info, file=Path("rl.parquet"), number=number
    )


def test_open_answers_of_more_than_15_words_go() -> None:
    rows = [row(1, "word " * 15), row(2, "word " * 16), row(3, "B " * 16, "mcq")]
    report = FilterCounts()
    assert [one for one in filter_rows(rows, report)] == [rows[0], rows[2]]
    assert (report.rows, report.kept, dict(report.dropped)) == (3, 2, {"long_answer": 1})


def test_questions_that_no_rollout_got_right_go() -> None:
    rows = [
        row(1, "red car", id="seen"),
        row(2, "red car", id="never"),
        row(3, "B", "mcq", id="choice"),
        row(4, "[10, 20]", "tvg", id="span"),
        row(5, "cat", id="unasked"),
        row(6, "cat"),
    ]
    answers = {
        "seen": [RolloutAnswer(answer="a dog"), RolloutAnswer(answer="a car")],
        "never": [RolloutAnswer(answer="a dog"), RolloutAnswer(answer=None)],
        "choice": [RolloutAnswer(answer="A", options=OPTIONS), RolloutAnswer(answer="B", options=OPTIONS)],
        "span": [RolloutAnswer(answer="[30, 40]")],
        "6": [RolloutAnswer(answer="dog")],  # a row without an id goes by its number
    }
    report = FilterCounts()
    kept = [one.number for one in filter_rows(rows, report, answers=answers) if isinstance(one, ConversationRow)]
    assert kept == [1, 3, 5]
    assert (dict(report.dropped), report.without_rollouts) == ({"never_right": 3}, 1)


def test_a_bad_row_is_counted_and_passed_on() -> None:
    bad = InvalidRow(file=Path("a"), number=1, fault="bad_json", detail="x")
    report = FilterCounts()
    assert [*filter_rows([bad], report)] == [bad] and dict(report.dropped) == {"bad_row": 1}


@pytest.mark.parametrize("ending", ["parquet", "jsonl"])
def test_rollouts_are_read_as_they_were_saved_and_failures_answer_nothing(tmp_path: Path, ending: str) -> None:
    question = Question(video="v.mp4", text="Which?", options=OPTIONS, id="q")
    made = [
        Rollout(question=question, status="answered", answer="B"),
        Rollout(question=question, status="no_answer"),
        Rollout(question=question, status="failed", error="no such file"),
        Rollout(question=question.model_copy(update={"id": "other"}), status="cancelled"),
    ]
    save_rollouts(made, tmp_path / f"r.{ending}")
    assert load_rollout_answers(tmp_path / f"r.{ending}") == {
        "q": [RolloutAnswer(answer="B", options=OPTIONS), RolloutAnswer(answer=None, options=OPTIONS)]
    }
