"""Charades-STA (`lmms-eval/charades_sta`, test): temporal grounding, a sentence and the span in which it happens."""

import json

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column, mean_score, recall_at
from lmms_tasks.tasks.options import row_id
from paravt_infer.answers import extract_span
from paravt_infer.errors import SettingsError


def read_row(doc: Doc) -> RowFields:
    """Columns: video, caption, timestamp ([start, end] in seconds, a list or its text).

    Rows have no id and some occur twice: each is named by its number, so that none is lost.
    """
    span = doc["timestamp"]
    start, end = map(float, json.loads(span) if isinstance(span, str) else span)
    caption = str(doc["caption"]).strip()
    return RowFields(
        id=row_id(doc["video"], doc, f"{start:g}-{end:g}#{caption}"),
        video=doc["video"],
        text=f"From when to when is this seen: {caption.rstrip('.')}?",
        kind="grounding",
        gold=f"[{start}, {end}]",
    )


def upstream(result: EvalResult, response: str) -> float:
    from lmms_eval.tasks.charades_sta.utils import extract_time, iou

    gold, spans = extract_span(result.item.gold), extract_time(response)
    if gold is None:
        question = result.item.question.id
        raise SettingsError(f"scorer lmms-eval, question {question}: its gold {result.item.gold!r} is not a span")
    return float(iou(gold, spans[0])) if spans else 0.0


CHARADES_STA = Benchmark(
    name="charades_sta",
    task="paravt_charades_sta",
    title="Charades-STA",
    order=7,
    hub="lmms-eval/charades_sta",  # formerly lmms-lab/charades_sta
    split="test",
    size=3720,  # arXiv 1705.02101
    videos="charades_sta/Charades_v1_480",
    read_row=read_row,
    # Over every row that did not fail: rows that share video, caption and span count one by one.
    metrics={"miou": mean_score, "r@0.3": recall_at(0.3), "r@0.5": recall_at(0.5), "r@0.7": recall_at(0.7)},
    upstream=upstream,
    table1=Table1Column(
        title="Charades-STA test",
        numbers=(None, None, 31.6, 25.4, 31.5, 18.7, 34.7, 20.2, 29.0, 49.3, 25.4, 23.4, 28.9, None, 50.1),
        missing={
            "GPT-4o": "not reported",
            "Gemini 1.5 Pro": "not reported",
            "VideoZoomer-7B": "not measurable: its tool calls do not fit the grounding output",
        },
    ),
)
process_docs, metric_list = CHARADES_STA.process_docs, CHARADES_STA.metric_list
