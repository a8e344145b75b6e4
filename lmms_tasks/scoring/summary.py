"""A task's summary under one scorer: the headline, the other metrics, and every breakdown."""

from collections import Counter
from collections.abc import Sequence

from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import ScoredResult, mean_score
from paravt_infer.errors import SettingsError
from paravt_infer.schema import FrozenModel


class Headline(FrozenModel):
    """The number that a benchmark is known by."""

    name: str
    """A key of the summary's `metrics`."""
    value: float
    """Percent; NaN where nothing was scored."""


class GroupScore(FrozenModel):
    """One value of a breakdown."""

    count: int
    """Results scored."""
    score: float
    """Their mean, in percent."""


class Summary(FrozenModel):
    """A task's results under one scorer. Every score in it is in percent, over the results that were scored."""

    task: str
    scorer: str
    count: int
    """All results, whatever their status."""
    answered: int
    no_answer: int
    """Results without an answer: they are scored, as wrong."""
    failed: int
    """Results whose episode failed: they are never scored."""
    unscored: int = 0
    """Results that the scorer itself could not score, such as a judge that did not reply: never a 0."""
    headline: Headline
    metrics: dict[str, float]
    """By name, as the benchmark has them, such as `accuracy`, `macro` or `r@0.5`; `score` for any other task."""
    groups: dict[str, dict[str, GroupScore]]
    """Key of the items' groups, to its value, to that value's score. Values without a scored result are left out."""


def summarise(results: Sequence[EvalResult], scorer: Scorer) -> Summary:
    """The summary of one task's results.

    The benchmark's own metrics (`Benchmark.metrics`); for any other task the mean score. Results count one by one,
    also where two share a video, a caption and a span.

    Raises:
        SettingsError: no results, or of more than one task; or the scorer has no rule for them.
        BackendError: the scorer asks a model, which did not answer.
    """
    return summarise_scores(results, scorer.name, [scorer.score(result) for result in results])


def summarise_scores(results: Sequence[EvalResult], scorer: str, scores: Sequence[float | None]) -> Summary:
    """`summarise` for scores already known, one per result; None where there is none.  # [results]"""
    tasks = {result.item.task for result in results}
    if len(tasks) != 1:
        raise SettingsError(f"results: a summary takes one task's results, not those of {len(tasks)}; split them first")
    [task] = tasks
    scored = [ScoredResult(one, score) for one, score in zip(results, scores, strict=True) if score is not None]
    computed = BENCHMARKS[task].metrics if task in BENCHMARKS else {"score": mean_score}
    metrics = {name: metric(scored) for name, metric in computed.items()}
    keys = dict.fromkeys(key for result in results for key in result.item.groups)
    statuses = Counter(result.rollout.status for result in results)
    failed = sum(result.failed for result in results)
    headline = next(iter(metrics))
    return Summary(
        task=task,
        scorer=scorer,
        count=len(results),
        answered=statuses["answered"],
        no_answer=statuses["no_answer"],
        failed=failed,
        unscored=len(results) - failed - len(scored),
        headline=Headline(name=headline, value=metrics[headline]),
        metrics=metrics,
        groups={key: _breakdown(key, scored) for key in keys},
    )


def _breakdown(key: str, scored: Sequence[ScoredResult]) -> dict[str, GroupScore]:
    """Values in their order: numbers by size, then words."""
    by_value: dict[str, list[ScoredResult]] = {}
    for one in scored:
        if key in one.result.item.groups:
            by_value.setdefault(one.result.item.groups[key], []).append(one)
    ordered = sorted(by_value, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))
    return {value: GroupScore(count=len(by_value[value]), score=mean_score(by_value[value])) for value in ordered}
