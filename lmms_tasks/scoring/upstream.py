"""`lmms-eval`: what the functions of lmms-eval's own tasks make of a response. They are called, not copied.

A response is the last turn's text without its reasoning, as lmms-eval would have stripped it; a row without
turns gives its answer's text. Three things differ from a run of lmms-eval, so that scores can be had row by row
and again:

- LongVideoBench draws a random letter where it reads none: the draw is seeded by the question's id.
- MMVU's open answers go by its rule alone. Where the rule says no, lmms-eval also asks a model, and takes the
  rule's word where the model fails; the scorer `judge` asks one openly.
- Averages are `summarise`'s: rows of one video, caption and span, which lmms-eval's Charades-STA merges, and task
  types that it does not know or that are absent (MLVU), are the metric's matter, not the scorer's.
"""

import hashlib
import random
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import said
from paravt_infer.answers import extract_span
from paravt_infer.errors import SettingsError

_REASONING = [["<think>", "</think>"], ["<analysis>", "</analysis>"]]  # lmms-eval's own default


def lmms_eval(row: EvalResult) -> float:
    """The score that lmms-eval 0.7.3's task gives.

    Raises:
        SettingsError: lmms-eval is not installed, or has no function for this task.
    """
    if row.item.task not in _RULES:
        raise SettingsError(
            f"scorer lmms-eval has no function for task {row.item.task}; it has for {', '.join(sorted(_RULES))}"
        )
    try:
        return float(_RULES[row.item.task](row, _response(row)))
    except ImportError as error:
        raise SettingsError(f"scorer lmms-eval: {error}; pip install 'paravt-infer[eval]'") from None


def _response(row: EvalResult) -> str:
    from lmms_eval.api.reasoning import strip_reasoning_tags

    whole = row.rollout.turns[-1].response if row.rollout.turns else said(row) or ""
    return str(strip_reasoning_tags(whole, _REASONING))


def _videomme(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.videomme.utils import videomme_process_results

    columns = ("question_id", "duration", "domain", "sub_category", "task_type", "videoID")
    doc = dict.fromkeys(columns, "") | row.item.groups | {"answer": row.item.gold}
    return float(videomme_process_results(doc, [response])["videomme_perception_score"]["score"])


def _longvideobench(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.longvideobench.utils import longvideobench_process_results

    options = list(row.item.question.options.values())
    doc = {f"option{number}": option for number, option in enumerate([*options, *["N/A"] * 5][:5])}
    doc |= {"id": row.item.question.id, "duration_group": "", "question_category": ""}
    with _drawing(row.item.question.id):
        found = longvideobench_process_results(doc | {"correct_choice": ord(row.item.gold) - ord("A")}, [response])
    return float(found["lvb_acc"]["parsed_pred"] == found["lvb_acc"]["answer"])


def _lvbench(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.lvbench.utils import lvbench_process_results

    return float(lvbench_process_results({"answer": row.item.gold}, [response])["lvbench_score"])


def _mlvu(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.mlvu.utils import mlvu_process_results

    doc = {"question": row.item.question.text, "task_type": "", "answer": row.item.gold}
    found = mlvu_process_results(doc, [response])["mlvu_percetion_score"]
    return float(found["pred_answer"] == found["answer"])


def _mmvu(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.mmvu.utils import evaluate_with_rule_based

    question = row.item.question
    kind = "multiple-choice" if question.kind == "choice" else "open-ended"
    doc = {"question_type": kind, "choices": question.options, "answer": row.item.gold}
    return float(evaluate_with_rule_based(doc, response))


def _charades_sta(row: EvalResult, response: str) -> float:
    from lmms_eval.tasks.charades_sta.utils import extract_time, iou

    gold, spans = extract_span(row.item.gold), extract_time(response)
    if gold is None:
        raise SettingsError(f"scorer lmms-eval, question {row.item.question.id}: its gold {row.item.gold!r} is no span")
    return float(iou(gold, spans[0])) if spans else 0.0


_RULES: dict[str, Callable[[EvalResult, str], float]] = {
    "paravt_videomme": _videomme,
    "paravt_videomme_w_subtitle": _videomme,
    "paravt_longvideobench": _longvideobench,
    "paravt_lvbench": _lvbench,
    "paravt_mlvu": _mlvu,
    "paravt_mmvu": _mmvu,
    "paravt_charades_sta": _charades_sta,
}


_ONE_AT_A_TIME = threading.Lock()


@contextmanager
def _drawing(seed: str) -> Iterator[None]:
    """Python's own random numbers, which upstream draws from, as `seed` gives them; afterwards as they were."""
    with _ONE_AT_A_TIME:
        before = random.getstate()
        random.seed(int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big"))
        try:
            yield
        finally:
            random.setstate(before)
