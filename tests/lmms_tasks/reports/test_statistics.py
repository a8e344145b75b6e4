"""The A/B statistics, on numbers that can be worked out by hand."""

import io
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from rich.console import Console

from lmms_tasks.reports.pairs import pairs_table, save_pairs
from lmms_tasks.reports.statistics import Comparison, bootstrap_interval, compare
from lmms_tasks.reports.tables import comparison_table
from lmms_tasks.results import EvalResult
from paravt_infer.errors import SettingsError
from tests.fixtures.arms import EXACT, arm_result


def arms() -> tuple[list[EvalResult], list[EvalResult]]:
    """Ten questions. Right in both 4, in the first alone 3, in the second alone 1, in neither 2."""
    first = [arm_result(str(n), "A" if n < 7 else "B", seconds=2.0) for n in range(10)]
    second = [arm_result(str(n), "A" if n < 4 or n == 7 else "B", seconds=3.0) for n in range(10)]
    return first, second


def test_the_difference_is_the_second_arm_less_the_first_in_points() -> None:
    part = compare(*arms(), EXACT).overall
    assert (part.pairs, part.left_out) == (10, 0)
    assert (part.a.score, part.b.score, part.difference) == (70.0, 50.0, -20.0)
    assert (part.a.right, part.b.right, part.only_a_right, part.only_b_right) == (7, 5, 3, 1)


def test_mcnemar_is_exact_and_two_sided() -> None:
    # Four flips, one of them the other way: 2 * (C(4,0) + C(4,1)) / 2^4.
    assert compare(*arms(), EXACT).overall.p == pytest.approx(10 / 16)


def test_the_interval_is_the_paired_bootstraps() -> None:
    part = compare(*arms(), EXACT).overall
    changes = np.array([0] * 4 + [-100] * 3 + [100] + [0] * 2)
    drawn = np.random.default_rng(5).choice(changes, (20_000, 10)).mean(axis=1)
    assert part.interval is not None
    assert part.interval == pytest.approx(np.percentile(drawn, [2.5, 97.5]), abs=10.0)  # means come in steps of 10
    assert part.interval[0] < -20 < part.interval[1]


def test_the_order_of_the_second_arm_does_not_matter_and_a_seed_repeats_the_interval() -> None:
    first, second = arms()
    once = compare(first, second, EXACT, seed=3)
    assert compare(first, second[::-1], EXACT, seed=3) == once
    assert Comparison.model_validate_json(once.model_dump_json()) == once


def test_a_failed_episode_leaves_its_pair_out_and_is_counted_in_its_arm() -> None:
    first = [arm_result("1", status="failed"), arm_result("2"), arm_result("3"), arm_result("4", None)]
    second = [arm_result("1"), arm_result("2", status="failed"), arm_result("3"), arm_result("4", "A")]
    part = compare(first, second, EXACT).overall
    assert (part.pairs, part.left_out, part.a.failed, part.b.failed) == (2, 2, 1, 1)
    assert (part.a.score, part.b.score) == (50.0, 100.0)  # no answer is a wrong one
    assert (part.a.no_answer, part.only_b_right) == (1, 1)


@pytest.mark.parametrize(
    ("first", "second", "difference", "interval", "p", "said"),
    [
        ("AAAA", "AAAA", 0.0, (0.0, 0.0), 1.0, "that point"),
        ("AAA", "BBB", -100.0, (-100.0, -100.0), 0.25, "that point"),
        ("A", "B", -100.0, None, 1.0, "a single pair has no interval"),
        ("x", "A", None, None, None, "nothing to compare"),
    ],
    ids=["all alike", "all worse", "one pair", "no pair"],
)
def test_where_there_is_little_to_draw_from_it_says_so(
    first: str, second: str, difference: float | None, interval: Any, p: float | None, said: str
) -> None:
    def rows(answers: str) -> list[EvalResult]:
        return [arm_result(str(n), a, status="failed" if a == "x" else "", seconds=1.0) for n, a in enumerate(answers)]

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = compare(rows(first), rows(second), EXACT)
    assert (found.overall.difference, found.overall.interval, found.overall.p) == (difference, interval, p)
    assert said in _printed(found)


def test_a_grounding_answer_is_right_from_half_an_iou_on() -> None:
    first = [arm_result("1", "0.49"), arm_result("2", "0.5"), arm_result("3", "0.9")]
    second = [arm_result("1", "0.51"), arm_result("2", "0.5"), arm_result("3", "0.1")]
    found = compare(first, second, EXACT)
    assert [pair.flipped for pair in found.pairs] == [True, False, True]
    assert found.overall.a.score == pytest.approx(63.0)


