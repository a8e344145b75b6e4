"""What a time may be written as, and that nothing else passes for one."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.times import format_time, parse_time

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=8,
)
TIMELIKE = st.text(alphabet="0123456789:.,+-eE snainfNDHMS\u0663\n", max_size=14)


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        (7, 7.0),
        (7.25, 7.25),
        (-3, -3.0),
        (10**400, math.inf),
        (-(10**400), -math.inf),
        ("12", 12.0),
        (" 12.5 ", 12.5),
        (".5", 0.5),
        ("5.", 5.0),
        ("-4", -4.0),
        ("+4", 4.0),
        ("1e2", 100.0),
        ("1e999", math.inf),
        ("90 s", 90.0),
        ("90s", 90.0),
        ("1.5 Seconds", 1.5),
        ("2 secs.", 2.0),
        ("01:15", 75.0),
        ("1:5", 65.0),
        ("00:12.5", 12.5),
        ("120:00", 7200.0),
        ("01:02:03.5", 3723.5),
        ("1:02:03", 3723.0),
        ("100:00:00", 360000.0),
        ("01:15 s", 75.0),
    ],
    ids=lambda value: str(value)[:12],
)
def test_a_time_is_a_number_of_seconds_or_a_clock(written: Any, seconds: float) -> None:
    assert parse_time(written) == seconds


@pytest.mark.parametrize("written", [math.nan, "nan", "NaN", "-nan"])
def test_nan_is_returned_so_that_the_caller_can_name_it(written: Any) -> None:
    assert math.isnan(parse_time(written))


@pytest.mark.parametrize("written", [math.inf, "inf", "Infinity", "+inf", "1e999"])
def test_infinity_is_returned_so_that_the_caller_can_name_it(written: Any) -> None:
    assert parse_time(written) == math.inf
    assert parse_time("-inf") == -math.inf


DEEP: list[Any] = []
for _ in range(100_000):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "written",
    [
        pytest.param(True, id="true"),
        pytest.param(False, id="false"),
        pytest.param(None, id="null"),
        pytest.param([12], id="list"),
        pytest.param({"seconds": 12}, id="object"),
        pytest.param(b"12", id="bytes"),
        pytest.param(12j, id="complex"),
        pytest.param(DEEP, id="a list nested too deep to be shown"),
        pytest.param([1 << 20000], id="an integer too long to be shown"),
        pytest.param("", id="empty"),
        pytest.param("s", id="only a unit"),
        pytest.param("soon", id="word"),
        pytest.param("12 minutes", id="other unit"),
        pytest.param("12,5", id="decimal comma"),
        pytest.param("1 2", id="two numbers"),
        pytest.param("1.5.2", id="two points"),
        pytest.param("0x10", id="hexadecimal"),
        pytest.param("1_000", id="underscore"),
        pytest.param("1:2:3:4", id="four parts"),
        pytest.param(":30", id="no minutes"),
        pytest.param("12:", id="no seconds"),
        pytest.param("-1:30", id="negative clock"),
        pytest.param("01:60", id="60 seconds below minutes"),
        pytest.param("01:59.5.1", id="two points in a clock"),
        pytest.param("1:60:00", id="60 minutes below hours"),
        pytest.param("9" * 5000, id="more digits than Python converts"),
        pytest.param("1" + " " * 100_000 + "x", id="very long"),
    ],
)
def test_anything_else_is_no_time(written: Any) -> None:
    with pytest.raises(ValueError):
        parse_time(written)


@given(JSON | TIMELIKE)
def test_whatever_is_written_it_is_a_number_or_a_value_error(written: Any) -> None:
    try:
        seconds = parse_time(written)
    except ValueError:
        return
    assert isinstance(seconds, float)


@given(st.floats(allow_nan=False) | st.integers())
def test_a_number_means_the_same_as_its_json_text(number: float) -> None:
    assert parse_time(json.dumps(number)) == pytest.approx(parse_time(number), rel=1e-12)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "00:00"),
        (75, "01:15"),
        (75.04, "01:15"),
        (75.25, "01:15.2"),
        (59.96, "01:00"),
        (3599.96, "1:00:00"),
        (3723.5, "1:02:03.5"),
        (360000, "100:00:00"),
        (-5, "00:00"),
    ],
)
def test_a_time_is_shown_as_a_clock_with_tenths_where_they_say_something(seconds: float, text: str) -> None:
    assert format_time(seconds) == text


@given(st.integers(min_value=0, max_value=36_000_000))
def test_a_shown_time_reads_back_to_a_tenth(tenths: int) -> None:
    assert parse_time(format_time(tenths / 10)) == pytest.approx(tenths / 10, abs=1e-6)


@given(st.floats(min_value=0, max_value=1e6))
def test_a_shown_time_is_within_half_a_tenth(seconds: float) -> None:
    assert abs(parse_time(format_time(seconds)) - seconds) <= 0.05 + 1e-6
