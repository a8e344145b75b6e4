"""What a task's rows come to: headline, metrics and groups, by hand."""

import math

import pytest

from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.scorers import get_scorer
from lmms_tasks.scoring.summary import GroupScore, Summary, summarise, summarise_scores
from paravt_infer.errors import BackendError, SettingsError
from tests.fixtures.results import choice_result, open_result, span_result

PARAVT = get_scorer("paravt")


def test_accuracy_is_over_rows_that_did_not_fail_and_no_answer_is_wrong() -> None:
    rows = [
        choice_result("B", "B", groups={"duration": "short", "domain": "Art"}),
        choice_result("A", "B", groups={"duration": "short", "domain": "Law"}),
        choice_result("", "B", groups={"duration": "long", "domain": "Law"}),
        choice_result(None, "B", groups={"duration": "medium", "domain": "Law"}),
    ]
    summary = summarise(rows, PARAVT)
    assert (summary.task, summary.scorer) == ("paravt_videomme", "paravt")
    assert (summary.count, summary.answered, summary.no_answer, summary.failed, summary.unscored) == (4, 2, 1, 1, 0)
    assert (summary.headline.name, summary.headline.value) == ("accuracy", pytest.approx(100 / 3))
    assert summary.groups == {
        "duration": {"long": GroupScore(count=1, score=0), "short": GroupScore(count=2, score=50)},
        "domain": {"Art": GroupScore(count=1, score=100), "Law": GroupScore(count=2, score=0)},
    }


def test_mlvu_is_the_mean_over_the_task_types_present() -> None:
    rows = [choice_result(said, "B", task="paravt_mlvu", groups={"task_type": kind}) for said, kind in
            [("B", "ego"), ("B", "ego"), ("B", "ego"), ("A", "brand new"), (None, "count")]]  # fmt: skip
    summary = summarise(rows, PARAVT)
    assert summary.metrics == {"macro": 50, "accuracy": 75}
    assert summary.headline.name == "macro"
    perfect = summarise(rows[:3], PARAVT)
    assert perfect.headline.value == 100


def test_charades_counts_every_row_though_two_are_alike_or_cannot_be_read() -> None:
    said = ["[5.0, 10.0]", "[5.0, 10.0]", "[5.0, 7.0]", "[5.0, 7.5]", "who knows", "", None]
    rows = [span_result(one, id="same video, caption and span", task="paravt_charades_sta") for one in said]
    summary = summarise(rows, PARAVT)
    assert (summary.count, summary.failed) == (7, 1)
    assert summary.headline.name == "miou"
    expected = {"miou": (1 + 1 + 0.4 + 0.5) / 6, "r@0.3": 4 / 6, "r@0.5": 3 / 6, "r@0.7": 2 / 6}
    assert summary.metrics == pytest.approx({name: 100 * value for name, value in expected.items()})


def test_mmvu_has_its_two_kinds_of_question_apart() -> None:
    rows = [
        choice_result("B", "B", task="paravt_mmvu", groups={"question_type": "multiple_choice"}),
        open_result("DFS", "BFS", groups={"question_type": "open_ended"}),
    ]
    summary = summarise(rows, PARAVT)
    assert summary.metrics == {"accuracy": 50}
    assert {kind: group.score for kind, group in summary.groups["question_type"].items()} == {
        "multiple_choice": 100,
        "open_ended": 0,
    }


def test_any_other_task_has_its_mean_score_by_every_group() -> None:
    rows = [choice_result("B", "B", task="sample_world", groups={"kind": "choice"}),
            span_result("[5, 7.5]", task="sample_world", groups={"kind": "grounding"})]  # fmt: skip
    summary = summarise(rows, PARAVT)
    assert (summary.headline.name, summary.headline.value) == ("score", 75)
    assert summary.groups["kind"]["grounding"].score == 50


def test_group_values_are_in_order_of_size() -> None:
    rows = [choice_result("B", "B", groups={"duration_group": value}) for value in ("3600", "15", "600", "60")]
    assert [*summarise(rows, PARAVT).groups["duration_group"]] == ["15", "60", "600", "3600"]


def test_failed_rows_are_never_shown_to_the_scorer_and_alone_come_to_nothing() -> None:
    def never(row: object) -> float:
        raise AssertionError

    summary = summarise([choice_result(None, "B")], Scorer(name="never", rule=never))
    assert math.isnan(summary.headline.value)
    again = Summary.model_validate_json(summary.model_dump_json())
    assert math.isnan(again.headline.value) and again.failed == 1


def test_a_row_that_the_scorer_could_not_score_is_counted_and_not_wrong() -> None:
    rows = [choice_result("B", "B"), choice_result("B", "B"), choice_result(None, "B")]
    summary = summarise_scores(rows, "judge", [1.0, None, None])
    assert (summary.headline.value, summary.unscored, summary.failed) == (100, 1, 1)

    def down(row: object) -> float:
        raise BackendError("the judge is down")

    with pytest.raises(BackendError, match="the judge is down"):
        summarise(rows, Scorer(name="judge", rule=down))


def test_rows_of_two_tasks_have_no_summary() -> None:
    with pytest.raises(SettingsError, match="one task's results, not those of 2"):
        summarise([choice_result("B", "B"), choice_result("B", "B", task="other")], PARAVT)
    with pytest.raises(SettingsError, match="not those of 0"):
        summarise([], PARAVT)
