"""What the tasks' YAML files name: a document's video and question, and what is made of a response.

lmms-eval's table and this project's own come from one place: each document's value is an `EvalResult`, and every
metric is what `lmms_tasks.scoring.summary` makes of those rows.
"""

import functools
import re
from collections.abc import Callable, Sequence
from typing import Any

from lmms_tasks.benchmarks import Benchmark, Doc, get_benchmark
from lmms_tasks.items import EvalResult
from paravt_infer.answers import extract_answer, extract_choice, extract_span
from paravt_infer.protocols.direct import DirectProtocol
from paravt_infer.questions import Question
from paravt_infer.rollout import Rollout

FAILED = "[paravt: failed]"
"""What a failed episode's text begins with. It is counted, and never scored as an answer."""
_BROKEN = (FAILED, "[LMMS_EVAL_REQUEST_FAILED")


def failed_text(reason: str) -> str:
    """The text of an episode that failed.

    >>> failed_text("film.mp4: no such file")
    '[paravt: failed] film.mp4: no such file'
    """
    return f"{FAILED} {reason}"


def response_text(rollout: Rollout) -> str:
    """What a model of lmms-eval returns for an episode: the answer alone, empty where there is none.

    An answer of several lines goes in an answer block: outside of one only its last line would be read.
    """
    if rollout.status not in ("answered", "no_answer"):
        return failed_text(rollout.error or rollout.status)
    text = rollout.answer_text or ""
    return f"<answer>{text}</answer>" if "\n" in text else text


# Named in the YAML files as TASK__NAME: lmms-eval tells `process_results` the document, and not its task.


def doc_to_visual(benchmark: Benchmark, doc: Doc) -> list[str]:
    """The video's path."""
    return [benchmark.item(doc).question.video]


def doc_to_text(benchmark: Benchmark, doc: Doc) -> str:
    """The question with its options, and no protocol's instruction.

    Without subtitles too: which lines to show hangs on the frames a model samples, which the engine alone knows.
    """
    return DirectProtocol().question_text(benchmark.item(doc).question)


def doc_to_target(benchmark: Benchmark, doc: Doc) -> str:
    """The right answer: a letter, a text, or `[start, end]`."""
    return benchmark.item(doc).gold


def process_results(benchmark: Benchmark, doc: Doc, results: Sequence[str]) -> dict[str, dict[str, Any]]:
    """For each metric that the document counts for: the metric's name and the document's row, for `aggregate`."""
    item = benchmark.item(doc)
    row = EvalResult(item=item, rollout=_heard(item.question, results[0])).model_dump(
        mode="json", exclude_defaults=True
    )
    groups = (f"accuracy_{re.sub(r'[^A-Za-z0-9]+', '_', item.groups[key])}" for key in benchmark.groups)
    return {name: {"metric": name, "row": row} for name in (*benchmark.metrics, *groups, "failed", "no_answer")}


_HOOKS = {hook.__name__: hook for hook in (doc_to_visual, doc_to_text, doc_to_target, process_results)}


def __getattr__(name: str) -> Callable[..., Any]:
    task, _, hook = name.partition("__")
    if hook not in _HOOKS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return functools.partial(_HOOKS[hook], get_benchmark(task))


def numbered(docs: Any) -> Any:
    """Documents with their number in the column `row`: it names those of a data set without ids."""
    return docs.add_column("row", list(range(len(docs))))


def aggregate(values: Sequence[dict[str, Any]]) -> float:
    """A metric over its documents: percent, or for `failed` and `no_answer` how many.

    `accuracy_VALUE` is the accuracy of the documents of one group; a group without any has no line.
    """
    from lmms_tasks.scoring.scorers import get_scorer
    from lmms_tasks.scoring.summary import summarise

    metric = values[0]["metric"]
    summary = summarise([EvalResult.model_validate(value["row"]) for value in values], get_scorer("paravt"))
    if metric in ("failed", "no_answer"):
        return float(getattr(summary, metric))
    return summary.metrics["accuracy" if metric.startswith("accuracy_") else metric]


def _heard(question: Question, text: str) -> Rollout:
    """A response as the record of an episode; of what led to it nothing is known here.

    The answer stands where `extract_answer` finds it. A text without any tag is a whole response of another model:
    its last line first, and all of it where that line commits to nothing.
    """
    if text.startswith(_BROKEN):
        return Rollout(question=question, status="failed", error=text)
    reading = extract_answer(text)
    if reading is None:
        return Rollout(question=question, status="no_answer")
    said = reading.text
    if reading.source == "last_line" and _committed(question, said) is None and _committed(question, text):
        said = text
    answer = extract_choice(said, question.options) if question.options else said
    return Rollout(
        question=question,
        answer=answer,
        answer_text=said,
        answer_source=reading.source,
        status="no_answer" if answer is None else "answered",
    )


def _committed(question: Question, text: str) -> object:
    """The option or span that a text commits to; for an open question the text is all there is."""
    if question.kind == "choice":
        return extract_choice(text, question.options)
    return extract_span(text) if question.kind == "grounding" else text
