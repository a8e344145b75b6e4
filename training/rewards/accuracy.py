"""R_acc by rule: right or wrong for a choice, token F1 for open answers, intersection over union for spans."""

import re
import string
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from paravt_infer.answers import iou, read_choice, read_span
from paravt_infer.errors import SettingsError
from training.data.scoring import token_f1

_LETTERS = dict.fromkeys(string.ascii_uppercase, "")


@dataclass(frozen=True, kw_only=True, slots=True)
class Gold:
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
        if self.kind == "choice" and read_choice(self.answer, self.letters) is None:
            there = ", ".join(self.letters)
            raise SettingsError(f"right answer {self.answer!r}: names none of the options {there}; mend the row")
        if self.kind == "grounding" and read_span(self.answer) is None:
            raise SettingsError(f"right answer {self.answer!r}: is no [start, end] in seconds; mend the row")
        if self.kind == "open" and not token_f1(self.answer, self.answer):
            raise SettingsError(f"right answer {self.answer!r}: has no word; mend the row")

    @property
    def letters(self) -> Mapping[str, str]:
        return self.options or _LETTERS


def accuracy(said: str | None, gold: Gold) -> float:
    """R_acc, between 0 and 1 (section 3.2.3 and "Reward Function Details").

    Args:
        said: the answer's text, `Rollout.answer_text`; None where there is none.

    >>> options = {"A": "red", "B": "blue"}
    >>> [accuracy(said, Gold(answer="B", kind="choice", options=options)) for said in ("(b)", "Blue.", "A, B", None)]
    [1.0, 1.0, 0.0, 0.0]
    >>> accuracy("a red car", Gold(answer="the car", kind="open"))
    0.6666666666666666
    >>> accuracy("12.0 - 18.0 seconds", Gold(answer="[12, 24]", kind="grounding"))
    0.5
    """
    if said is None:
        return 0.0
    if gold.kind == "choice":
        right = read_choice(gold.answer, gold.letters)
        return float(read_choice(_without_lists(said, gold.letters), gold.letters) == right)
    if gold.kind == "grounding":
        return iou(read_span(said), read_span(gold.answer))
    return token_f1(said, gold.answer)


_JOINT = r"(?:[^\w\s.]|[^\S\n]|\b(?:and|or|option|choice|letter)\b)*"
_BREAK = r"[^\w.\n]*[.\n]\W*"
_WORD = r"\s+(?!(?:and|or)\b)(?-i:[a-z]{2})"


def _without_lists(said: str, options: Mapping[str, str]) -> str:
    """`said` without options named in one breath ("A, B or C", "A. red B. blue"): that chooses none of them."""
    items = [
        re.compile(rf"(?<!\w){letter}\s*[.):]+\s*{re.escape(text)}(?!\w)", re.IGNORECASE)
        for letter, text in options.items()
        if text
    ]
    if sum(bool(item.search(said)) for item in items) > 1:
        for item in items:
            said = item.sub(" ", said)
    letter = rf"(?<![\w'])[{''.join(options)}](?![\w'])"
    # "A" and "I" before a word are not of the list, and neither is a letter that begins a sentence of its own.
    listed = rf"{letter}(?:{_JOINT}(?![AI]{_WORD}){letter}|{_BREAK}{letter}(?!{_WORD}))+"

    def unless_one(found: re.Match[str]) -> str:
        return " " if len({one.upper() for one in re.findall(letter, found[0], re.IGNORECASE)}) > 1 else found[0]

    return re.sub(listed, unless_one, said, flags=re.IGNORECASE)
