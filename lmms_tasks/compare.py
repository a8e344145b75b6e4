"""Two ways to answer the same questions, told apart: paired statistics of an A/B run.

Both arms answered the same items. Whatever is compared is compared question by question, over the pairs in which
neither episode failed; failures are counted, never scored.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from lmms_tasks.items import EvalResult, write_whole
from lmms_tasks.scoring.base import Scorer
from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType

RIGHT = 0.5
"""A score from here on is a right answer: choices and texts score 0 or 1, grounding its IoU."""
RESAMPLES = 9999


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Pair(_Record):
    """One question and how both arms scored."""

    task: str
    id: str
    a: float | None
    """The first arm's score, 0 to 1; None where its episode failed."""
    b: float | None
    """The second arm's."""

    @property
    def scored(self) -> bool:
        return self.a is not None and self.b is not None

    @property
    def flipped(self) -> bool:
        """Whether one arm is right and the other wrong."""
        return self.a is not None and self.b is not None and (self.a >= RIGHT) != (self.b >= RIGHT)


class ArmStatistics(_Record):
    """One arm's figures over the scored pairs; None where there is no such pair."""

    failed: int
    """Episodes of this arm that failed: of all its episodes, not of the pairs."""
    no_answer: int
    right: int
    score: float | None
    """Mean score in percent: accuracy, or mean IoU."""
    seconds_p50: float | None
    """Median seconds an episode took, by the wall clock."""
    seconds_p95: float | None
    main_visual_tokens: float | None
    """Visual tokens in the main context at its end, mean of the questions; so are all that follow."""
    main_prompt_tokens: float | None
    """Tokens in, summed over the main agent's turns: what T_seq and T_par predict."""
    predicted_sequential: float | None
    """T_seq for each episode's number of calls and overview."""
    predicted_parallel: float | None
    """T_par, likewise."""
    output_tokens: float | None
    calls: float | None


class ComparisonStatistics(_Record):
    """The comparison over some questions: all of them, or one task's."""

    pairs: int
    """Questions that both arms answered, or said they could not: what all figures are over."""
    left_out: int
    """Questions in which either arm's episode failed."""
    a: ArmStatistics
    b: ArmStatistics
    difference: float | None
    """Mean score of the second arm less the first one's, in percentage points."""
    interval: tuple[float, float] | None
    """Its 95% interval, by a paired bootstrap over the questions; None for fewer than two pairs."""
    only_a_right: int
    only_b_right: int
    p: float | None
    """Exact McNemar test, two-sided: how likely so uneven a split is, were both arms as good. 1 where none flipped."""
    seconds_ratio: float | None
    """Median over the questions of the second arm's seconds by the first one's."""


class Comparison(_Record):
    """What an A/B run came to."""

    names: tuple[str, str]
    models: list[str]
    """Each model that answered; one, where all is well."""
    scorer: str
    seed: int
    """Of the bootstrap."""
    overall: ComparisonStatistics
    """All questions alike, whatever their task: no macro average."""
    tasks: dict[str, ComparisonStatistics]
    pairs: list[Pair]
    """All questions, in the first arm's order."""


def compare(
    a: Sequence[EvalResult],
    b: Sequence[EvalResult],
    scorer: Scorer,
    *,
    names: tuple[str, str] = ("a", "b"),
    seed: int = 0,
) -> Comparison:
    """Score both arms and compare them.

    Args:
        a: the first arm's rows.
        b: the second arm's rows of the same questions, in any order.

    Raises:
        SettingsError: the arms do not hold the same questions, each once.
    """
    triples = [
        (
            Pair(
                task=one.item.task,
                id=one.item.question.id,
                a=None if one.failed else scorer.score(one),
                b=None if other.failed else scorer.score(other),
            ),
            one,
            other,
        )
        for one, other in match(a, b)
    ]
    tasks = dict.fromkeys(pair.task for pair, _, _ in triples)
    return Comparison(
        names=names,
        models=sorted({row.rollout.backend.model for row in (*a, *b) if row.rollout.backend.model}),
        scorer=scorer.name,
        seed=seed,
        overall=_part(triples, seed),
        tasks={task: _part([triple for triple in triples if triple[0].task == task], seed) for task in tasks},
        pairs=[pair for pair, _, _ in triples],
    )


