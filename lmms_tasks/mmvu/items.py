"""Rows of MMVU (`lmms-eval/MMVU`, validation): multiple choice of five, and open-ended."""

from lmms_tasks.benchmarks import Doc, Fields, gold_letter


def read(doc: Doc) -> Fields:
    """Columns: id, video_path, question, question_type (multiple-choice or open-ended), choices {A to E}, answer."""
    kind = doc["question_type"]
    if kind not in ("multiple-choice", "open-ended"):
        raise ValueError(f"question_type {kind!r} is neither multiple-choice nor open-ended")
    choices = doc["choices"] if kind == "multiple-choice" else {}
    options = {letter: str(text) for letter, text in choices.items() if text not in (None, "")}
    return Fields(
        id=str(doc["id"]),
        video=doc["video_path"],
        text=doc["question"],
        options=options,
        gold=gold_letter(doc["answer"], options) if kind == "multiple-choice" else str(doc["answer"] or "").strip(),
        groups={"question_type": kind.replace("-", "_")},
    )
