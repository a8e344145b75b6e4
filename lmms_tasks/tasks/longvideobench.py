"""LongVideoBench (`longvideobench/LongVideoBench`, validation): up to five options, no subtitles (as in the paper)."""

import hashlib
import random
import string
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column


def read_row(doc: Doc) -> RowFields:
    """Columns: id, video_path, question, option0 to option4 ("N/A" where there are fewer), correct_choice (a number),
    duration_group (15, 60, 600 or 3600: its longest duration in seconds)."""
    options = {letter: doc[f"option{number}"] for number, letter in enumerate(string.ascii_uppercase[:5])}
    number = int(doc["correct_choice"])
    return RowFields(
        id=doc["id"],
        video=doc["video_path"],
        text=doc["question"],
        options={letter: text for letter, text in options.items() if text not in (None, "", "N/A")},
        gold=string.ascii_uppercase[number] if number >= 0 else "",  # -1 in the hidden split
        groups={"duration_group": doc["duration_group"]},
    )


def upstream(result: EvalResult, response: str) -> float:
    """lmms-eval draws a random letter where it reads none: here the draw is seeded by the question's id."""
    from lmms_eval.tasks.longvideobench.utils import longvideobench_process_results

    options = list(result.item.question.options.values())
    doc: dict[str, Any] = {f"option{number}": option for number, option in enumerate([*options, *["N/A"] * 5][:5])}
    doc |= {"id": result.item.question.id, "duration_group": "", "question_category": ""}
    doc |= {"correct_choice": ord(result.item.gold) - ord("A")}
    with _seeded_random(result.item.question.id):
        scores = longvideobench_process_results(doc, [response])
    return float(scores["lvb_acc"]["parsed_pred"] == scores["lvb_acc"]["answer"])


_RANDOM_LOCK = threading.Lock()


@contextmanager
def _seeded_random(seed: str) -> Iterator[None]:
    """Python's global random numbers, which lmms-eval draws from, seeded by `seed`; their state is restored."""
    with _RANDOM_LOCK:
        before = random.getstate()
        random.seed(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
        try:
            yield
        finally:
            random.setstate(before)


LONGVIDEOBENCH = Benchmark(
    name="longvideobench",
    task="paravt_longvideobench",
    title="LongVideoBench",
    order=3,
    hub="longvideobench/LongVideoBench",
    split="validation",
    size=1337,  # arXiv 2407.15754
    videos="datasets/longvideobench/videos",
    read_row=read_row,
    groups={"duration_group": ("15", "60", "600", "3600")},
    upstream=upstream,
    official="lmms-eval",  # its README says that lmms-eval evaluates it
    table1=Table1Column(
        title="LongVideoBench",
        numbers=(66.7, 64.4, 46.4, 57.4, 49.2, 55.1, 56.0, 53.6, 56.0, 52.2, 54.5, 54.7, 37.4, 39.6, 60.4),
    ),
)
process_docs, metric_list = LONGVIDEOBENCH.process_docs, LONGVIDEOBENCH.metric_list
