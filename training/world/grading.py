"""Right or wrong, for questions of the sample world."""

from paravt_infer.answers import extract_choice, extract_span, span_iou
from paravt_training.world.questions import WorldQuestion


def grade_answer(asked: WorldQuestion, said: str | None) -> float:
    """Between 0 and 1: a choice or an open answer is right or wrong, a span scores its IoU.

    Args:
        said: the text of the answer; None where there is none.
    """
    if said is None:
        return 0.0
    if asked.question.kind == "choice":
        return float(extract_choice(said, asked.question.options) == asked.answer)
    if asked.question.kind == "grounding":
        return span_iou(extract_span(said), extract_span(asked.answer))
    return float(_words(said) == _words(asked.answer))


def _words(text: str) -> list[str]:
    return text.lower().replace(",", " ").replace(".", " ").split()
