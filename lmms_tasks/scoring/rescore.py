"""Stored results scored again under several scorers: how far they differ, and on which questions."""

import math
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import paravt_infer
from lmms_tasks.results import EvalResult, group_by_task
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.summary import Summary, summarise_scores
from paravt_infer.errors import BackendError, SettingsError
from paravt_infer.schema import FrozenModel

REMOTE_CONCURRENCY = 8
"""Results scored at the same time by a scorer that waits for a server."""


class Disagreement(FrozenModel):
    """A question that the scorers score differently."""

    id: str
    gold: str
    answer: str | None
    """The whole answer text."""
    scores: dict[str, float | None]
    """Scorer to score; None where it could not score this result."""


class TaskScores(FrozenModel):
    """One task under every scorer."""

    task: str
    summaries: dict[str, Summary] = {}
    """By scorer."""
    faults: dict[str, list[str]] = {}
    """By scorer: why it did not score this task, or some of its results; one line each."""
    spread: float | None
    """Highest headline minus the lowest, in percentage points; None where fewer than two scorers have one."""
    disagreements: list[Disagreement] = []


class Rescored(FrozenModel):
    """Results under several scorers."""

    scorers: dict[str, dict[str, str]]
    """By scorer: what its scores depend on, such as a judge's model, its prompt and the prompt's checksum."""
    tasks: list[TaskScores]
    version: str = paravt_infer.__version__
    """Version of this package, whose rules these are."""


def rescore(
    results: Iterable[EvalResult], scorers: Sequence[Scorer], *, done: Callable[[], Any] = lambda: None
) -> Rescored:
    """Every task's results under every scorer. No episode is run again.

    A scorer without a rule for a task is left out of it, and a result that a judge did not reply to has no score:
    both are named in `faults`.

    Args:
        done: called for every result scored.

    Raises:
        SettingsError: no results; or no scorer could score any of them, with the first reason.
    """
    by_task = group_by_task(results)
    if not by_task:
        raise SettingsError("results: empty; there is nothing to score")
    tasks = [_score_task(task, by_task[task], scorers, done) for task in sorted(by_task)]
    faults = [line for task in tasks for lines in task.faults.values() for line in lines]
    if faults and not any(_has_headline(summary) for task in tasks for summary in task.summaries.values()):
        raise SettingsError(faults[0])
    return Rescored(scorers={scorer.name: dict(scorer.facts) for scorer in scorers}, tasks=tasks)


def _score_task(task: str, results: list[EvalResult], scorers: Sequence[Scorer], done: Callable[[], Any]) -> TaskScores:
    summaries: dict[str, Summary] = {}
    faults: dict[str, list[str]] = {}
    scores: dict[str, list[float | None]] = {}
    for scorer in scorers:
        try:
            outcomes = _scores(results, scorer, done)
        except SettingsError as error:
            faults[scorer.name] = [str(error)]
            continue
        scores[scorer.name] = [None if isinstance(score, BackendError) else score for score in outcomes]
        summaries[scorer.name] = summarise_scores(results, scorer.name, scores[scorer.name])
        if lines := [str(score) for score in outcomes if isinstance(score, BackendError)]:
            faults[scorer.name] = lines
    headlines = [summary.headline.value for summary in summaries.values() if _has_headline(summary)]
    disagreements = []
    for result, *row in zip(results, *scores.values(), strict=True):
        if len({round(score, 6) for score in row if score is not None}) > 1:
            item, by_scorer = result.item, dict(zip(scores, row, strict=True))
            disagreements.append(
                Disagreement(id=item.question.id, gold=item.gold, answer=result.answer_text, scores=by_scorer)
            )
    return TaskScores(
        task=task,
        summaries=summaries,
        faults=faults,
        spread=max(headlines) - min(headlines) if len(headlines) > 1 else None,
        disagreements=disagreements,
    )


def _has_headline(summary: Summary) -> bool:
    return not math.isnan(summary.headline.value)


def _scores(results: list[EvalResult], scorer: Scorer, done: Callable[[], Any]) -> list[float | BackendError | None]:
    """One per result: None where the episode failed, the error where a judge did.  # [results]"""

    def score(result: EvalResult) -> float | BackendError | None:
        try:
            return scorer.score(result)
        except BackendError as error:
            return error
        finally:
            done()

    if not scorer.remote:
        return [score(result) for result in results]
    with ThreadPoolExecutor(REMOTE_CONCURRENCY) as pool:
        return list(pool.map(score, results))
