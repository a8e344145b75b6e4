"""Rows as an evaluation leaves them, for the tests of what scores them."""

from typing import Any

from lmms_tasks.items import Item, Row
from paravt_infer.answers import read_answer, read_choice
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout, Turn

COLOURS = {"A": "red", "B": "blue", "C": "green", "D": "yellow"}


def row(
    response: str | None,
    gold: str,
    *,
    task: str = "paravt_videomme",
    options: dict[str, str] | None = None,
    kind: str = "open",
    groups: dict[str, str] | None = None,
    **question: Any,
) -> Row:
    """An item, and a model's whole response to it; None where the episode failed. A letter as gold asks for colours."""
    if options is None and kind == "open" and len(gold) == 1:
        options = COLOURS
    asked = Question(
        **{"video": "v.mp4", "text": "Which?", "options": options or {}, "kind": kind, "id": "q", **question}
    )
    item = Item(task=task, question=asked, gold=gold, groups=groups or {})
    if response is None:
        return Row(item=item, rollout=Rollout(question=asked, status="failed", error="the video is gone"))
    reading = read_answer(response)
    text = reading.text if reading else None
    answer = read_choice(text, asked.options) if text and asked.options else text
    rollout = Rollout(
        question=asked,
        status="answered" if answer else "no_answer",
        answer=answer,
        answer_text=text,
        answer_source=reading.source if reading else None,
        turns=[Turn(text=response)],
    )
    return Row(item=item, rollout=rollout)


def open_row(response: str | None, gold: str, **more: Any) -> Row:
    return row(response, gold, **{"task": "paravt_mmvu", "options": {}, **more})


def span_row(response: str | None, gold: str = "[5.0, 10.0]", **more: Any) -> Row:
    return row(response, gold, **{"task": "paravt_charades_sta", "kind": "grounding", **more})
