"""Stored results scored again, under several scorers: how far they are apart, and on which questions."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pydantic import BaseModel, ConfigDict

import paravt_infer
from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import NamedScorer, said
from lmms_tasks.scoring.summary import Summary, summarise_scores
from paravt_infer.errors import BackendError, SettingsError

AT_ONCE = 8
"""Rows scored at the same time by a scorer that waits for a server."""


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings")


class Disagreement(_Record):
    """A question that the scorers score differently."""

    id: str
    gold: str
    answer: str | None
    """What was answered, unshortened."""
    scores: dict[str, float | None]
    """Scorer to score; None where it could not score this row."""


class TaskScores(_Record):
    """One task under every scorer."""

    task: str
    summaries: dict[str, Summary] = {}
    """By scorer."""
    faults: dict[str, list[str]] = {}
    """By scorer: why it did not score this task, or rows of it; one line each."""
    spread: float | None
    """Highest less lowest headline, in percentage points; None where fewer than two scorers have one."""
    disagreements: list[Disagreement] = []


class Rescored(_Record):
    """What came of scoring rows again."""

    scorers: dict[str, dict[str, str]]
    """By scorer: what its scores hang on, such as a judge's model, its prompt and the prompt's checksum."""
    tasks: list[TaskScores]
    version: str = paravt_infer.__version__
    """Of this package, whose rules these are."""


def rescore(
    rows: Iterable[EvalResult], scorers: Sequence[NamedScorer], *, done: Callable[[], Any] = lambda: None
) -> Rescored:
    """Every task's rows under every scorer. No episode is run again.

    A scorer that has no rule for a task is left out of it, and a row that a judge did not reply to has no score:
    both are named in `faults`.

    Args:
        done: called for every row scored.

    Raises:
        SettingsError: no rows; or no scorer could score any of them, with the first reason.
    """
    by_task: dict[str, list[EvalResult]] = {}
    for row in rows:
        by_task.setdefault(row.item.task, []).append(row)
    if not by_task:
        raise SettingsError("results: hold no row; there is nothing to score")
    tasks = [_task(task, by_task[task], scorers, done) for task in sorted(by_task)]
    faults = [line for task in tasks for lines in task.faults.values() for line in lines]
    if faults and not any(_has_headline(summary) for task in tasks for summary in task.summaries.values()):
        raise SettingsError(faults[0])
    facts = {scorer.name: dict(scorer.facts) for scorer in scorers}
    return Rescored(scorers=facts, tasks=tasks)


def _task(task: str, rows: list[EvalResult], scorers: Sequence[NamedScorer], done: Callable[[], Any]) -> TaskScores:
    summaries: dict[str, Summary] = {}
    faults: dict[str, list[str]] = {}
    scores: dict[str, list[float | None]] = {}
    for scorer in scorers:
        try:
            found = _scores(rows, scorer, done)
        except SettingsError as error:
            faults[scorer.name] = [str(error)]
            continue
        scores[scorer.name] = [None if isinstance(score, BackendError) else score for score in found]
        summaries[scorer.name] = summarise_scores(rows, scorer.name, scores[scorer.name])
        if lines := [str(score) for score in found if isinstance(score, BackendError)]:
            faults[scorer.name] = lines
    headlines = [summary.headline.value for summary in summaries.values() if _has_headline(summary)]
    differing = []
    for row, *given in zip(rows, *scores.values(), strict=True):
        if len({round(score, 6) for score in given if score is not None}) > 1:
            by_scorer = dict(zip(scores, given, strict=True))
            question = row.item.question
            differing.append(Disagreement(id=question.id, gold=row.item.gold, answer=said(row), scores=by_scorer))
    return TaskScores(
        task=task,
        summaries=summaries,
        faults=faults,
        spread=max(headlines) - min(headlines) if len(headlines) > 1 else None,
        disagreements=differing,
    )


def _has_headline(summary: Summary) -> bool:
    return not math.isnan(summary.headline.value)


def _scores(rows: list[EvalResult], scorer: NamedScorer, done: Callable[[], Any]) -> list[float | BackendError | None]:
    """One a row: None where the episode failed, the error where a judge did.  # [rows]"""

    def score(row: EvalResult) -> float | BackendError | None:
        try:
            return None if row.failed else scorer.score(row)
        except BackendError as error:
            return error
        finally:
            done()

    if not scorer.waits:
        return [score(row) for row in rows]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return list(pool.map(score, rows))
