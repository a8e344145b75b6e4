"""What lmms-eval calls for every task: a document's video, question and gold answer, and what a response scores.

lmms-eval's table and this project's own have one source: a document's value carries its `EvalResult`, and every
metric is the benchmark's own (`Benchmark.metrics`).
"""

from collections.abc import Sequence
from typing import Any

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.rules import paravt
from lmms_tasks.tasks import get_benchmark
from lmms_tasks.tasks.base import TASK_COLUMN, Benchmark, Doc, group_metric
from paravt_infer.answers import extract_answer, extract_choice, extract_span
from paravt_infer.errors import SettingsError
from paravt_infer.protocols.direct import DirectProtocol
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout

FAILED = "[paravt: failed]"
"""How the text of a failed episode begins. It is counted, and never scored as an answer."""
_FAILURE_PREFIXES = (FAILED, "[LMMS_EVAL_REQUEST_FAILED")


def response_text(rollout: Rollout) -> str:
    """What the model plug-in returns to lmms-eval for an episode: only the answer, empty where there is none.

    An answer of several lines goes in an answer block: outside of one only its last line would be read.
    """
    if rollout.status not in ("answered", "no_answer"):
        return f"{FAILED} {rollout.error or rollout.status}"
    text = rollout.answer_text or ""
    return f"<answer>{text}</answer>" if "\n" in text else text


def doc_to_visual(doc: Doc) -> list[str]:
    """The video's path."""
    return [_benchmark(doc).item(doc).question.video]


def doc_to_text(doc: Doc, lmms_eval_specific_kwargs: Any = None) -> str:
    """The question with its options, without a protocol's instruction.

    Also without subtitles: which lines to show depends on the frames that a model samples, which only the engine
    knows.
    """
    return DirectProtocol().question_text(_benchmark(doc).item(doc).question)


def doc_to_target(doc: Doc) -> str:
    """The gold answer: a letter, a text, or `[start, end]`."""
    return _benchmark(doc).item(doc).gold


def process_results(doc: Doc, results: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each metric that the document counts for: what `Benchmark.aggregate` needs of it.

    The metric's name, the document's `EvalResult` (`row`), and its score, None where the episode failed.
    """
    benchmark = _benchmark(doc)
    item = benchmark.item(doc)
    result = EvalResult(item=item, rollout=_rollout_from_text(item.question, results[0]))
    value = {
        "row": result.model_dump(mode="json", exclude_defaults=True),
        "paravt_score": None if result.failed else paravt(result),  # lmms-eval takes a key `score` for its own
    }
    groups = [group_metric(item.groups[key]) for key in benchmark.groups]
    return {name: {"metric": name, **value} for name in (*benchmark.metrics, *groups, "failed", "no_answer")}


def _benchmark(doc: Doc) -> Benchmark:
    if TASK_COLUMN not in doc:
        raise SettingsError(f"a document has no column {TASK_COLUMN}; give its task's YAML file a process_docs line")
    return get_benchmark(doc[TASK_COLUMN])


def _rollout_from_text(question: Question, text: str) -> Rollout:
    """A response as the record of an episode; what led to it is not known here.

    The answer is where `extract_answer` finds it. A text without any tag is a whole response of another model: its
    last line is read first, and all of it where that line commits to nothing.
    """
    if text.startswith(_FAILURE_PREFIXES):
        return Rollout(question=question, status="failed", error=text)
    extracted = extract_answer(text)
    if extracted is None:
        return Rollout(question=question, status="no_answer")
    answer_text = extracted.text
    if extracted.source == "last_line" and _commitment(question, answer_text) is None and _commitment(question, text):
        answer_text = text
    answer = extract_choice(answer_text, question.options) if question.options else answer_text
    return Rollout(
        question=question,
        answer=answer,
        answer_text=answer_text,
        answer_source=extracted.source,
        status="no_answer" if answer is None else "answered",
    )


def _commitment(question: Question, text: str) -> object:
    """The option or span that a text commits to; for an open question the whole text."""
    if question.kind == "choice":
        return extract_choice(text, question.options)
    return extract_span(text) if question.kind == "grounding" else text
