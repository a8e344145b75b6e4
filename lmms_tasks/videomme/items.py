"""Rows of VideoMME (`lmms-eval/Video-MME`, test): four options a question, three questions a video."""

from lmms_tasks.benchmarks import Doc, Fields, gold_letter, lettered


def read(doc: Doc) -> Fields:
    """Columns: videoID, question_id, question, options ("A. text"), answer (a letter), duration, domain."""
    options = lettered(doc["options"])
    return Fields(
        id=doc["question_id"],
        video=f"data/{doc['videoID']}.mp4",
        subtitles=f"subtitle/{doc['videoID']}.srt",
        text=doc["question"],
        options=options,
        gold=gold_letter(doc["answer"], options),
        groups={"duration": doc["duration"], "domain": doc["domain"]},
    )
