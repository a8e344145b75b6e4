"""When a free answer is right: the rule of `is_right`, case by case."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lmms_tasks.scoring.open_answers import is_right


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("BFS", "BFS"),
        ("**red**", "Red."),
        ("the red car", "a red car"),
        ("depth first search", "Depth-First Search"),
        ("O(n^2)", "O(n²)"),
        ("\\boxed{3}", "3"),
        ("3", "3.0"),
        ("1,000", "1000"),
        ("three", "3"),
        ("one", "1"),
        ("1", "one"),
        ("50%", "50 percent"),
        ("3m/s", "3 m/s"),
        ("?", "?"),
    ],
)
def test_an_answer_that_equals_the_gold_is_right_however_it_is_written(answer: str, gold: str) -> None:
    assert is_right(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("It is a red car, I think.", "red car"),
        ("The algorithm is O(n^2).", "O(n²)"),
        ("There are 3 dogs", "3"),
        ("6 m in 2 s gives 3 m/s", "3 m/s"),
        ("At 00:12 there are 3", "3"),
        ("not depth-first search but BFS", "BFS"),
        ("It isn't red, it's blue", "blue"),
    ],
)
def test_an_answer_in_which_the_gold_stands_is_right(answer: str, gold: str) -> None:
    assert is_right(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("", "BFS"),
        ("  \n", "3 m/s"),
        ("30 m/s", "3 m/s"),
        ("13", "3"),
        ("-5", "5"),
        ("5", "-5"),
        ("3", "3 m/s"),
        ("3 m", "3 m/s"),
        ("3 m/s^2", "3 m/s"),
        ("3/4", "3"),
        ("3rd", "3"),
        ("Cubic", "cubic function"),
        ("redder", "red"),
        ("vitamin C", "vitamin A"),
        ("vitamin", "vitamin A"),
        ("x", "?"),
    ],
)
def test_another_number_sign_or_unit_and_a_part_are_wrong(answer: str, gold: str) -> None:
    assert not is_right(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold"),
    [
        ("not depth-first search but BFS", "depth-first search"),
        ("It isn't red, it's blue", "red"),
        ("There is no red car", "red car"),
        ("DFS is wrong", "DFS"),
    ],
)
def test_what_is_denied_is_not_answered(answer: str, gold: str) -> None:
    assert not is_right(answer, gold)


@pytest.mark.parametrize(
    ("answer", "gold", "right"),
    [
        ("BFS or DFS", "DFS", False),
        ("BFS or DFS", "BFS", False),
        ("3 or 4", "3", False),
        ("between 3 and 4", "3", False),
        ("3, not 4", "3", True),
        ("10 m/s, no, 3 m/s", "3 m/s", False),
        ("from left to right", "left", False),
        ("left, not right", "left", True),
        ("true", "false", False),
    ],
)
def test_an_answer_that_says_two_things_of_a_kind_is_wrong(answer: str, gold: str, right: bool) -> None:
    assert is_right(answer, gold) == right


@pytest.mark.parametrize(
    ("answer", "says"),
    [("Yes, there is no car", "yes"), ("No.", "no"), ("No, but yes for others", "no"), ("The answer is yes", "yes")],
)
def test_an_answer_that_begins_with_yes_or_no_is_that(answer: str, says: str) -> None:
    assert [gold for gold in ("yes", "no") if is_right(answer, gold)] == [says]


@pytest.mark.parametrize("answer", ["DFS", "depth-first search", "It is depth first search (DFS)."])
def test_a_gold_may_be_given_by_its_acronym_or_without(answer: str) -> None:
    assert is_right(answer, "Depth-First Search (DFS)")
    assert not is_right(answer, "Breadth-First Search (BFS)")
    assert not is_right("AB", "something (AB)")


@given(st.text())
def test_any_text_is_right_for_itself_and_nothing_is_right_for_none(text: str) -> None:
    assert is_right(text, text) == bool(text.strip())
    assert not is_right("", text)
