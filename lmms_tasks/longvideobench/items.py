"""Rows of LongVideoBench (`longvideobench/LongVideoBench`, validation): up to five options a question."""

import string

from lmms_tasks.benchmarks import Doc, Fields


def read(doc: Doc) -> Fields:
    """Columns: id, video_path, question, option0 to option4 ("N/A" where there is none), correct_choice (a number),
    duration_group (15, 60, 600 or 3600: seconds at most)."""
    listed = {letter: doc[f"option{number}"] for number, letter in enumerate(string.ascii_uppercase[:5])}
    number = int(doc["correct_choice"])
    return Fields(
        id=doc["id"],
        video=doc["video_path"],
        text=doc["question"],
        options={letter: text for letter, text in listed.items() if text not in (None, "", "N/A")},
        gold=string.ascii_uppercase[number] if number >= 0 else "",  # the hidden split says -1
        groups={"duration_group": doc["duration_group"]},
    )
