"""Which span an answer commits to, in every form that models were seen to write, and how alike two spans are."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.answers import extract_span, span_iou
from paravt_infer.times import format_time


@pytest.mark.parametrize(
    "text",
    [
        "[5.0, 10.0]",
        "[5,10]",
        "(5.0, 10.0)",
        "5.0, 10.0",
        "[5.0s, 10.0s]",
        "5 - 10",
        "5-10",
        "5s–10s",
        "5.0 to 10.0 seconds",
        "5 seconds to 10 seconds into the video",
        "from 5.0s until 10.0s",
        "From second 5 to second 10",
        "t=5s to t=10s",
        "**5.0** to **10.0**",
        "The answer is [5.0, 10.0].",
        "\\boxed{[5, 10]}",
        "The event happens in 5.0 - 10.0 seconds",
        "The event 'person opens 2 doors' happens in the 5.0 - 10.0 seconds.",
        "time:5.0-10.0",
        "Between 5 and 10 seconds",
        "between 00:05 and 00:10",
        "[00:05, 00:10]",
        "00:00:05 - 00:00:10",
        "start: 5.0, end: 10.0",
        "start=5 end=10",
        "Start time: 5.0 seconds\nEnd time: 10.0 seconds",
        "starts at 5 seconds and ends at 10 seconds",
        "It begins at 5 s, lasting 5 seconds, and finishes at 10 s.",
        '{"start": 5, "end": 10}',
        '{"start_time": "00:05", "end_time": "00:10"}',
        "<start>5</start><end>10</end>",
    ],
)
def test_one_span_in_many_forms(text: str) -> None:
    assert extract_span(text) == (5.0, 10.0)


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("12.0 - 18.5 seconds", (12.0, 18.5)),
        ("starts at 5.2 seconds and ends at 9.8 seconds", (5.2, 9.8)),
        ("00:12.5 to 00:17.8", (12.5, 17.8)),
        ("01:02:03 - 01:02:10", (3723.0, 3730.0)),
        ("1:05 to 3 minutes", (65.0, 180.0)),
        ("1 min 5 s to 1 min 9 s", (65.0, 69.0)),
        ("1m5s-1m9s", (65.0, 69.0)),
        ("2 to 3 minutes", (120.0, 180.0)),
        ("2 s to 3 minutes", (2.0, 180.0)),
    ],
)
def test_clocks_and_minutes_are_seconds(text: str, span: tuple[float, float]) -> None:
    assert extract_span(text) == span


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("First 1 to 2 s, no: 5 to 10 s", (5.0, 10.0)),
        ("[[5, 10], [20, 30]]", (20.0, 30.0)),
        ("Not 3 to 4 but 12 to 15", (12.0, 15.0)),
        ("12 to 15, not 5 to 10", (12.0, 15.0)),
        ("from 5 to 10. The clip ends at 60.", (5.0, 10.0)),
        ("5.0 to 10.0, 5 seconds long", (5.0, 10.0)),
        ("<think>the event is at 1 to 2</think><answer>[5, 10]</answer>", (5.0, 10.0)),
        ("<answer>[5, 10]</answer><think>I looked at 1 to 2 first</think>", (5.0, 10.0)),
        ("<think>from 1 to 2</think>It happens from 5 to 10", (5.0, 10.0)),
        ("<answer>[5, 10]", (5.0, 10.0)),
    ],
)
def test_the_last_span_of_the_answer_counts_and_a_denied_one_does_not(text: str, span: tuple[float, float]) -> None:
    assert extract_span(text) == span


@pytest.mark.parametrize(
    "text",
    [
        "", "never", "7", "at 7 seconds", "[7]", "5 and 10", "I see 5 dogs and 10 cats",
        "10 to 5", "[5, 5]", "5 to 10, or rather 10 to 5",
        "1.5.2, 3", "[1, 2, 3]", "5-10-15", "2024-05-06", "5:0 to 10", "1:05 - 1:75",
        "[-5, 10]", "start: -5, end: 10", "5% to 10%", "5 to 10%", "frames 5 to 10", "[12 30]",
        "not 5 to 10", "ends at 10", "<think>from 5 to 10</think><answer></answer>",
        '<tool_call>{"arguments": {"start": 5, "end": 10}}</tool_call>',
        "[LMMS_EVAL_REQUEST_FAILED after 5 tries] Connection error.",
    ],
)  # fmt: skip
def test_where_no_span_was_said_there_is_none(text: str) -> None:
    assert extract_span(text) is None


def test_a_number_is_read_whole_or_not_at_all() -> None:
    assert extract_span("[1.2, 30]") == (1.2, 30.0)
    assert extract_span("[10.5, 12.25]") == (10.5, 12.25)
    assert extract_span("1,000 to 2,000") is None


TENTHS = st.integers(0, 50_000)
NUMBERS = ["[{}, {}]", "{} - {}", "{}-{}", "{} to {} seconds", "between {} and {} s", "start: {}, end: {}",
           "starts at {} seconds and ends at {} seconds", '{{"start": {}, "end": {}}}', "It happens in {} - {}.",
           "<think>1 to 2, 3 to 4</think><answer>{}, {}</answer>"]  # fmt: skip
CLOCKS = ["[{}, {}]", "{} - {}", "{} to {}", "from {} until {}", "start: {} end: {}"]


@given(TENTHS, TENTHS, st.sampled_from(NUMBERS))
def test_any_span_of_numbers_is_read_back(one: int, other: int, form: str) -> None:
    start, end = sorted((one / 10, other / 10))
    assert extract_span(form.format(start, end)) == ((start, end) if start < end else None)


@given(TENTHS, TENTHS, st.sampled_from(CLOCKS))
def test_any_span_of_clocks_is_read_back(one: int, other: int, form: str) -> None:
    start, end = sorted((one / 10, other / 10))
    read = extract_span(form.format(format_time(start), format_time(end)))
    assert read == (pytest.approx((start, end)) if start < end else None)


PIECES = st.sampled_from(
    [
        "5",
        "10.5",
        "9" * 400,
        "00:12",
        " ",
        ",",
        "-",
        " to ",
        "start",
        "end",
        "min",
        "s",
        "[",
        "]",
        "not ",
        "between ",
        "and",
        "<answer>",
        "</think>",
        ".",
        ":",
        "\n",
        "%",
        "frame ",
    ]
)


@given(st.text() | st.lists(PIECES, max_size=14).map("".join))
def test_any_text_has_a_span_that_begins_before_it_ends_or_none(text: str) -> None:
    span = extract_span(text)
    assert span is None or 0 <= span[0] < span[1]


@pytest.mark.parametrize("piece", ["1", "1, ", "1.2 ", "start 5 ", "5 - ", "between 5 ", " ", "1 min ", "1:2"])
def test_long_texts_are_read_too(piece: str) -> None:
    assert extract_span(f"{piece * 5000}\nso from 5 to 10") == (5.0, 10.0)


@pytest.mark.parametrize(
    ("one", "other", "share"),
    [
        ((0.0, 4.0), (2.0, 6.0), 1 / 3),
        ((0.0, 4.0), (0.0, 4.0), 1.0),
        ((0.0, 4.0), (1.0, 3.0), 0.5),
        ((0.0, 4.0), (4.0, 8.0), 0.0),
        ((0.0, 4.0), (100.0, 101.0), 0.0),
        ((0.0, 4.0), None, 0.0),
        ((0.0, math.inf), (0.0, 1.0), 0.0),
    ],
)
def test_iou_is_the_shared_part_of_what_both_cover(
    one: tuple[float, float], other: tuple[float, float] | None, share: float
) -> None:
    assert span_iou(one, other) == span_iou(other, one) == pytest.approx(share)
