"""What a scorer is: a rule that turns an item and what was answered into a number between 0 and 1."""

from typing import Protocol

from lmms_tasks.items import Row


class Scorer(Protocol):
    """A named rule."""

    name: str

    def score(self, row: Row) -> float:
        """1 for a right answer, 0 for a wrong one or none; for grounding the spans' IoU.

        Is asked only of rows that did not fail.
        """
