"""Rows of LVBench (`lmms-eval/LVBench`, train): the question's text holds its options."""

from lmms_tasks.benchmarks import Doc, Fields, gold_letter, parted


def read(doc: Doc) -> Fields:
    """Columns: uid, video_path, question ("text", then lines "(A) option"), answer (a letter); options, in copies
    that list them apart."""
    text, options = parted(doc["question"], doc.get("options"))
    return Fields(
        id=str(doc["uid"]),
        video=doc["video_path"],
        text=text,
        options=options,
        gold=gold_letter(doc["answer"], options),
    )