def test_latency_is_by_arm_and_question_by_question() -> None:
    first = [arm_result(str(n), seconds=float(n)) for n in (1, 2, 3, 4, 100)]
    second = [arm_result(str(n), seconds=2.0 * n if n < 100 else 50.0) for n in (1, 2, 3, 4, 100)]
    part = compare(first, second, EXACT).overall
    assert (part.a.seconds_p50, part.b.seconds_p50) == (3.0, 6.0)
    assert part.a.seconds_p95 == pytest.approx(np.percentile([1, 2, 3, 4, 100], 95))
    assert part.seconds_ratio == 2.0  # the median of 2, 2, 2, 2 and 0.5


def test_tokens_and_calls_are_means_over_the_pairs() -> None:
    spent = {"main_visual_tokens": 100, "main_prompt_tokens": 700, "output_tokens": 30, "calls": 2}
    first = [arm_result("1", predicted_parallel=500.0, predicted_sequential=1000.0, **spent), arm_result("2")]
    arm = compare(first, [arm_result("1"), arm_result("2")], EXACT).overall.a
    assert (arm.main_visual_tokens, arm.main_prompt_tokens, arm.output_tokens, arm.calls) == (50, 350, 15, 1)
    assert (arm.predicted_parallel, arm.predicted_sequential) == (250, 500)


def test_each_task_has_figures_of_its_own() -> None:
    first = [arm_result("1", task="s"), arm_result("1", "B", task="t"), arm_result("2", "A", task="t")]
    second = [arm_result("1", task="s"), arm_result("1", "A", task="t"), arm_result("2", "A", task="t")]
    found = compare(first, second, EXACT, names=("one", "two"))
    assert {name: (part.pairs, part.difference) for name, part in found.tasks.items()} == {
        "s": (1, 0.0),
        "t": (2, 50.0),
    }
    assert found.overall.difference == pytest.approx(100 / 3)
    printed = _printed(found)
    assert "+33.3 points" in printed and "+50.0" in printed and "one" in printed


@pytest.mark.parametrize(
    ("second", "fault"),
    [
        ([arm_result("1")], "1 questions are in one arm only, such as '2' of t"),
        ([arm_result("1"), arm_result("2"), arm_result("2")], "second arm: question '2' of t occurs twice"),
        ([arm_result("1"), arm_result("2", gold="B")], "question '2' of t differs between the arms"),
    ],
)
def test_arms_that_do_not_hold_the_same_questions_are_refused(second: list[EvalResult], fault: str) -> None:
    with pytest.raises(SettingsError, match=fault):
        compare([arm_result("1"), arm_result("2")], second, EXACT)


def test_a_macro_averages_interval_draws_each_stratum_by_itself() -> None:
    # A large and a small type weigh the same; one value alone cannot vary.
    low, high = bootstrap_interval([[100.0] * 50, [0.0]]) or (None, None)
    assert (low, high) == (50.0, 50.0)
    low, high = bootstrap_interval([[0.0, 100.0] * 50, [0.0]]) or (None, None)
    assert low == pytest.approx(20, abs=3) and high == pytest.approx(30, abs=3)
    assert bootstrap_interval([[1.0]]) is None and bootstrap_interval([]) is None


def test_the_pairs_are_a_parquet_table_with_a_line_a_question(tmp_path: Path) -> None:
    first, second = arms()
    first.append(arm_result("10", status="failed"))
    second.append(arm_result("10", "B", calls=3))
    found = compare(first, second, EXACT, names=("p", "s"))
    save_pairs(found, first, second, tmp_path / "new" / "pairs.parquet")
    read = pq.read_table(tmp_path / "new" / "pairs.parquet")
    assert read.equals(pairs_table(found, first, second))
    assert read.schema.metadata[b"b"] == b"s"
    lines = read.to_pylist()
    assert [line["id"] for line in lines if line["flipped"]] == ["4", "5", "6", "7"]
    assert lines[4] == {
        "task": "t", "id": "4", "gold": "A", "flipped": True,
        "a_status": "answered", "a_answer": "A", "a_score": 1.0, "a_seconds": 2.0, "a_calls": 0,
        "b_status": "answered", "b_answer": "B", "b_score": 0.0, "b_seconds": 3.0, "b_calls": 0,
    }  # fmt: skip
    assert (lines[10]["a_score"], lines[10]["a_answer"], lines[10]["flipped"]) == (None, None, None)
    assert lines[10]["b_calls"] == 3


def _printed(found: Comparison) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(comparison_table(found))
    return console.file.getvalue()  # type: ignore[attr-defined]
