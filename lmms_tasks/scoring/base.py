"""What a scorer is: a rule that turns an item and what was answered into a number between 0 and 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from lmms_tasks.items import EvalResult


class Scorer(Protocol):
    """A named rule."""

    @property
    def name(self) -> str:
        """What it is called, such as `paravt`."""

    def score(self, row: EvalResult) -> float:
        """1 for a right answer, 0 for a wrong one or none; for grounding the spans' IoU.

        Is asked only of rows that did not fail.

        Raises:
            SettingsError: it has no rule for such a row; says what has.
            BackendError: it asks a model, and that did not answer.
        """


@dataclass(frozen=True, kw_only=True, slots=True)
class NamedScorer:
    """A scorer, and what else a reader must know to score the same way again."""

    name: str
    """As `get_scorer` knows it."""
    rule: Callable[[EvalResult], float]
    """EvalResult to score."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What its scores hang on, such as {"model": ..., "prompt": ...}."""
    waits: bool = False
    """Whether it waits for a server, so that several rows are best scored at once."""

    def score(self, row: EvalResult) -> float:
        return self.rule(row)


def said(row: EvalResult) -> str | None:
    """What was answered, as text; None where nothing was."""
    return row.rollout.answer_text or row.rollout.answer
