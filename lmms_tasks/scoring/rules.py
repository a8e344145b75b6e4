"""The scorers that need nothing but the result: `paravt` reads answers as people do, `strict` by their exact form."""

import re

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.open_answers import is_right
from paravt_infer.answers import extract_choice, extract_span, span_iou


def paravt(result: EvalResult) -> float:
    """The option, text or span that an answer commits to, however it is worded.

    Choices by `extract_choice`, open answers by `is_right`, grounding by the IoU of what `extract_span` reads.
    """
    answer, question, gold = result.answer_text, result.item.question, result.item.gold
    if answer is None:
        return 0.0
    if question.kind == "choice":
        return float(extract_choice(answer, question.options) == gold.strip().upper())
    if question.kind == "grounding":
        return span_iou(extract_span(answer), extract_span(gold))
    return float(is_right(answer, gold))


_EXACT_SPAN = re.compile(r"\[\d+(\.\d+)?, ?\d+(\.\d+)?\]")


def strict(result: EvalResult) -> float:
    """Form counts too: only the letter, exactly the gold text or `[start, end]`, in an answer block.

    Surrounding white space is allowed. An answer anywhere but in an answer block is wrong.
    """
    answer, gold = (result.rollout.answer_text or "").strip(), result.item.gold.strip()
    if result.rollout.answer_source != "answer_block":
        return 0.0
    if result.item.question.kind == "grounding":
        return span_iou(extract_span(answer), extract_span(gold)) if _EXACT_SPAN.fullmatch(answer) else 0.0
    return float(answer == gold)