def match(a: Sequence[EvalResult], b: Sequence[EvalResult]) -> list[tuple[EvalResult, EvalResult]]:
    """The arms' rows of each question, in the first arm's order.

    Raises:
        SettingsError: a question is in one arm alone, twice in one, or not the same in both.
    """
    first, second = _by_question(a, "first"), _by_question(b, "second")
    if alone := first.keys() ^ second.keys():
        task, name = min(alone)
        raise SettingsError(
            f"{len(alone)} questions are in one arm alone, such as {name!r} of {task}; run both arms to their end"
        )
    if not first:
        raise SettingsError("both arms are empty; there is nothing to compare")
    for key, row in first.items():
        other = second[key]
        if (row.item.gold, row.item.question.text) != (other.item.gold, other.item.question.text):
            raise SettingsError(f"question {key[1]!r} of {key[0]} differs between the arms; run both on one data set")
    return [(row, second[key]) for key, row in first.items()]


def _by_question(rows: Sequence[EvalResult], arm: str) -> dict[tuple[str, str], EvalResult]:
    found: dict[tuple[str, str], EvalResult] = {}
    for row in rows:
        key = row.item.task, row.item.question.id
        if key in found:
            raise SettingsError(f"question {key[1]!r} of {key[0]} is twice in the {arm} arm; give it one run's rows")
        found[key] = row
    return found


def _part(triples: Sequence[tuple[Pair, EvalResult, EvalResult]], seed: int) -> ComparisonStatistics:
    import numpy as np
    from scipy.stats import binomtest

    kept = [triple for triple in triples if triple[0].scored]
    a, b = [pair.a or 0.0 for pair, _, _ in kept], [pair.b or 0.0 for pair, _, _ in kept]
    changes = [100 * (second - first) for first, second in zip(a, b, strict=True)]
    only_a = sum(first >= RIGHT > second for first, second in zip(a, b, strict=True))
    only_b = sum(second >= RIGHT > first for first, second in zip(a, b, strict=True))
    seconds = [(one.rollout.usage.seconds, other.rollout.usage.seconds) for _, one, other in kept]
    ratios = [second / first for first, second in seconds if first > 0]
    return ComparisonStatistics(
        pairs=len(kept),
        left_out=len(triples) - len(kept),
        a=_arm([one for _, one, _ in kept], a, failed=sum(pair.a is None for pair, _, _ in triples)),
        b=_arm([other for _, _, other in kept], b, failed=sum(pair.b is None for pair, _, _ in triples)),
        difference=_mean(changes),
        interval=bootstrap_interval([changes], seed=seed),
        only_a_right=only_a,
        only_b_right=only_b,
        p=(float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0) if kept else None,
        seconds_ratio=float(np.median(ratios)) if ratios else None,
    )


