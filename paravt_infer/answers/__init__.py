"""Extracts answers from model responses, with the same rules for the engine, the scorers and the rewards.

`extract_answer` finds the answer in a response; `extract_choice` and `extract_span` parse an option or a span from it.
"""

from paravt_infer.answers.choice import extract_choice
from paravt_infer.answers.span import TimeSpan, extract_span, span_iou
from paravt_infer.answers.text import (
    AnswerSource,
    ExtractedAnswer,
    affirmed_matches,
    extract_answer,
    normalise_text,
    normalised_words,
)

__all__ = [
    "AnswerSource",
    "ExtractedAnswer",
    "TimeSpan",
    "affirmed_matches",
    "extract_answer",
    "extract_choice",
    "extract_span",
    "normalise_text",
    "normalised_words",
    "span_iou",
]
