"""R_acc by rule: right or wrong for a choice, token F1 for open answers, intersection over union for spans."""

import re
import string
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paravt_infer.answers import extract_choice, extract_span, span_iou
from paravt_infer.errors import SettingsError

_LETTERS = dict.fromkeys(string.ascii_uppercase, "")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation.replace(".", ""))


@dataclass(frozen=True, kw_only=True, slots=True)
class GoldAnswer:
    """The right answer of a prompt.

    Raises:
        SettingsError: it says nothing that could be right, so that every rollout would silently earn 0.
    """

    answer: str
    """A letter (perhaps with its text) or an option's text; a few words; or `[start, end]` in seconds."""
    kind: Literal["choice", "open", "grounding"]
    options: Mapping[str, str] = field(default_factory=dict)
    """Letter to text, for a choice; without them any letter counts."""

    def __post_init__(self) -> None:
        if self.kind == "choice" and extract_choice(self.answer, self.letters) is None:
            there = ", ".join(self.letters)
            raise SettingsError(f"right answer {self.answer!r}: names none of the options {there}; mend the row")
        if self.kind == "grounding" and extract_span(self.answer) is None:
            raise SettingsError(f"right answer {self.answer!r}: is no [start, end] in seconds; mend the row")
        if self.kind == "open" and not token_f1(self.answer, self.answer):
            raise SettingsError(f"right answer {self.answer!r}: has no word; mend the row")

    @property
    def letters(self) -> Mapping[str, str]:
        return self.options or _LETTERS


def accuracy(said: str | None, gold: GoldAnswer) -> float:
    """R_acc, between 0 and 1 (section 3.2.3 and "Reward Function Details").

    Args:
        said: the answer's text, `Rollout.answer_text`; None where there is none.

    >>> options = {"A": "red", "B": "blue"}
    >>> blue = GoldAnswer(answer="B", kind="choice", options=options)
    >>> [accuracy(said, blue) for said in ("(b)", "Blue.", "A, B", None)]
    [1.0, 1.0, 0.0, 0.0]
    >>> accuracy("a red car", GoldAnswer(answer="the car", kind="open"))
    0.6666666666666666
    >>> accuracy("12.0 - 18.0 seconds", GoldAnswer(answer="[12, 24]", kind="grounding"))
    0.5
    """
    if said is None:
        return 0.0
    if gold.kind == "choice":
        right = extract_choice(gold.answer, gold.letters)
        return float(extract_choice(said, gold.letters) == right)
    if gold.kind == "grounding":
        return span_iou(extract_span(said), extract_span(gold.answer))
    return token_f1(said, gold.answer)


def token_f1(said: str, right: str) -> float:
    """F1 of the words in common, each as often as both have it; case, punctuation and articles do not count (SQuAD).

    Beyond SQuAD, a decimal's point stays, and an article is a word where there is nothing else.

    >>> token_f1("He opens the red door.", "opens a door")
    0.6666666666666666
    """
    one, two = _words(said), _words(right)
    common = sum((Counter(one) & Counter(two)).values())
    return 2 * common / (len(one) + len(two)) if common else 0.0


def _words(text: str) -> list[str]:
    # A point between digits is a part of the number: 3.5 and 5.3 have nothing in common.
    plain = re.sub(r"(?<!\d)\.|\.(?!\d)", "", text.lower())
    words = plain.translate(_NO_PUNCTUATION).split()
    # "A" alone is an answer, not an article.
    return [word for word in words if word not in ("a", "an", "the")] or words
