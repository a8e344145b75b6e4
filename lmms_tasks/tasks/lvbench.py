"""LVBench (`lmms-eval/LVBench`, train): the question's text contains its options."""

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column
from lmms_tasks.tasks.options import gold_letter, split_question


def read_row(doc: Doc) -> RowFields:
    """Columns: uid, video_path, question ("text", then lines "(A) option"), answer (a letter); options, in copies
    that list them separately."""
    text, options = split_question(doc["question"], doc.get("options"))
    return RowFields(
        id=str(doc["uid"]),
        video=doc["video_path"],
        text=text,
        options=options,
        gold=gold_letter(doc["answer"], options),
    )


def upstream(result: EvalResult, response: str) -> float:
    from lmms_eval.tasks.lvbench.utils import lvbench_process_results

    return float(lvbench_process_results({"answer": result.item.gold}, [response])["lvbench_score"])


def official_letter(answer: str) -> str:
    """The first character in the first brackets; without brackets that of the text (THUDM/LVBench,
    `lvbench/utils/answer_util.py`)."""
    before, _, _ = answer.partition(")")
    return (before.split("(")[1] if "(" in before else before).strip()[:1]


LVBENCH = Benchmark(
    name="lvbench",
    task="paravt_lvbench",
    title="LVBench",
    order=4,
    hub="lmms-eval/LVBench",  # formerly lmms-lab/LVBench
    split="train",
    size=1549,  # arXiv 2406.08035
    videos="lvbench",
    read_row=read_row,
    upstream=upstream,
    official=official_letter,
    table1=Table1Column(
        title="LVBench",
        numbers=(34.7, 33.1, 32.2, 36.9, 23.8, 38.0, 38.2, 38.5, None, 33.1, 38.2, 37.9, 31.8, 22.9, 39.8),
        missing={"Video-Thinker-7B": "withheld: the benchmark overlaps its training data"},
    ),
)
process_docs, metric_list = LVBENCH.process_docs, LVBENCH.metric_list
