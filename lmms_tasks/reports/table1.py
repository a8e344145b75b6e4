"""Our results next to the paper's Table 1: per benchmark our headline, the published number and the difference."""

from collections.abc import Mapping, Sequence

from lmms_tasks.reports.published import PARAVT, PUBLISHED, TABLE1_TITLES
from lmms_tasks.reports.statistics import bootstrap_interval
from lmms_tasks.results import EvalResult
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.summary import summarise_scores
from lmms_tasks.tasks import BENCHMARKS
from paravt_infer.schema import FrozenModel


class Table1Row(FrozenModel):
    """One benchmark of the table, with our result. Numbers are in percent, differences in percentage points."""

    task: str
    metric: str
    """The headline's name: accuracy, macro (mean over task types) or miou."""
    count: int
    """Questions scored."""
    failed: int
    """Episodes that failed: not scored."""
    size: int
    """Questions in the split."""
    ours: float | None
    """None where every episode failed."""
    interval: tuple[float, float] | None
    """The 95% interval of `ours`, by a bootstrap over the questions; None for fewer than two."""
    published: dict[str, float]
    """Model to the paper's number."""
    difference: float | None
    """`ours` minus the paper's ParaVT."""
    difference_interval: tuple[float, float] | None
    """Its 95% interval; the published number is taken as exact, as the paper gives no interval."""

    @property
    def partial(self) -> bool:
        """Whether the results are of fewer questions than the split has: a fixture, or a run with a limit."""
        return self.count + self.failed < self.size


def compare_to_paper(results: Mapping[str, Sequence[EvalResult]], scorer: Scorer, *, seed: int = 0) -> list[Table1Row]:
    """Our results as rows of Table 1, in its order; tasks that are not in it are skipped.

    Args:
        results: by task.
        seed: of the bootstrap.
    """
    return [_row(task, results[task], scorer, seed) for task in TABLE1_TITLES if results.get(task)]


def _row(task: str, results: Sequence[EvalResult], scorer: Scorer, seed: int) -> Table1Row:
    benchmark = BENCHMARKS[task]
    scores = [scorer.score(result) for result in results]
    headline = summarise_scores(results, scorer.name, scores).headline
    strata: dict[str, list[float]] = {}  # a macro average's groups, resampled separately
    for result, score in zip(results, scores, strict=True):
        if score is not None:
            strata.setdefault(result.item.groups.get(benchmark.macro_over, ""), []).append(100 * score)
    count = sum(map(len, strata.values()))
    ours = headline.value if count else None
    interval = bootstrap_interval(list(strata.values()), seed=seed)
    paper = PUBLISHED[PARAVT][task]
    return Table1Row(
        task=task,
        metric=headline.name,
        count=count,
        failed=len(results) - count,
        size=benchmark.size,
        ours=ours,
        interval=interval,
        published={model: numbers[task] for model, numbers in PUBLISHED.items() if task in numbers},
        difference=None if ours is None else ours - paper,
        difference_interval=None if interval is None else (interval[0] - paper, interval[1] - paper),
    )
