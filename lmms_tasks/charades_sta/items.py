"""Rows of Charades-STA (`lmms-eval/charades_sta`, test): a sentence, and the span in which it happens."""

import json

from lmms_tasks.benchmarks import Doc, Fields, row_id


def read(doc: Doc) -> Fields:
    """Columns: video, caption, timestamp ([start, end] in seconds, a list or its text).

    Rows have no name and some are there twice: each is named by its number, so that none is lost.
    """
    span = doc["timestamp"]
    start, end = map(float, json.loads(span) if isinstance(span, str) else span)
    caption = str(doc["caption"]).strip()
    return Fields(
        id=row_id(doc["video"], doc, f"{start:g}-{end:g}#{caption}"),
        video=doc["video"],
        text=f"From when to when is this seen: {caption.rstrip('.')}?",
        kind="grounding",
        gold=f"[{start}, {end}]",
    )
