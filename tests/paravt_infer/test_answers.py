"""Where the answer of a response stands, and which option it commits to, hard readings among them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.answers import (
    ExtractedAnswer,
    affirmed_matches,
    extract_answer,
    extract_choice,
    normalise_text,
    normalised_words,
)

CALL = '<tool_call>{"name": "crop_video", "arguments": {}}</tool_call>'


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<answer>B</answer>", "B"),
        ("<think>red?</think><answer> B </answer>", "B"),
        ("<ANSWER>B</ANSWER>", "B"),
        ("<answer>two\nlines</answer>", "two\nlines"),
        ("<answer>A</answer> no: <answer>B</answer>", "B"),
        ("<think>perhaps <answer>A</answer></think><answer>B</answer>", "B"),
        ("<think>it is <answer>A</answer></think> as I said", "A"),
        ("<answer>A</answer><answer>B", "B"),
        ("<answer>A<answer>B</answer>", "B"),
        ("<answer>B</answer><think>A was tempting</think>", "B"),
        ("<answer>B</answer>\n\nReasoning: A and C show no car.", "B"),
        ("<answer>B", "B"),
        ("<answer>B<|im_end|>", "B"),
        (f"{CALL}<answer>B</answer>", "B"),
        (f"<answer>B {CALL}</answer>", "B"),
        ("<tool_response><answer>A</answer></tool_response><answer>B</answer>", "B"),
    ],
)
def test_the_last_answer_block_is_the_answer_even_left_open(response: str, text: str) -> None:
    assert extract_answer(response) == ExtractedAnswer(text, "answer_block")


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("<think>red or blue</think>\nThe answer is B.\nSurely.", "The answer is B.\nSurely."),
        ("no opening</think>B", "B"),
        ("<think>a</think>x<think>b</think>B", "B"),
        (f"<think>a</think>{CALL} B", "B"),
        ("<think>I would write <answer>A</think> B", "B"),
    ],
)
def test_without_a_block_what_follows_the_thought_is_the_answer(response: str, text: str) -> None:
    assert extract_answer(response) == ExtractedAnswer(text, "after_think")


@pytest.mark.parametrize(
    ("response", "text"),
    [
        ("It is red.\nSo: B\n\n", "So: B"),
        ("<think>red\nso B</think>\n", "so B"),
        ("<think>never closed\nB", "B"),
        (f"B\n{CALL}\n", "B"),
    ],
)
def test_else_the_last_line_that_says_something_is(response: str, text: str) -> None:
    assert extract_answer(response) == ExtractedAnswer(text, "last_line")


@pytest.mark.parametrize(
    "response",
    [
        "",
        " \n ",
        "<answer></answer>",
        "<answer> \n</answer>",
        "<answer>A</answer><answer></answer>",
        "<think>B</think><answer>",
        CALL,
        "<tool_code>crop_video(1, 2)",
        "<tool_response><answer>A</answer></tool_response>",
        "<tool_response>the answer is A",
        "<think></think>",
        "<|im_end|>",
    ],
)
def test_where_nothing_was_answered_there_is_no_answer(response: str) -> None:
    assert extract_answer(response) is None


CARS = {"A": "a red car", "B": "a blue car", "C": "a man", "D": "dark red"}
TEN = {letter: f"thing number {number}" for number, letter in enumerate("ABCDEFGHIJ")}
NUMBERS = {"A": "3", "B": "3.5", "C": "30", "D": "13"}


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B", "B"), ("b", "B"), ("B.", "B"), ("(B)", "B"), ("[b]", "B"), ("**B**", "B"), ("`B`", "B"), ('"B"', "B"),
        ("\\boxed{B}", "B"), ("so $\\boxed{\\text{B}}$, not $A$", "B"), ("\\boxed{A} or better \\boxed{(B)}", "B"),
    ],
)  # fmt: skip
def test_a_letter_alone_is_the_option_however_it_is_dressed(text: str, letter: str) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("a blue car", "B"),
        ("A Blue Car.", "B"),
        ("A man", "C"),
        ("Answer: A man", "C"),
        ("It shows a blue car, driving.", "B"),
        ("dark red", "D"),
        ("The car is dark red, not a blue car", "D"),
        ("It isn’t a blue car but a red car", "A"),
        ("either a red car or a blue car", None),
        ("a redcarpet", None),
    ],
)
def test_the_text_of_just_one_option_names_it(text: str, letter: str | None) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    ("text", "letter"), [("3.5", "B"), ("About 3.5.", "B"), ("There are 3 dogs", "A"), ("13", "D")]
)
def test_a_number_is_not_found_inside_another(text: str, letter: str) -> None:
    assert extract_choice(text, NUMBERS) == letter
    assert extract_choice("At 30.5 or 133 or 0.3", NUMBERS) is None


def test_a_longer_option_hides_those_inside_it() -> None:
    options = {"A": "red", "B": "dark red", "C": "a dark red car"}
    assert extract_choice("I see dark red.", options) == "B"
    assert extract_choice("I see a dark red car.", options) == "C"
    assert extract_choice("I see red.", options) == "A"
    assert extract_choice("I see dark red and red.", options) is None


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("the answer is b", "B"),
        ("The answer is a.", "A"),
        ("The final answer is: (B)", "B"),
        ("Answer: B", "B"),
        ("**Answer:** B", "B"),
        ("**Answer**: B", "B"),
        ("The answer is:\n\nB", "B"),
        ("The correct answer would be option B", "B"),
        ("the answer must be the letter b", "B"),
        ("The answer is A because it is red", "A"),
        ("A man is walking so the answer is C", "C"),
        ("Option A. The answer is B", "B"),
        ("A. red\nB. blue\nThe answer is B.", "B"),
        ("The answer is A. Wait, the answer is B", "B"),
        ("Initially I thought A. Actually it's B.", "B"),
        ("A. No wait, actually B.", "B"),
        ("**Answer:** B. Option C is wrong", "B"),
        ("The answer is the second one, B", "B"),
        ("答案是B", "B"),
    ],
)
def test_a_stated_answer_counts_before_any_other_letter(text: str, letter: str) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("B. a blue car", "B"),
        ("b) blue", "B"),
        ("B: blue, unlike option C", "B"),
        ("(B) blue", "B"),
        ("**B** since it is blue", "B"),
        ("B\n\nOption C is less likely", "B"),
        ("I choose option b", "B"),
        ("I'd pick b", "B"),
        ("I think it's b", "B"),
        ("<b>B</b>", "B"),
        ("choice (B)", "B"),
        ("It shows (b), I believe", "B"),
        ("I would go with B", "B"),
        ("Vitamin C is shown, so D", "D"),
    ],
)
def test_otherwise_a_letter_at_the_start_or_one_that_stands_alone_does(text: str, letter: str) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("The correct answer is option (C), not (A).", "C"),
        ("The correct answer is not A but B", "B"),
        ("The answer isn't B, it's C", "C"),
        ("The answer isn’t B; C", "C"),
        ("B rather than option A", "B"),
        ("A is wrong, so B", "B"),
        ("B is right. D is wrong.", "B"),
        ("I am not sure but B", "B"),
        ("No doubt B", "B"),
        ("(A) is incorrect, (B) is correct", "B"),
        ("I'd choose A over B", "A"),
        ("A is better than B", "A"),
        ("It cannot be A", None),
        ("There is no red car, only a man", "C"),
        ("A red car is wrong. A man", "C"),
        ("It is not red. B", "B"),
        ("It is not option A", None),
        ("Neither A nor B", None),
        ("not A or B", None),
        ("A is incorrect", None),
    ],
)
def test_a_letter_that_is_denied_is_none(text: str, letter: str | None) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    ("text", "letter"),
    [
        ("A or B", None),
        ("A/B", None),
        ("Both A and C.", None),
        ("A or B? I think B.", "B"),
        ("Between A and B, I choose B", "B"),
        ("A. a red car\nB. a blue car\nC. a man\nD. dark red", None),
        ("(A) a red car\n(B) a blue car\n(C) a man\n(D) dark red\nIt is (B).", "B"),
    ],
)
def test_letters_that_are_only_named_side_by_side_commit_to_none(text: str, letter: str | None) -> None:
    assert extract_choice(text, CARS) == letter


@pytest.mark.parametrize(
    "text",
    [
        "", "the", "...", "?", "I Can't tell", "I can't tell", "I’d say nothing", "a 3D model", "It was D-Day",
        "e.g. this one", "C++ code", "in the U.S.A. today",
        "A strange thing", "K", "AB", "The answer is unclear", "<answer></answer>",
        "[LMMS_EVAL_REQUEST_FAILED after 5 tries] Connection error.",
    ],
)  # fmt: skip
@pytest.mark.parametrize("options", [CARS, TEN], ids=["four options", "ten options"])
def test_what_commits_to_no_option_is_none(text: str, options: dict[str, str]) -> None:
    assert extract_choice(text, options) is None


@pytest.mark.parametrize("letter", list(TEN))
@pytest.mark.parametrize(
    "form", ["{}", "({})", "{}.", "The answer is {}.", "Answer: {}", "I choose option {}", "so it is {}"]
)
def test_every_letter_is_read_alike(letter: str, form: str) -> None:
    assert extract_choice(form.format(letter), TEN) == letter
    assert extract_choice(form.format(letter.lower()), TEN) in (letter, None)


def test_a_letter_beyond_the_options_is_none() -> None:
    assert extract_choice("E", CARS) is None
    assert extract_choice("The answer is E", CARS) is None


def test_two_options_with_one_text_are_told_apart_by_letter_only() -> None:
    options = {"A": "yes", "B": "yes", "C": "no", "D": "..."}
    assert extract_choice("yes", options) is None
    assert extract_choice("B. yes", options) == "B"
    assert extract_choice("...", options) is None


COLOURS = {"A": "Red", "B": "Blue", "C": "No colour"}


@pytest.mark.parametrize(
    ("text", "letter"),
    [("It's not red, blue", "B"), ("red, not blue", "A"), ("the red one", "A"), ("no colour at all", "C")],
)
def test_a_denial_ends_with_its_phrase(text: str, letter: str) -> None:
    assert extract_choice(text, COLOURS) == letter


def test_an_option_that_is_a_number_is_named_by_its_value() -> None:
    assert extract_choice("There are three dogs", NUMBERS) == extract_choice("3.0", NUMBERS) == "A"
    assert extract_choice("-3", NUMBERS) is None


@pytest.mark.parametrize(
    ("text", "plain"),
    [
        ("The Depth-First search.", "depth first search ,"),
        ("3.0 = three", "3 3"),
        ("1,000.50", "1000.5"),
        ("3m/s, -5%", "3 m/s , -5 %"),
        ("50 percent", "50 %"),
        ("3-4", "3 4"),
        ("00:12, 3/4, 10^-3, 3rd, 3D, 1.2.3", "00:12 , 3/4 , 10^-3 , 3rd , 3d , 1.2.3"),
        ("O(n²)", "o n^2"),
        ("**Isn’t** `it`?", "isn't it ,"),
        ("vitamin A", "vitamin a"),
        ("a vitamin", "vitamin"),
        ("the", "the"),
        ("--", ""),
    ],
)
def test_normalised_text_is_words_numbers_and_pauses(text: str, plain: str) -> None:
    assert normalise_text(text) == plain


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a big dog", True),
        ("big, dog", True),
        ("big dogs", False),
        ("not a big dog", False),
        ("no big dog", False),
        ("not a cat but a big dog", True),
        ("big dog is wrong", False),
        ("big dog is not barking", True),
    ],
)
def test_words_are_said_where_they_stand_whole_and_undenied(text: str, said: bool) -> None:
    assert any(affirmed_matches(normalise_text(text), ["big", "dog"])) == said


@given(st.text() | st.lists(st.sampled_from(["1", ",", ".5", "-", "/", "a", " ", "the", "²", "3d", "%"])).map("".join))
def test_any_text_can_be_normalised(text: str) -> None:
    assert normalised_words(text) == [word for word in normalise_text(text).split(" ") if word not in ("", ",")]


WORDS = st.sampled_from(
    [
        "the answer is ",
        "A",
        "b",
        "(C)",
        "D.",
        " not ",
        "option ",
        "I ",
        "\\boxed{",
        "}",
        "\n",
        "'",
        "’",
        "<answer>",
        " is wrong",
        "a man",
    ]
)


@pytest.mark.parametrize("said", ["\\boxed{", "answer", "answer is", "A", "I can't", "a red car", "not"])
@pytest.mark.parametrize("filler", [" ", "*", " a blue car ", " A "], ids=["blanks", "stars", "options", "letters"])
def test_long_texts_are_read_too(said: str, filler: str) -> None:
    assert extract_choice(f"{said}{filler * 3000}?", CARS) in {*CARS, None}
    assert extract_choice(f"{said}{filler * 3000}\nThe answer is D", CARS) == "D"


@given(st.text() | st.lists(WORDS, max_size=10).map("".join), st.dictionaries(st.sampled_from("ABCDEFGHIJ"), st.text()))
def test_any_text_reads_as_one_of_the_options_or_as_none(text: str, options: dict[str, str]) -> None:
    assert extract_choice(text, options) in {*options, None}


PIECES = st.sampled_from(
    ["<answer>", "</answer>", "<think>", "</think>", CALL, "<tool_response>", "\n", "B", "<|im_end|>"]
)


@given(st.lists(PIECES | st.text(), max_size=12).map("".join))
def test_any_text_reads_as_an_answer_or_as_none(response: str) -> None:
    reading = extract_answer(response)
    assert reading is None or reading.text == reading.text.strip() != ""