def _arm(rows: Sequence[EvalResult], scores: Sequence[float], *, failed: int) -> ArmStatistics:
    import numpy as np

    usages = [row.rollout.usage for row in rows]
    seconds = [usage.seconds for usage in usages]
    p50, p95 = (float(value) for value in np.percentile(seconds, [50, 95])) if seconds else (None, None)
    return ArmStatistics(
        failed=failed,
        no_answer=sum(row.rollout.status == "no_answer" for row in rows),
        right=sum(score >= RIGHT for score in scores),
        score=_mean([100 * score for score in scores]),
        seconds_p50=p50,
        seconds_p95=p95,
        main_visual_tokens=_mean([usage.main_visual_tokens for usage in usages]),
        main_prompt_tokens=_mean([usage.main_prompt_tokens for usage in usages]),
        predicted_sequential=_mean([usage.predicted_sequential for usage in usages]),
        predicted_parallel=_mean([usage.predicted_parallel for usage in usages]),
        output_tokens=_mean([usage.output_tokens for usage in usages]),
        calls=_mean([usage.calls for usage in usages]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def bootstrap_interval(strata: Sequence[Sequence[float]], *, seed: int = 0) -> tuple[float, float] | None:
    """The 95% percentile bootstrap interval of the mean of the strata's means.

    One stratum: the mean of its values. Several: a macro average, each stratum drawn anew by itself.
    Values that are all alike give that point as the interval; fewer than two values in all give None.

    >>> bootstrap_interval([[50.0, 50.0, 50.0]])
    (50.0, 50.0)
    """
    import numpy as np
    from scipy.stats import bootstrap

    if sum(map(len, strata)) < 2:
        return None
    # A stratum of one value can only be drawn as it is; scipy asks for two.
    samples = [np.repeat(stratum, 2 if len(stratum) == 1 else 1) for stratum in strata if len(stratum)]

    def mean_of_means(*drawn: Any, axis: int = -1) -> Any:
        return np.mean([values.mean(axis=axis) for values in drawn], axis=0)

    result = bootstrap(
        samples,
        mean_of_means,
        method="percentile",
        n_resamples=RESAMPLES,
        batch=max(1, 2_000_000 // max(map(len, samples))),  # else all resamples are in memory at once
        rng=np.random.default_rng(seed),
    )
    low, high = result.confidence_interval
    return float(low), float(high)


def pairs_table(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult]) -> Any:
    """A pyarrow table, one line a question.

    Columns: task, id, gold, then for each arm (`a_`, `b_`) status, answer, score (0 to 1, null where failed), seconds
    and calls, then flipped (null where either failed). The arms' names are in the schema's metadata.
    """
    import pyarrow as pa

    matched = match(a, b)
    columns: dict[str, Any] = {
        "task": pa.array([pair.task for pair in comparison.pairs], pa.string()),
        "id": pa.array([pair.id for pair in comparison.pairs], pa.string()),
        "gold": pa.array([row.item.gold for row, _ in matched], pa.string()),
    }
    for arm, side in enumerate("ab"):
        rollouts = [rows[arm].rollout for rows in matched]
        columns |= {
            f"{side}_status": pa.array([rollout.status for rollout in rollouts], pa.string()),
            f"{side}_answer": pa.array([rollout.answer for rollout in rollouts], pa.string()),
            f"{side}_score": pa.array([getattr(pair, side) for pair in comparison.pairs], pa.float64()),
            f"{side}_seconds": pa.array([rollout.usage.seconds for rollout in rollouts], pa.float64()),
            f"{side}_calls": pa.array([rollout.usage.calls for rollout in rollouts], pa.int64()),
        }
    flips = [pair.flipped if pair.scored else None for pair in comparison.pairs]
    columns["flipped"] = pa.array(flips, pa.bool_())
    named = {"a": comparison.names[0], "b": comparison.names[1], "scorer": comparison.scorer}
    return pa.table(columns).replace_schema_metadata(named)


def save_pairs(comparison: Comparison, a: Sequence[EvalResult], b: Sequence[EvalResult], path: Path) -> None:
    """Write `pairs_table` as Parquet, whole or not at all. Raises SettingsError where it cannot be written."""
    import pyarrow.parquet as pq

    table = pairs_table(comparison, a, b)
    write_whole(path, lambda scratch: pq.write_table(table, scratch, compression="zstd"))


def table(comparison: Comparison) -> "RenderableType":
    """The comparison for a terminal: one table over all questions, and one line a task where there are several."""
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    part = comparison.overall
    names = short_names(comparison.names)
    heads: list[RenderableType] = [
        *map(Text, names),
        "second by first",
    ]  # as they are: a name may hold what rich takes for markup
    title = f"{part.pairs:,} questions that both arms answered, scorer {comparison.scorer}"
    figures = Table("", title=Text(title, style="bold"), title_justify="left", box=SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        figures.add_column(head, justify="right", overflow="fold")
    for label, field, form, way in ROWS:
        a, b = getattr(part.a, field), getattr(part.b, field)
        shown = ["-" if value is None else form.format(value) for value in (a, b)]
        figures.add_row(label, *shown, against(a, b, way))
    lines: list[RenderableType] = [figures, *(Text(line) for line in sentences(part, names))]
    if len(comparison.tasks) > 1:
        tasks = Table(box=SIMPLE_HEAD, pad_edge=False)
        tasks.add_column("task", overflow="fold")
        for head in ("pairs", "scores, %", "difference", "95% interval", "McNemar p"):
            tasks.add_column(head, justify="right")
        for name, one in comparison.tasks.items():
            scores = " / ".join("-" if arm.score is None else f"{arm.score:.1f}" for arm in (one.a, one.b))
            difference = "-" if one.difference is None else f"{one.difference:+.1f}"
            interval = "-" if one.interval is None else "{:+.1f} to {:+.1f}".format(*one.interval)
            p = "-" if one.p is None else f"{one.p:.3g}"
            tasks.add_row(Text(name), f"{one.pairs:,}", scores, difference, interval, p)
        lines.append(tasks)
    return Group(*lines)


ROWS = (
    ("score, %", "score", "{:.1f}", "less"),
    ("right", "right", "{:,}", "less"),
    ("no answer", "no_answer", "{:,}", "less"),
    ("failed", "failed", "{:,}", "less"),
    ("seconds, p50", "seconds_p50", "{:.2f}", "by"),
    ("seconds, p95", "seconds_p95", "{:.2f}", "by"),
    ("visual tokens in the main context", "main_visual_tokens", "{:,.0f}", "by"),
    ("main agent's tokens in, measured", "main_prompt_tokens", "{:,.0f}", "by"),
    ("predicted, T_seq", "predicted_sequential", "{:,.0f}", "by"),
    ("predicted, T_par", "predicted_parallel", "{:,.0f}", "by"),
    ("output tokens", "output_tokens", "{:,.0f}", "by"),
    ("calls", "calls", "{:.2f}", "by"),
)
"""What is shown of an arm: label, field, form, and whether the last column takes the difference or the ratio."""


def against(a: float | None, b: float | None, way: str) -> str:
    """The second arm's value less the first one's (`less`), or divided by it (`by`).

    >>> against(10.0, 15.0, "by"), against(10, 15, "less"), against(0.0, 1.0, "by")
    ('x 1.50', '+5', '-')
    """
    if a is None or b is None or (way == "by" and a == 0):
        return "-"
    if way == "by":
        return f"x {b / a:.2f}"
    return f"{b - a:+d}" if isinstance(a, int) and isinstance(b, int) else f"{b - a:+.1f}"


def short_names(names: tuple[str, str]) -> tuple[str, str]:
    """The arms' names without the settings' own, where that still tells them apart.

    >>> short_names(("dispatch=parallel,evidence=text", "dispatch=sequential,evidence=frames"))
    ('parallel, text', 'sequential, frames')
    """
    first, second = (", ".join(part.rpartition("=")[2].strip() for part in name.split(",")) for name in names)
    return (first, second) if first and second and first != second else names


def sentences(part: ComparisonStatistics, names: tuple[str, str]) -> list[str]:
    """What the numbers say, in words; also what they do not."""
    said = []
    if part.difference is None:
        said.append("No question was answered by both arms: there is nothing to compare.")
    else:
        if part.interval is None:
            sure = "one pair alone has no interval"
        elif part.interval[0] == part.interval[1]:
            sure = "all pairs differ alike, so that the 95% interval is that point"
        else:
            sure = "95% interval {:+.1f} to {:+.1f}, paired bootstrap".format(*part.interval)
        said.append(f"Difference, second less first: {part.difference:+.1f} points ({sure}).")
        said.append(
            f"Right in one arm alone: {part.only_a_right:,} ({names[0]}), {part.only_b_right:,} ({names[1]}); "
            f"exact McNemar p = {part.p:.3g}. A grounding answer is right from IoU {RIGHT} on."
        )
    if part.seconds_ratio is not None:
        said.append(f"Seconds, second by first, question by question: x {part.seconds_ratio:.2f} in the median.")
    if part.left_out:
        said.append(
            f"Left out, since an episode failed: {part.left_out:,} questions "
            f"({part.a.failed:,} episodes of the first arm, {part.b.failed:,} of the second)."
        )
    return said
