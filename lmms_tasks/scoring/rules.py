"""The scorers that need nothing but the row: `paravt` reads answers as people do, `strict` to the letter."""

import re

from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import said
from lmms_tasks.scoring.open_answers import is_right
from paravt_infer.answers import extract_choice, extract_span, span_iou


def paravt(row: EvalResult) -> float:
    """The option, text or span that an answer commits to, however it is worded.

    Choices by `extract_choice`, open answers by `is_right`, grounding by the IoU of what `extract_span` reads.
    """
    answer, question, gold = said(row), row.item.question, row.item.gold
    if answer is None:
        return 0.0
    if question.kind == "choice":
        return float(extract_choice(answer, question.options) == gold.strip().upper())
    if question.kind == "grounding":
        return span_iou(extract_span(answer), extract_span(gold))
    return float(is_right(answer, gold))


_EXACT_SPAN = re.compile(r"\[\d+(\.\d+)?, ?\d+(\.\d+)?\]")


def strict(row: EvalResult) -> float:
    """Form counts too: nothing but the letter, the gold's own words or `[start, end]`, in an answer block.

    White space around it is no fault. What stands anywhere but in an answer block is wrong.
    """
    answer, gold = (row.rollout.answer_text or "").strip(), row.item.gold.strip()
    if row.rollout.answer_source != "answer_block":
        return 0.0
    if row.item.question.kind == "grounding":
        return span_iou(extract_span(answer), extract_span(gold)) if _EXACT_SPAN.fullmatch(answer) else 0.0
    return float(answer == gold)
