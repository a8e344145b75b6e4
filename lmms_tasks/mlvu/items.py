"""Rows of MLVU dev (`sy1998/MLVU_dev`, test): multiple choice of seven task types."""

from lmms_tasks.benchmarks import Doc, Fields, gold_letter, parted, row_id


def read(doc: Doc) -> Fields:
    """Columns: video_name, question (which may hold its options), candidates or options (a list), answer (a letter
    or the option's text), task_type."""
    text, options = parted(doc["question"], doc.get("candidates") or doc.get("options"))
    return Fields(
        id=row_id(doc["video_name"], doc, text),
        video=doc["video_name"],
        text=text,
        options=options,
        gold=gold_letter(doc["answer"], options),
        groups={"task_type": doc["task_type"]},
    )
