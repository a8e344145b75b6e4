"""Parsing and formatting of times as people and models write them."""

import math
import re
from typing import Any

_CLOCK = re.compile(r"(?:(\d+):)?(\d{1,3}):(\d{1,2}(?:\.\d+)?)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?")
_UNIT = re.compile(r"\s*(?:s|sec|secs|second|seconds)\.?$", re.IGNORECASE)


def parse_time(value: Any) -> float:
    """Seconds from a number, a numeric string, ``MM:SS`` or ``HH:MM:SS`` (fractions and a trailing ``s`` allowed).

    NaN and infinities are returned as such, so that the caller can report them.

    Raises:
        ValueError: anything else, including booleans, and minutes or seconds of 60 or more next to a larger unit.

    >>> parse_time("01:02:03.5"), parse_time("90 s"), parse_time(7)
    (3723.5, 90.0, 7.0)
    """
    if isinstance(value, bool) or not isinstance(value, (int, float, str)):
        # The value is not shown: `repr` can fail on deeply nested lists.
        raise ValueError(f"not a time: a {type(value).__name__}")
    if not isinstance(value, str):
        return _to_float(value)
    if len(value) > 100:
        raise ValueError(f"not a time: {len(value)} characters")
    text = _UNIT.sub("", value.strip())
    if text.lower().lstrip("+-") in {"nan", "inf", "infinity"} or _NUMBER.fullmatch(text):
        return float(text)
    clock = _CLOCK.fullmatch(text)
    if not clock:
        raise ValueError(f"not a time: {value!r}")
    hours, minutes, seconds = clock.group(1), int(clock.group(2)), float(clock.group(3))
    if seconds >= 60 or (hours is not None and minutes >= 60):
        raise ValueError(f"not a time: {value!r}")
    return _to_float(int(hours or 0)) * 3600 + minutes * 60 + seconds


def _to_float(number: float) -> float:
    """As a float; an integer that does not fit becomes infinity."""
    try:
        return float(number)
    except OverflowError:
        return math.inf if number > 0 else -math.inf


def format_time(seconds: float) -> str:
    """``MM:SS``, or ``H:MM:SS`` from one hour on; tenths only where they are not zero.

    >>> format_time(75), format_time(3723.5)
    ('01:15', '1:02:03.5')
    """
    tenths = round(max(0.0, seconds) * 10)
    whole, tenth = divmod(tenths, 10)
    hours, rest = divmod(whole, 3600)
    text = f"{rest // 60:02d}:{rest % 60:02d}" + (f".{tenth}" if tenth else "")
    return f"{hours}:{text}" if hours else text
