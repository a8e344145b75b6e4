"""How right an answer is, between 0 and 1, by the kind of question (R_acc: paper, "Reward Function Details").

Choices are right or wrong, open answers score token F1 with SQuAD's normalisation, spans their intersection over union.
"""

import re
import string
from collections import Counter
from collections.abc import Mapping

from paravt_infer.answers import read_choice
from paravt_infer.times import parse_time
from training.world.grading import iou

_LETTERS = dict.fromkeys(string.ascii_uppercase[:10], "")
_CLOCK = r"(?:\d+:)?\d{1,3}:\d{2}(?:\.\d+)?"
_SPAN = re.compile(rf"({_CLOCK}|\d+(?:\.\d+)?)\s*(?:s|secs?|seconds?)?\s*(?:,|-|–|—|to|and)\s*({_CLOCK}|\d+(?:\.\d+)?)")


def accuracy(kind: str, said: str | None, right: str, options: Mapping[str, str] | None = None) -> float:
    """How right `said` is.

    Args:
        kind: `choice`, `open` or `grounding`.
        said: the answer's text; None where there is none.
        right: a letter (perhaps with its text), a few words, or `[start, end]` in seconds.
        options: letter to text, where they are known.

    >>> accuracy("choice", "(B) blue", "B"), accuracy("open", "a red car", "the red car"), accuracy("open", None, "x")
    (1.0, 1.0, 0.0)
    """
    if said is None:
        return 0.0
    if kind == "choice":
        letters = options or _LETTERS
        return float(read_choice(said, letters) == read_choice(right, letters) is not None)
    if kind == "grounding":
        return iou(read_span(said), read_span(right))
    return token_f1(said, right)


def token_f1(said: str, right: str) -> float:
    """F1 of the words in common, each as often as both have it; case, punctuation and articles do not count.

    >>> token_f1("He opens the red door.", "opens a door")
    0.6666666666666666
    """
    one, two = _words(said), _words(right)
    common = sum((Counter(one) & Counter(two)).values())
    return 2 * common / (len(one) + len(two)) if common else 0.0


def _words(text: str) -> list[str]:
    plain = "".join(" " if character in string.punctuation else character for character in text.lower())
    words = plain.split()
    # "A" alone is an answer, not an article.
    return [word for word in words if word not in ("a", "an", "the")] or words


def read_span(text: str) -> tuple[float, float] | None:
    """The last `[start, end]` that a text names, in seconds; None where it names none that begins before it ends.

    >>> read_span("[12, 30]"), read_span("from 00:12.5 to 00:17.8"), read_span("12.0 - 18.5 seconds"), read_span("5")
    ((12.0, 30.0), (12.5, 17.8), (12.0, 18.5), None)
    """
    found = _SPAN.findall(text)
    try:
        start, end = (parse_time(time) for time in found[-1])
    except (IndexError, ValueError):
        return None
    return (start, end) if start < end else None
