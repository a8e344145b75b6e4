"""What a task's rows come to under one scorer: the headline, the other metrics, and every breakdown."""

import statistics
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from pydantic import BaseModel, ConfigDict

from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import Scorer
from paravt_infer.errors import SettingsError


class _Record(BaseModel):
    # A mean of nothing is NaN, which survives JSON as a string.
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True, ser_json_inf_nan="strings")


class Headline(_Record):
    """The number that a benchmark is known by."""

    name: str
    """A key of the summary's `metrics`."""
    value: float
    """Percent; NaN where no row was scored."""


class GroupScore(_Record):
    """One value of a breakdown."""

    count: int
    """Rows scored."""
    score: float
    """Their mean, in percent."""


class Summary(_Record):
    """A task's rows under one scorer. Every score in it is in percent, over the rows that were scored."""

    task: str
    scorer: str
    count: int
    """All rows, whatever came of them."""
    answered: int
    no_answer: int
    """Rows without an answer: they are scored, as wrong."""
    failed: int
    """Rows whose episode broke: they are never scored."""
    unscored: int = 0
    """Rows that the scorer itself could not score, such as a judge that did not reply: never a 0."""
    headline: Headline
    metrics: dict[str, float]
    """By name: `accuracy`, `macro`, `miou`, `r@0.3`, `r@0.5`, `r@0.7` or `score`, as the task has them."""
    groups: dict[str, dict[str, GroupScore]]
    """Key of the items' groups, to its value, to what those rows come to. Values without a scored row are left out."""


def summarise(rows: Sequence[EvalResult], scorer: Scorer) -> Summary:
    """What the rows of one task come to.

    The headline is accuracy; for MLVU `macro`, the mean over the task types that are present; for Charades-STA
    `miou`; for any other task the mean score. Rows count one by one: what two of them share (a video, a caption,
    a span) does not make them one. Recall at 0.5 is the share of rows with an IoU of 0.5 or more.

    Raises:
        SettingsError: no rows, or of more than one task; or the scorer has no rule for them.
        BackendError: the scorer asks a model, and that did not answer.
    """
    return summarise_scores(rows, scorer.name, [None if row.failed else scorer.score(row) for row in rows])


def summarise_scores(rows: Sequence[EvalResult], scorer: str, scores: Sequence[float | None]) -> Summary:
    """`summarise` for scores already known, one a row; None where there is none.  # [rows]"""
    tasks = {row.item.task for row in rows}
    if len(tasks) != 1:
        raise SettingsError(f"results: a summary is of one task's rows, not of {len(tasks)} tasks; sort them first")
    [task] = tasks
    known = [_Scored(row, score) for row, score in zip(rows, scores, strict=True) if score is not None]
    groups = {key: _breakdown(key, known) for key in dict.fromkeys(key for row in rows for key in row.item.groups)}
    metrics = _metrics(task, [score for _, score in known], groups)
    statuses = Counter(row.rollout.status for row in rows)
    failed = sum(row.failed for row in rows)
    headline = next(iter(metrics))
    return Summary(
        task=task,
        scorer=scorer,
        count=len(rows),
        answered=statuses["answered"],
        no_answer=statuses["no_answer"],
        failed=failed,
        unscored=len(rows) - failed - len(known),
        headline=Headline(name=headline, value=metrics[headline]),
        metrics=metrics,
        groups=groups,
    )


class _Scored(NamedTuple):
    row: EvalResult
    score: float


ACCURACY = tuple(f"paravt_{name}" for name in ("videomme", "videomme_w_subtitle", "longvideobench", "lvbench", "mmvu"))


def _metrics(task: str, scores: Sequence[float], groups: dict[str, dict[str, GroupScore]]) -> dict[str, float]:
    """The task's metrics, its headline first."""
    mean = _percent(scores)
    if task == "paravt_mlvu":
        types = [group.score for group in groups.get("task_type", {}).values()]
        return {"macro": statistics.fmean(types) if types else mean, "accuracy": mean}
    if task == "paravt_charades_sta":
        recalls = {f"r@{least}": _percent([float(score >= least) for score in scores]) for least in (0.3, 0.5, 0.7)}
        return {"miou": mean, **recalls}
    return {"accuracy" if task in ACCURACY else "score": mean}


def _breakdown(key: str, known: Sequence[_Scored]) -> dict[str, GroupScore]:
    """Values in their order: numbers by size, then words."""
    by_value: dict[str, list[float]] = {}
    for row, score in known:
        if key in row.item.groups:
            by_value.setdefault(row.item.groups[key], []).append(score)
    ordered = sorted(by_value, key=lambda value: (not value.isdigit(), int(value) if value.isdigit() else 0, value))
    return {value: GroupScore(count=len(by_value[value]), score=_percent(by_value[value])) for value in ordered}


def _percent(scores: Sequence[float]) -> float:
    return 100 * statistics.fmean(scores) if scores else float("nan")
