"""Our results beside the paper's Table 1: per benchmark our headline, the published number and the difference."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict

from lmms_tasks.compare import bootstrap_interval
from lmms_tasks.items import EvalResult
from lmms_tasks.scoring.base import Scorer
from lmms_tasks.scoring.summary import summarise_scores
from lmms_tasks.table1_numbers import COLUMNS, NOTES, PARAVT, PUBLISHED, SIZES, SOURCE
from paravt_infer.errors import SettingsError

if TYPE_CHECKING:
    from rich.console import RenderableType


class Table1Row(BaseModel):
    """One benchmark of the table, with our result. Numbers are in percent, differences in percentage points."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    task: str
    metric: str
    """The headline's name: accuracy, macro (mean over task types) or miou."""
    count: int
    """Questions scored."""
    failed: int
    """Episodes that failed: not scored."""
    size: int
    """Questions the split has."""
    ours: float | None
    """None where every episode failed."""
    interval: tuple[float, float] | None
    """The 95% interval of `ours`, by a bootstrap over the questions; None for fewer than two."""
    published: dict[str, float]
    """Model to the paper's number."""
    difference: float | None
    """`ours` less the paper's ParaVT."""
    difference_interval: tuple[float, float] | None
    """Its 95% interval; the published number is taken as exact, for the paper gives it none."""

    @property
    def partial(self) -> bool:
        """Whether the results are of fewer questions than the split has: a fixture, or a run with a limit."""
        return self.count + self.failed < self.size


def by_task(rows: Iterable[EvalResult], *, where: str = "results") -> dict[str, list[EvalResult]]:
    """Rows by their task. Raises SettingsError, which names `where`, for a question that is there twice."""
    sorted_out: dict[str, list[EvalResult]] = {}
    seen: set[tuple[str, str]] = set()
    for row in rows:
        key = row.item.task, row.item.question.id
        if key in seen:
            raise SettingsError(f"{where}: question {key[1]!r} of {key[0]} is there twice; name one run's folder")
        seen.add(key)
        sorted_out.setdefault(row.item.task, []).append(row)
    return sorted_out


def compare_to_paper(rows: Mapping[str, Sequence[EvalResult]], scorer: Scorer, *, seed: int = 0) -> list[Table1Row]:
    """Our results as lines of Table 1, in its order; tasks that are not in it are passed over.

    Args:
        rows: by task.
        seed: of the bootstrap.
    """
    return [_line(task, rows[task], scorer, seed) for task in COLUMNS if rows.get(task)]


def _line(task: str, rows: Sequence[EvalResult], scorer: Scorer, seed: int) -> Table1Row:
    scores = [None if row.failed else scorer.score(row) for row in rows]
    headline = summarise_scores(rows, scorer.name, scores).headline
    strata: dict[str, list[float]] = {}
    for row, score in zip(rows, scores, strict=True):
        if score is not None:
            # The same average as the headline's: over the task types, or over all questions alike.
            stratum = row.item.groups.get("task_type", "") if headline.name == "macro" else ""
            strata.setdefault(stratum, []).append(100 * score)
    count = sum(map(len, strata.values()))
    ours = headline.value if count else None
    interval = bootstrap_interval(list(strata.values()), seed=seed)
    paper = PARAVT.numbers[task]
    return Table1Row(
        task=task,
        metric=headline.name,
        count=count,
        failed=len(rows) - count,
        size=SIZES[task],
        ours=ours,
        interval=interval,
        published={row.model: row.numbers[task] for row in PUBLISHED if task in row.numbers},
        difference=None if ours is None else ours - paper,
        difference_interval=None if interval is None else (interval[0] - paper, interval[1] - paper),
    )


def table(lines: Sequence[Table1Row], *, title: str, every: bool = False) -> "RenderableType":
    """The lines for a terminal.

    Args:
        every: also lay them beside every other model of Table 1, in the paper's own layout.
    """
    from rich.box import SIMPLE_HEAD
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    shown = Table(title=Text(title), title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False)
    shown.add_column("benchmark", overflow="fold")
    for name in ("questions", "ours, %", PARAVT.model, "difference [95%]"):
        shown.add_column(name, justify="right", no_wrap=True)
    for line in lines:
        metric = "" if line.metric == "accuracy" else f", {line.metric}"
        count = f"{line.count:,} of {line.size:,}" if line.partial else f"{line.count:,}"
        interval = " \\[{:+.1f}, {:+.1f}]".format(*line.difference_interval) if line.difference_interval else ""
        failed = f"\n{line.failed:,} failed" if line.failed else ""
        shown.add_row(
            COLUMNS[line.task] + metric + (" *" if line.partial else ""),
            count + failed,
            "-" if line.ours is None else f"{line.ours:.1f}",
            f"{line.published[PARAVT.model]:.1f}",
            "-" if line.difference is None else f"{line.difference:+.1f}" + interval,
        )
    parts: list[RenderableType] = [shown, Text(f"Published: {SOURCE}. Intervals are of our numbers alone.")]
    if any(line.partial for line in lines):
        parts.append(Text("* Of fewer questions than the split has: no result to set against the paper's."))
    if every:
        parts += [Text(), _paper_layout(lines)]
    return Group(*parts)


def _paper_layout(lines: Sequence[Table1Row]) -> "RenderableType":
    """Every model of Table 1, its number and what ours is above (+) or below (-) it."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    layout = Table(
        title="Published, then ours less it", title_justify="left", title_style="bold", box=SIMPLE_HEAD, pad_edge=False
    )
    layout.add_column("model", no_wrap=True)
    for line in lines:
        layout.add_column(COLUMNS[line.task], justify="right", overflow="fold")
    notes = []
    for row in PUBLISHED:
        cells = []
        for line in lines:
            number = row.numbers.get(line.task)
            if number is None:
                notes.append(f"{row.model}, {COLUMNS[line.task]}: {NOTES[row.model, line.task]}.")
                cells.append("-")
            else:
                cells.append(f"{number:.1f}" + ("" if line.ours is None else f" {line.ours - number:+.1f}"))
        layout.add_row(row.model, *cells)
    layout.add_section()
    layout.add_row("ours", *("-" if line.ours is None else f"{line.ours:.1f}" for line in lines), style="bold")
    ends = ["-" if line.interval is None else "{:.1f} - {:.1f}".format(*line.interval) for line in lines]
    layout.add_row("ours, 95%", *ends)
    layout.caption, layout.caption_justify = "\n".join(notes) or None, "left"
    return layout
