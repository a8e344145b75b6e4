"""What a scorer is: a rule that turns a result into a number between 0 and 1."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from lmms_tasks.results import EvalResult


@dataclass(frozen=True, kw_only=True, slots=True)
class Scorer:
    """A named rule, and what a reader must know to score the same way again."""

    name: str
    """As `get_scorer` knows it, such as `paravt`."""
    rule: Callable[[EvalResult], float]
    """A result that did not fail to its score."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What its scores depend on, such as {"model": ..., "prompt": ...}."""
    remote: bool = False
    """Whether it waits for a server, so that several results are best scored at once."""

    def score(self, result: EvalResult) -> float | None:
        """1 for a right answer, 0 for a wrong one or none; for grounding the spans' IoU; None for a failed episode.

        Raises:
            SettingsError: it has no rule for such a result; says what has.
            BackendError: it asks a model, which did not answer.
        """
        return None if result.failed else self.rule(result)
