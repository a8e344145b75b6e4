"""R_acc by rule: worked values, hard readings and every fault of the public release."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from paravt_infer.errors import SettingsError
from paravt_training.rewards.accuracy import GoldAnswer, accuracy_reward, token_f1

FOUR = {"A": "a red car", "B": "a blue car", "C": "a dog", "D": "a man"}
TEN = {letter: f"thing number {number}" for number, letter in enumerate("ABCDEFGHIJ")}


def earners(said: str, options: dict[str, str]) -> str:
    """The options that an answer is right for."""
    return "".join(x for x in options if accuracy_reward(said, GoldAnswer(answer=x, kind="choice", options=options)))


@pytest.mark.parametrize(
    ("said", "right_for"),
    [
        ("B", "B"),
        ("(b)", "B"),
        ("A blue car.", "B"),
        ("B. a blue car", "B"),
        ("The answer is B, not A or C.", "B"),
        ("B because A, C and D are wrong", "B"),
        ("Between A and B, I choose B", "B"),
        ("B. A man walks by", "B"),
        ("**B** (B)", "B"),
        ("B\n\nC is less likely", "B"),
        ("A. a red car\nB. a blue car\nThe answer is B.", "B"),
        ("I cannot tell", ""),
        ("", ""),
    ],
)
def test_a_choice_is_right_for_the_option_it_commits_to(said: str, right_for: str) -> None:
    assert earners(said, FOUR) == right_for


@pytest.mark.parametrize("letter", "ABCDEFGHIJ")
def test_every_letter_can_be_right(letter: str) -> None:
    """The release knows A to D: gold E and beyond always scores 0."""
    assert earners(letter, TEN) == earners(f"The answer is {letter}.", TEN) == letter


@pytest.mark.parametrize("said", ["the", "...", "a", "A man walks", "The", "an answer"])
def test_an_article_is_no_answer_a(said: str) -> None:
    """In the release gold A is right for "the" and "..."."""
    assert earners(said, {"A": "red", "B": "blue"}) == ("A" if said == "a" else "")


def test_two_letters_are_not_both_right() -> None:
    """In the release "Option A. The answer is B" is right for both."""
    assert earners("Option A. The answer is B", FOUR) == "B"


@pytest.mark.parametrize(
    "said",
    [
        "A, B, C, D", "A B C D", "ABCD", "A/B/C/D", "D, C, B, A", "(A) (B) (C) (D)", "(a) (b) (c) (d)", "A\nB\nC\nD",
        "A. B. C. D.", "A or B", "A and B", "B, A and C", "Either A or B", "A, B, C and D are all right",
        "The answer is A, B, C, D", "option A, option B, option C, option D", r"\boxed{A, B}", "all of them",
        "A. a red car\nB. a blue car\nC. a dog\nD. a man", "A. a red car B. a blue car", "a red car, a blue car",
    ],
)  # fmt: skip
def test_several_letters_at_once_are_right_for_none(said: str) -> None:
    assert earners(said, FOUR) == ""


def test_letters_count_where_options_are_not_known() -> None:
    assert accuracy_reward("(F)", GoldAnswer(answer="F. six", kind="choice")) == 1
    assert accuracy_reward("A, F", GoldAnswer(answer="F", kind="choice")) == 0


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("The red car!", "a red car", 1),
        ("a car", "a red car", 2 / 3),
        ("he opens the red door", "opens a door", 2 / 3),
        ("red red", "red", 2 / 3),  # the release counts a repeated word once
        ("10,000", "10000", 1),  # punctuation goes, as in SQuAD, and leaves no gap
        ("the U.S.", "US", 1),
        ("Don't!", "dont", 1),
        ("well-known", "well known", 0),
        ("a dog", "a cat", 0),
        ("...", "a cat", 0),
        (None, "a cat", 0),
    ],
)
def test_an_open_answer_scores_token_f1(said: str | None, right: str, score: float) -> None:
    assert accuracy_reward(said, GoldAnswer(answer=right, kind="open")) == pytest.approx(score)


@pytest.mark.parametrize(
    ("said", "right", "score"),
    [
        ("[12, 30]", "[12, 30]", 1),
        ("[12, 21]", "[12, 30]", 0.5),
        ("[30, 40]", "[12, 30]", 0),
        ("12.0 - 18.5 seconds", "[12.0, 18.5]", 1),  # the release needs a comma: 0
        ("1.5.2, 3", "[1.5, 3]", 0),  # the release raises
        ("[1.2, 30]", "[12, 30]", 18 / 28.8),  # the release takes it for [12, 30]
        ("00:12.5 to 00:17.8", "[12.5, 17.8]", 1),
        ("30 to 12", "[12, 30]", 0),
        ("12", "[12, 30]", 0),
        ("the whole time", "[12, 30]", 0),
        (None, "[12, 30]", 0),
    ],
)
def test_a_span_scores_its_intersection_over_union(said: str | None, right: str, score: float) -> None:
    assert accuracy_reward(said, GoldAnswer(answer=right, kind="grounding")) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "kind", "says"),
    [
        ("E", "choice", "gold answer 'E': not one of the options A, B, C, D; fix the row"),
        ("", "choice", "gold answer '': not one of"),
        ("[30, 12]", "grounding", "gold answer '[30, 12]': not [start, end] in seconds; fix the row"),
        ("12", "grounding", "gold answer '12': not"),
        (" ... ", "open", "gold answer ' ... ': has no words; fix the row"),
    ],
)
def test_a_gold_answer_that_nothing_could_match_is_an_error(answer: str, kind: str, says: str) -> None:
    with pytest.raises(SettingsError) as caught:
        GoldAnswer(answer=answer, kind=kind, options=FOUR if kind == "choice" else {})  # type: ignore[arg-type]
    assert str(caught.value).startswith(says)


LETTERY = st.lists(st.sampled_from([*"ABCDabcdI", " ", ", ", ".", "\n", "(", ")", "and", "or", "is", "answer", "12"]))


@given(said=st.text() | LETTERY.map("".join) | LETTERY.map(" ".join))
@settings(deadline=None)
def test_any_text_scores_between_0_and_1_and_is_right_for_one_option_at_most(said: str) -> None:
    assert len(earners(said, FOUR)) <= 1
    for gold in (GoldAnswer(answer="a red car", kind="open"), GoldAnswer(answer="[12, 30]", kind="grounding")):
        assert 0 <= accuracy_reward(said, gold) <= 1


@given(st.text(), st.text())
def test_token_f1_is_symmetric_and_between_0_and_1(one: str, two: str) -> None:
    assert 0 <= token_f1(one, two) == token_f1(two, one) <= 1


@pytest.mark.parametrize(
    ("said", "right", "f1"), [("3.5", "5.3", 0), ("3.5 m", "3.5", 2 / 3), ("It is 3.5.", "3.5", 0.5), ("the", "A", 0)]
)
def test_a_decimal_is_one_word(said: str, right: str, f1: float) -> None:
    assert token_f1(said, right) == pytest.approx(f1)
