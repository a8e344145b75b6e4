"""Which window a call asks for: every way to say it, and a fault with a name for every way to say it wrong."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.tools import TOOLS, ParsedCall, ToolCallError, Window
from paravt_infer.tools import ToolCallFault as Fault

CROP = TOOLS["crop_video"]
DURATION = 60.0


def by_name(**arguments: Any) -> ParsedCall:
    return ParsedCall(raw="", name="crop_video", arguments=arguments)


def by_position(*values: Any, **arguments: Any) -> ParsedCall:
    return ParsedCall(raw="", name="crop_video", positional=values, arguments=arguments, syntax="tool_code")


def fault(call: ParsedCall) -> ToolCallError:
    with pytest.raises(ToolCallError) as raised:
        CROP.parse_window(call, DURATION)
    assert "\n" not in str(raised.value)
    return raised.value


@pytest.mark.parametrize(
    "call",
    [
        by_name(start_time=10, end_time=20),
        by_name(start_time=10.0, end_time="20"),
        by_name(start_time="10 s", end_time="20s"),
        by_name(start_time="00:10", end_time="00:20.0"),
        by_name(start_time="0:00:10", end_time="00:00:20"),
        by_name(start=10, end=20),
        by_name(start_time=None, start=10, end=20),
        by_name(start_time=10, end=20),
        by_name(start_time=10, end_time=20, start=1, end=2, zoom=3),
        by_name(video_path="/etc/passwd", start_time=10, end_time=20),
        by_name(video_path={"not": "text"}, start_time=10, end_time=20),
        by_position(10, 20),
        by_position("10", "20"),
        by_position("v.mp4", 10, 20),
        by_position("00:30", 10, 20),
        by_position(None, 10, 20),
        by_position("v.mp4", 10, end_time=20),
        by_position("v.mp4", start_time=10, end_time=20),
        by_position(20, start_time=10),
        by_position("v.mp4", 10, 20, 30),
    ],
    ids=[
        "numbers", "text", "seconds", "MM:SS", "HH:MM:SS", "short names", "null is missing", "one short name",
        "long names first", "path", "path that is none", "two positions", "two texts", "three positions",
        "path like a time", "path null", "path, position, name", "path and names", "position after a name",
        "one more position",
    ],
)  # fmt: skip
def test_a_window_may_be_said_in_many_ways(call: ParsedCall) -> None:
    assert CROP.parse_window(call, DURATION) == Window(start=10, end=20, requested=(10, 20), clamped=False)
    assert CROP.requested_times(call) == (10, 20)


@pytest.mark.parametrize(
    ("start", "end", "window"),
    [
        (0, 60, Window(start=0, end=60, requested=(0, 60), clamped=False)),
        (0, 60.5, Window(start=0, end=60, requested=(0, 60.5), clamped=True)),
        (59.9, 1e300, Window(start=59.9, end=60, requested=(59.9, 1e300), clamped=True)),
    ],
    ids=["the whole video", "a little more", "far more"],
)
def test_an_end_beyond_the_video_is_moved_to_its_end_and_recorded(start: float, end: float, window: Window) -> None:
    assert CROP.parse_window(by_name(start_time=start, end_time=end), DURATION) == window
    assert window.span == (window.start, window.end)


@pytest.mark.parametrize(
    ("call", "name", "says"),
    [
        (by_name(), Fault.MISSING_TIME, "start_time is missing"),
        (by_name(start_time=1), Fault.MISSING_TIME, "end_time is missing"),
        (by_name(end_time=1), Fault.MISSING_TIME, "start_time is missing"),
        (by_name(start_time=1, end_time=None), Fault.MISSING_TIME, "end_time is missing"),
        (by_position("v.mp4", 1), Fault.MISSING_TIME, "end_time is missing"),
        (by_position("v.mp4"), Fault.MISSING_TIME, "start_time is missing"),
        (by_name(start_time="soon", end_time=2), Fault.BAD_TIME, "start_time='soon' is not a time"),
        (by_name(start_time=1, end_time="a\nb"), Fault.BAD_TIME, r"end_time='a\nb' is not a time"),
        (by_name(start_time=[1, 2], end_time=2), Fault.BAD_TIME, "start_time, a list, is not a time"),
        (by_name(start_time=1, end_time=True), Fault.BAD_TIME, "end_time, a bool, is not a time"),
        (by_name(start_time=[1 << 20000], end_time=2), Fault.BAD_TIME, "start_time, a list, is not a time"),
        (by_name(start_time=math.nan, end_time=2), Fault.NOT_FINITE, "nan to 2.0 is not finite"),
        (by_name(start_time=1, end_time="inf"), Fault.NOT_FINITE, "1.0 to inf is not finite"),
        (by_name(start_time=-math.inf, end_time=2), Fault.NOT_FINITE, "-inf to 2.0 is not finite"),
        (by_name(start_time=1, end_time=10**400), Fault.NOT_FINITE, "1.0 to inf is not finite"),
        (by_name(start_time=-1, end_time=2), Fault.NEGATIVE_TIME, "-1.0 to 2.0 has a time below 0"),
        (by_name(start_time=-5, end_time=-2), Fault.NEGATIVE_TIME, "-5.0 to -2.0 has a time below 0"),
        (by_name(start_time=1, end_time=-2), Fault.NEGATIVE_TIME, "1.0 to -2.0 has a time below 0"),
        (by_name(start_time=5, end_time=5), Fault.START_NOT_BEFORE_END, "5.0 to 5.0 does not start before it ends"),
        (by_name(start_time=9, end_time=5), Fault.START_NOT_BEFORE_END, "9.0 to 5.0 does not start before it ends"),
        (by_name(start_time=99, end_time=70), Fault.START_NOT_BEFORE_END, "99.0 to 70.0"),
        (by_name(start_time=60, end_time=61), Fault.BEYOND_VIDEO, "beyond the video, which ends at 60.0 s (01:00)"),
        (by_name(start_time=1e300, end_time=1e301), Fault.BEYOND_VIDEO, "1e+300 to 1e+301 lies beyond the video"),
    ],
    ids=[
        "nothing", "no end", "no start", "end null", "path and one", "only a path", "word", "word of two lines", "list",
        "boolean", "number too long to show", "NaN", "inf", "-inf", "huge", "negative", "both negative",
        "end negative", "empty", "backwards", "backwards beyond", "beyond", "far beyond",
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_window_has_a_name(call: ParsedCall, name: Fault, says: str) -> None:
    raised = fault(call)
    assert raised.fault is name
    assert says in str(raised)
    assert len(str(raised)) < 200


def test_what_was_asked_is_told_even_where_it_cannot_be() -> None:
    assert CROP.requested_times(by_name(start_time=99, end_time=70)) == (99, 70)
    assert CROP.requested_times(by_name(start_time=1)) is None
    assert CROP.requested_times(by_name(start_time="soon", end_time=2)) is None


def test_the_schema_asks_for_what_the_tool_reads() -> None:
    function = CROP.schema()["function"]
    assert function["name"] == "crop_video"
    assert function["parameters"]["required"] == ["video_path", "start_time", "end_time"]
    assert set(function["parameters"]["properties"]) == set(function["parameters"]["required"])


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=5,
)
TIME = (
    st.floats(-10, 80)
    | st.integers(-5, 70).map(str)
    | st.tuples(st.integers(0, 70), st.integers(0, 70)).map(lambda clock: f"{clock[0]}:{clock[1]:02d}")
)


@given(JSON | TIME, JSON | TIME, st.floats(min_value=0.04, max_value=1e5), st.booleans())
def test_any_two_values_are_a_window_in_the_video_or_a_fault(
    start: Any, end: Any, duration: float, named: bool
) -> None:
    call = by_name(start_time=start, end_time=end) if named else by_position("v.mp4", start, end)
    try:
        window = CROP.parse_window(call, duration)
    except ToolCallError as error:
        assert str(error)
        assert len(str(error).splitlines()) == 1
    else:
        assert 0 <= window.start < window.end <= duration
        assert window.clamped == (window.requested != window.span)
    CROP.requested_times(call)
