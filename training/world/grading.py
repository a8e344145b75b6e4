"""Right or wrong, for questions of the sample world."""

from paravt_infer.answers import read_choice
from training.world.questions import WorldQuestion


def grade(asked: WorldQuestion, said: str | None) -> float:
    """Between 0 and 1: a choice or an open answer is right or wrong, a span scores its IoU.

    Args:
        said: the text of the answer; None where there is none.
    """
    if said is None:
        return 0.0
    if asked.question.kind == "choice":
        return float(read_choice(said, asked.question.options) == asked.answer)
    if asked.question.kind == "grounding":
        return iou(_span(said), _span(asked.answer))
    return float(_words(said) == _words(asked.answer))


def iou(left: tuple[float, float] | None, right: tuple[float, float] | None) -> float:
    """Intersection over union of two spans in seconds; 0 where one is none.

    >>> iou((0.0, 4.0), (2.0, 6.0))
    0.3333333333333333
    """
    if left is None or right is None:
        return 0.0
    shared = max(0.0, min(left[1], right[1]) - max(left[0], right[0]))
    union = (left[1] - left[0]) + (right[1] - right[0]) - shared
    return shared / union if union > 0 else 0.0


def _span(text: str) -> tuple[float, float] | None:
    """`[start, end]` as the questions ask for it."""
    parts = text.strip().strip("[]").split(",")
    try:
        start, end = (float(part) for part in parts)
    except ValueError:
        return None
    return (start, end) if start < end else None


def _words(text: str) -> list[str]:
    return text.lower().replace(",", " ").replace(".", " ").split()
