"""R_acc by rule: right or wrong for a choice, token F1 for an open answer, intersection over union for a span."""

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
    """The correct answer of a prompt.

    Raises:
        SettingsError: no answer could match it, so that every rollout would silently earn 0.
    """

    answer: str
    """A letter (perhaps with its text) or an option's text; a few words; or `[start, end]` in seconds."""
    kind: Literal["choice", "open", "grounding"]
    options: Mapping[str, str] = field(default_factory=dict)
    """Letter to text, for a choice; without options any letter is accepted."""

    def __post_init__(self) -> None:
        if self.kind == "choice" and extract_choice(self.answer, self.letters) is None:
            letters = ", ".join(self.letters)
            raise SettingsError(f"gold answer {self.answer!r}: not one of the options {letters}; fix the row")
        if self.kind == "grounding" and extract_span(self.answer) is None:
            raise SettingsError(f"gold answer {self.answer!r}: not [start, end] in seconds; fix the row")
        if self.kind == "open" and not token_f1(self.answer, self.answer):
            raise SettingsError(f"gold answer {self.answer!r}: has no words; fix the row")

    @property
    def letters(self) -> Mapping[str, str]:
        return self.options or _LETTERS


def accuracy_reward(answer: str | None, gold: GoldAnswer) -> float:
    """R_acc, between 0 and 1 (section 3.2.3 and "Reward Function Details").

    Args:
        answer: `Rollout.answer_text`; None where there is none.

    >>> options = {"A": "red", "B": "blue"}
    >>> blue = GoldAnswer(answer="B", kind="choice", options=options)
    >>> [accuracy_reward(answer, blue) for answer in ("(b)", "Blue.", "A, B", None)]
    [1.0, 1.0, 0.0, 0.0]
    >>> accuracy_reward("a red car", GoldAnswer(answer="the car", kind="open"))
    0.6666666666666666
    >>> accuracy_reward("12.0 - 18.0 seconds", GoldAnswer(answer="[12, 24]", kind="grounding"))
    0.5
    """
    if answer is None:
        return 0.0
    if gold.kind == "choice":
        return float(extract_choice(answer, gold.letters) == extract_choice(gold.answer, gold.letters))
    if gold.kind == "grounding":
        return span_iou(extract_span(answer), extract_span(gold.answer))
    return token_f1(answer, gold.answer)


def token_f1(answer: str, gold: str) -> float:
    """F1 of the words in common, counted with repetition, ignoring case, punctuation and articles (SQuAD).

    Unlike SQuAD, the point of a decimal stays, and an article counts if there is no other word.

    >>> token_f1("He opens the red door.", "opens a door")
    0.6666666666666666
    """
    words, gold_words = _words(answer), _words(gold)
    common = sum((Counter(words) & Counter(gold_words)).values())
    return 2 * common / (len(words) + len(gold_words)) if common else 0.0


def _words(text: str) -> list[str]:
    # A point between digits is part of the number: 3.5 and 5.3 have nothing in common.
    plain = re.sub(r"(?<!\d)\.|\.(?!\d)", "", text.lower())
    words = plain.translate(_NO_PUNCTUATION).split()
    # "A" alone is an answer, not an article.
    return [word for word in words if word not in ("a", "an", "the")] or words
