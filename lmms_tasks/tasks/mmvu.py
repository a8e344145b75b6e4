"""MMVU (`lmms-eval/MMVU`, validation): multiple choice of five, and open-ended."""

from lmms_tasks.results import EvalResult
from lmms_tasks.tasks.base import Benchmark, Doc, RowFields, Table1Column
from lmms_tasks.tasks.options import gold_letter


def read_row(doc: Doc) -> RowFields:
    """Columns: id, video_path, question, question_type (multiple-choice or open-ended), choices {A to E}, answer."""
    kind = doc["question_type"]
    if kind not in ("multiple-choice", "open-ended"):
        raise ValueError(f"question_type {kind!r} is neither multiple-choice nor open-ended")
    choices = doc["choices"] if kind == "multiple-choice" else {}
    options = {letter: str(text) for letter, text in choices.items() if text not in (None, "")}
    return RowFields(
        id=str(doc["id"]),
        video=doc["video_path"],
        text=doc["question"],
        options=options,
        gold=gold_letter(doc["answer"], options) if kind == "multiple-choice" else str(doc["answer"] or "").strip(),
        groups={"question_type": kind.replace("-", "_")},
    )


def upstream(result: EvalResult, response: str) -> float:
    """lmms-eval's rule only. Where the rule rejects an open answer, lmms-eval also asks a model, and falls back to the
    rule where the model fails; the scorer `judge` asks one openly."""
    from lmms_eval.tasks.mmvu.utils import evaluate_with_rule_based

    question = result.item.question
    kind = "multiple-choice" if question.kind == "choice" else "open-ended"
    doc = {"question_type": kind, "choices": question.options, "answer": result.item.gold}
    return float(evaluate_with_rule_based(doc, response))


MMVU = Benchmark(
    name="mmvu",
    task="paravt_mmvu",
    title="MMVU",
    order=6,
    hub="lmms-eval/MMVU",  # formerly lmms-lab/MMVU, from yale-nlp/MMVU
    split="validation",
    size=1000,  # arXiv 2501.12380
    videos="mmvu",
    read_row=read_row,
    groups={"question_type": ("multiple_choice", "open_ended")},
    upstream=upstream,
    # A language model judges both kinds of question (yale-nlp/MMVU, `utils/eval_utils.py`). The authors ask GPT-4o
    # with a prompt of their own.
    official="judge",
    table1=Table1Column(
        title="MMVU",
        numbers=(66.7, 65.8, 65.4, 61.3, 65.0, 42.7, 63.4, 59.8, 64.5, 68.0, 64.0, 63.4, 55.7, 61.6, 68.6),
    ),
)
process_docs, metric_list = MMVU.process_docs, MMVU.metric_list
