"""Paired statistics of an A/B run: two sets of settings, the same questions.

Everything is compared question by question, over the pairs in which neither episode failed; failures are counted,
never scored.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from scipy.stats import binomtest, bootstrap

from lmms_tasks.results import EvalResult, index_by_question
from lmms_tasks.scoring.base import Scorer
from paravt_infer.errors import SettingsError
from paravt_infer.rollout import Rollout, Usage
from paravt_infer.schema import FrozenModel

RIGHT = 0.5
"""The lowest score of a right answer: choices and texts score 0 or 1, grounding its IoU."""
RESAMPLES = 9999


class PairedScore(FrozenModel):
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


class ArmStatistics(FrozenModel):
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
    """Visual tokens in the main context at its end, a mean over the questions; so is everything below."""
    main_prompt_tokens: float | None
    """Tokens in, summed over the main agent's turns: what T_seq and T_par predict."""
    predicted_sequential: float | None
    """T_seq for each episode's number of calls and overview."""
    predicted_parallel: float | None
    """T_par, likewise."""
    output_tokens: float | None
    calls: float | None


_MEAN_USAGE = [name for name in ArmStatistics.model_fields if name in Usage.model_fields]


class ComparisonStatistics(FrozenModel):
    """The comparison over some questions: all of them, or one task's."""

    pairs: int
    """Questions in which neither episode failed: what all figures are over."""
    left_out: int
    """Questions in which either arm's episode failed."""
    a: ArmStatistics
    b: ArmStatistics
    difference: float | None
    """Mean score of the second arm minus the first one's, in percentage points."""
    interval: tuple[float, float] | None
    """Its 95% interval, by a paired bootstrap over the questions; None for fewer than two pairs."""
    only_a_right: int
    only_b_right: int
    p: float | None
    """Exact McNemar test, two-sided: the probability of so uneven a split if both arms were equally good. 1 where no
    question flipped."""
    seconds_ratio: float | None
    """Median over the questions of the second arm's seconds divided by the first one's."""


class Comparison(FrozenModel):
    """The outcome of an A/B run."""

    names: tuple[str, str]
    models: list[str]
    """Each model that answered; only one in a proper run."""
    scorer: str
    seed: int
    """Seed of the bootstrap."""
    overall: ComparisonStatistics
    """All questions alike, whatever their task: no macro average."""
    tasks: dict[str, ComparisonStatistics]
    pairs: list[PairedScore]
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
        a: the first arm's results.
        b: the second arm's results for the same questions, in any order.

    Raises:
        SettingsError: the arms do not hold the same questions, each once.
    """
    pairs = [
        (PairedScore(task=one.key[0], id=one.key[1], a=scorer.score(one), b=scorer.score(other)), one, other)
        for one, other in pair_results(a, b)
    ]
    tasks = dict.fromkeys(pair.task for pair, _, _ in pairs)
    return Comparison(
        names=names,
        models=sorted({result.rollout.backend.model for result in (*a, *b) if result.rollout.backend.model}),
        scorer=scorer.name,
        seed=seed,
        overall=_statistics(pairs, seed),
        tasks={task: _statistics([pair for pair in pairs if pair[0].task == task], seed) for task in tasks},
        pairs=[pair for pair, _, _ in pairs],
    )


def pair_results(a: Sequence[EvalResult], b: Sequence[EvalResult]) -> list[tuple[EvalResult, EvalResult]]:
    """The arms' results for each question, in the first arm's order.

    Raises:
        SettingsError: a question is in one arm only, twice in one, or not the same in both.
    """
    first, second = index_by_question(a, where="first arm"), index_by_question(b, where="second arm")
    if unmatched := first.keys() ^ second.keys():
        task, name = min(unmatched)
        raise SettingsError(
            f"{len(unmatched)} questions are in one arm only, such as {name!r} of {task}; run both arms to their end"
        )
    if not first:
        raise SettingsError("both arms are empty; there is nothing to compare")
    for (task, name), result in first.items():
        other = second[task, name]
        if (result.item.gold, result.item.question.text) != (other.item.gold, other.item.question.text):
            raise SettingsError(f"question {name!r} of {task} differs between the arms; run both on one data set")
    return [(result, second[key]) for key, result in first.items()]


def _statistics(pairs: Sequence[tuple[PairedScore, EvalResult, EvalResult]], seed: int) -> ComparisonStatistics:
    kept = [(pair.a or 0.0, pair.b or 0.0, one.rollout, other.rollout) for pair, one, other in pairs if pair.scored]
    changes = [100 * (b - a) for a, b, _, _ in kept]
    only_a = sum(a >= RIGHT > b for a, b, _, _ in kept)
    only_b = sum(b >= RIGHT > a for a, b, _, _ in kept)
    seconds = [(one.usage.seconds, other.usage.seconds) for _, _, one, other in kept]
    ratios = [second / first for first, second in seconds if first > 0]
    first, second = [(a, one) for a, _, one, _ in kept], [(b, other) for _, b, _, other in kept]
    return ComparisonStatistics(
        pairs=len(kept),
        left_out=len(pairs) - len(kept),
        a=_arm_statistics(first, failed=sum(pair.a is None for pair, _, _ in pairs)),
        b=_arm_statistics(second, failed=sum(pair.b is None for pair, _, _ in pairs)),
        difference=_mean(changes),
        interval=bootstrap_interval([changes], seed=seed),
        only_a_right=only_a,
        only_b_right=only_b,
        p=(float(binomtest(only_a, only_a + only_b).pvalue) if only_a + only_b else 1.0) if kept else None,
        seconds_ratio=float(np.median(ratios)) if ratios else None,
    )


def _arm_statistics(scored: Sequence[tuple[float, Rollout]], *, failed: int) -> ArmStatistics:
    usages = [rollout.usage for _, rollout in scored]
    p50, p95 = np.percentile([usage.seconds for usage in usages], [50, 95]) if usages else (None, None)
    return ArmStatistics(
        failed=failed,
        no_answer=sum(rollout.status == "no_answer" for _, rollout in scored),
        right=sum(score >= RIGHT for score, _ in scored),
        score=_mean([100 * score for score, _ in scored]),
        seconds_p50=p50,
        seconds_p95=p95,
        **{name: _mean([getattr(usage, name) for usage in usages]) for name in _MEAN_USAGE},
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def bootstrap_interval(strata: Sequence[Sequence[float]], *, seed: int = 0) -> tuple[float, float] | None:
    """The 95% percentile bootstrap interval of the mean of the strata's means.

    One stratum: the mean of its values. Several: a macro average, each stratum resampled separately.
    Values that are all equal give that point as the interval; fewer than two values in all give None.

    >>> bootstrap_interval([[50.0, 50.0, 50.0]])
    (50.0, 50.0)
    """
    if sum(map(len, strata)) < 2:
        return None
    # A stratum of one value has one resample; scipy wants two values.
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
