"""MLVU dev (`sy1998/MLVU_dev`, test): multiple choice of seven task types, over which the headline is averaged."""

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column, macro_average, mean_score
from lmms_tasks.tasks.options import gold_letter, row_id, split_question


def read_row(doc: Doc) -> RowFields:
    """Columns: video_name, question (which may contain its options), candidates or options (a list), answer (a letter
    or the option's text), task_type."""
    text, options = split_question(doc["question"], doc.get("candidates") or doc.get("options"))
    return RowFields(
        id=row_id(doc["video_name"], doc, text),
        video=doc["video_name"],
        text=text,
        options=options,
        gold=gold_letter(doc["answer"], options),
        groups={"task_type": doc["task_type"]},
    )


def upstream(result: EvalResult, response: str) -> float:
    from lmms_eval.tasks.mlvu.utils import mlvu_process_results

    doc = {"question": result.item.question.text, "task_type": "", "answer": result.item.gold}
    scores = mlvu_process_results(doc, [response])["mlvu_percetion_score"]
    return float(scores["pred_answer"] == scores["answer"])


def official_letter(answer: str) -> str:
    """The character before the first ")"; without one the whole text must be the letter (JUNJIE99/MLVU,
    `evaluation/multiple_choice_evaluation/choice_bench.py`)."""
    before, bracket, _ = answer.partition(")")
    return before[-1:] if bracket else answer


MLVU = Benchmark(
    name="mlvu",
    task="paravt_mlvu",
    title="MLVU dev",
    order=5,
    hub="sy1998/MLVU_dev",
    split="test",
    size=2174,  # arXiv 2406.04264, multiple choice
    videos="mlvu",
    read_row=read_row,
    metrics={"macro": macro_average("task_type"), "accuracy": mean_score},
    groups={"task_type": ("anomaly_reco", "count", "ego", "needle", "order", "plotQA", "topic_reasoning")},
    macro_over="task_type",
    upstream=upstream,
    official=official_letter,
    table1=Table1Column(
        title="MLVU",
        numbers=(64.6, 74.3, 47.8, 61.6, 58.7, 44.9, 60.5, 60.1, 65.2, 58.3, 59.2, 59.4, 49.7, 46.2, 65.0),
    ),
)
process_docs, metric_list = MLVU.process_docs, MLVU.metric_list
