"""Extracts the time span from an answer's text, and computes the overlap (IoU) of spans."""

import re

from paravt_infer.answers.text import TAG, extract_answer, is_denied_before
from paravt_infer.times import parse_time

TimeSpan = tuple[float, float]

_SECONDS = r"(?:seconds?|secs?|s)(?![A-Za-z])\.?"
_TIME = (
    r"(?:\d+\s*(?:minutes?|mins?|m)(?![A-Za-z])(?:[\s,]*(?:and\s+)?\d+(?:\.\d+)?\s*" + _SECONDS + r")?"
    r"|(?:\d+:)?\d{1,3}:\d{2}(?:\.\d+)?|\d+(?:\.\d+)?)(?!\d|[.:]\d)"
)
_MARKUP = r"[\s*_\"'`<>()\[\]]{0,9}"  # may surround a number
_NOT_PART = r"(?<![\w.−-])(?<!\d:)(?<!\d[–—])(?<!\bframe )(?<!\bframes )"
_FIRST = rf"{_NOT_PART}(?P<start>{_TIME})\s*(?:{_SECONDS})?{_MARKUP}"
_SECOND = rf"{_MARKUP}(?:(?:about|around|approximately|at|second|t\s*=)\s*)?(?P<end>{_TIME})(?!\s*(?:%|[-–—~]\s*\d))"
_SPANS = (
    re.compile(rf"{_FIRST}(?:[-–—−~→]|->|\b(?:to|until|till|through)\b){_SECOND}", re.IGNORECASE),
    re.compile(rf"(?<!\d,)(?<!\d, ){_FIRST},{_SECOND}(?!\s*,\s*\d)", re.IGNORECASE),  # a pair, not a longer list
    re.compile(rf"\bbetween\b{_MARKUP}(?:about\s+)?{_FIRST}(?:and|&){_SECOND}", re.IGNORECASE),
    re.compile(
        r"(?<![a-z])(?:start|begin|began|from|onset|occur|happen|appear)[^\d]{0,40}?"
        + _FIRST
        + r"(?:(?!(?<![a-z/])(?:start|begin|began)|(?:\bto|\buntil|[-–—~])\s*\d).){0,80}?"
        r"(?<![a-z])(?:end|finish|stop|conclude)[^\d]{0,40}?(?<![−-])(?P<end>" + _TIME + ")",
        re.IGNORECASE | re.DOTALL,
    ),
)
_IN_MINUTES = re.compile(rf"(\d+)\s*m[a-z]*(?:\D*(\d+(?:\.\d+)?)\s*{_SECONDS})?", re.IGNORECASE)


def extract_span(text: str) -> TimeSpan | None:
    """The last span that an answer's text names, in seconds; None if there is none, or it is invalid.

    Recognises pairs ("[5, 10]", "5 - 10", "5.0 to 10.0 seconds", "between 5 and 10"), named ends ("starts at 5 s and
    ends at 10 s", JSON with start and end), and times as numbers, clocks ("00:12.5", "1:02:03") or minutes and seconds.
    Of a whole response, only its answer counts. Denied spans are ignored, a span must start before it ends, and numbers
    are never matched in part.

    >>> extract_span("[12, 30]"), extract_span("00:12.5 to 00:17.8"), extract_span("starts at 5 s, ends at 9.8 s")
    ((12.0, 30.0), (12.5, 17.8), (5.0, 9.8))
    >>> extract_span("Not 3 to 4 but 1 min 5 s to 1 min 9 s"), extract_span("1.5.2, 3"), extract_span("10 to 5")
    ((65.0, 69.0), None, None)
    """
    if TAG.search(text):
        answer = extract_answer(text)
        text = answer.text if answer else ""
    last, found = None, [match for pattern in _SPANS for match in pattern.finditer(text)]
    for match in sorted(found, key=lambda match: match.start("start")):
        overlaps = last and match.start("start") < last.end("end")  # "5 to 10, 5 long" names one span
        if not overlaps and not is_denied_before(text, match.start("start")):
            last = match
    if last is None:
        return None
    start_text, end_text = last.group("start"), last.group("end")
    try:
        start, end = _to_seconds(start_text), _to_seconds(end_text)
    except ValueError:
        return None
    bare = start_text.isdigit() and not re.match(rf"\s*{_SECONDS}", text[last.end("start") :], re.IGNORECASE)
    if bare and _IN_MINUTES.fullmatch(end_text):
        start *= 60  # "2 to 3 minutes"
    return (start, end) if start < end else None


def _to_seconds(text: str) -> float:
    if minutes := _IN_MINUTES.fullmatch(text):
        return float(minutes.group(1)) * 60 + float(minutes.group(2) or 0)
    return parse_time(text)


def span_iou(left: TimeSpan | None, right: TimeSpan | None) -> float:
    """Intersection over union of two spans in seconds; 0 if one is None.

    >>> span_iou((0.0, 4.0), (2.0, 6.0))
    0.3333333333333333
    """
    if left is None or right is None:
        return 0.0
    shared = max(0.0, min(left[1], right[1]) - max(left[0], right[0]))
    union = (left[1] - left[0]) + (right[1] - right[0]) - shared
    return shared / union if union > 0 else 0.0
