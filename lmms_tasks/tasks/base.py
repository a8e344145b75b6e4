"""What a benchmark is: its data, how a row is read, how results are scored, and its column of the paper's Table 1."""

import os
import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from lmms_tasks.results import EvalItem, EvalResult
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.schema import validation_message

Doc = Mapping[str, Any]
"""A row of a data set, as lmms-eval calls it."""
TASK_COLUMN, ROW_COLUMN = "paravt_task", "paravt_row"
"""What `Benchmark.process_docs` adds to each document: its task's name, and its number in the split from 0."""
ALL_VIDEOS = "PARAVT_VIDEOS"
"""Environment variable: a folder laid out like the Hugging Face home, with the videos of all benchmarks."""
_VIDEO_SUFFIXES = (".mp4", ".MP4", ".mkv")


class RowFields(Question):
    """What a row contains, whatever its columns are called: a question with its gold answer.

    The paths of the video and the subtitles are below the benchmark's video folder; the id is the benchmark's own, or
    one made from what distinguishes the row (`row_id`).
    """

    gold: str
    """As in `EvalItem`."""
    groups: dict[str, Any] = {}


class ScoredResult(NamedTuple):
    result: EvalResult
    score: float
    """0 to 1."""


Metric = Callable[[Sequence[ScoredResult]], float]
"""The scored results of a task to a number in percent; NaN where there is no result."""


def mean_score(scored: Sequence[ScoredResult]) -> float:
    """The mean score: accuracy, or mean IoU for grounding."""
    return 100 * statistics.fmean(one.score for one in scored) if scored else float("nan")


def recall_at(threshold: float) -> Metric:
    """The share of results with a score (IoU) of at least `threshold`."""
    return lambda scored: mean_score([ScoredResult(one.result, float(one.score >= threshold)) for one in scored])


def macro_average(group: str) -> Metric:
    """The mean over the values of `group` that are present of each value's mean score."""

    def average(scored: Sequence[ScoredResult]) -> float:
        by_value: dict[str, list[ScoredResult]] = {}
        for one in scored:
            if group in one.result.item.groups:
                by_value.setdefault(one.result.item.groups[group], []).append(one)
        return statistics.fmean(map(mean_score, by_value.values())) if by_value else mean_score(scored)

    return average


@dataclass(frozen=True, kw_only=True, slots=True)
class Table1Column:
    """A benchmark's column of the paper's Table 1, in percent."""

    title: str
    numbers: tuple[float | None, ...]
    """As printed, from top to bottom: in the order of `lmms_tasks.reports.published.MODELS`."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Model to the reason why the paper has no number."""


@dataclass(frozen=True, kw_only=True, slots=True, repr=False)
class Benchmark:
    """One task of lmms-eval, the split behind it, and everything that depends on which one it is."""

    name: str
    """Such as `mlvu`: names its video folder in flags (`mlvu:FOLDER`) and in the environment. Tasks may share it."""
    task: str
    """Its name in lmms-eval, `paravt_` and the name of its YAML file."""
    title: str
    order: int
    """Its position in listings: the column of Table 1, from 1, or a higher number."""
    hub: str
    """The data set's id on the Hugging Face hub."""
    split: str
    size: int
    """Questions in the split."""
    videos: str
    """Where its videos are below the Hugging Face home, as lmms-eval's own task unpacks them."""
    read_row: Callable[[Doc], RowFields]
    """Raises KeyError, TypeError or ValueError for a row that it cannot read."""
    metrics: Mapping[str, Metric] = field(default_factory=lambda: {"accuracy": mean_score})
    """By name, the headline first."""
    groups: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What its breakdowns go by: a key of `RowFields.groups` to the values that the split has."""
    macro_over: str = ""
    """The group over whose values the headline is a macro average; empty where it is a mean over questions."""
    upstream: Callable[[EvalResult, str], float] | None = None
    """A result and its response without reasoning to the score of lmms-eval's own task (scorer `lmms-eval`)."""
    official: str | Callable[[str], str] = "paravt"
    """The authors' own rule (scorer `official`): from answer text to letter, or the name of the scorer that is it."""
    subtitles: bool = False
    """Whether questions carry subtitles. The engine shows the lines of the frames it samples, and no others."""
    table1: Table1Column | None = None

    @property
    def variable(self) -> str:
        """The environment variable that names its video folder, such as `PARAVT_MLVU_VIDEOS`."""
        return f"PARAVT_{self.name.upper()}_VIDEOS"

    @property
    def yaml(self) -> str:
        """The file name of its task configuration."""
        return f"{self.task.removeprefix('paravt_')}.yaml"

    @property
    def metric_list(self) -> list[dict[str, Any]]:
        """lmms-eval's `metric_list`: the metrics, `accuracy_VALUE` for each value of the groups, and two counts."""
        values = [group_metric(value) for listed in self.groups.values() for value in listed]
        names = dict.fromkeys([*self.metrics, *values], True) | {"failed": False, "no_answer": False}
        return [
            {"metric": name, "aggregation": self.aggregate, "higher_is_better": higher}
            for name, higher in names.items()
        ]

    def process_docs(self, docs: Any) -> Any:
        """lmms-eval's `process_docs`: adds the columns from which the common hooks know task and row number."""
        return docs.add_column(TASK_COLUMN, [self.task] * len(docs)).add_column(ROW_COLUMN, list(range(len(docs))))

    def aggregate(self, values: Sequence[Mapping[str, Any]]) -> float:
        """A metric over its documents' values, which `lmms_tasks.hooks.process_results` made.

        Percent, or for `failed` and `no_answer` a count. `accuracy_VALUE` is the mean score of the documents of one
        group; a group without documents is not reported.
        """
        metric = values[0]["metric"]
        results = [(EvalResult.model_validate(value["row"]), value["paravt_score"]) for value in values]
        if metric == "failed":
            return float(sum(result.failed for result, _ in results))
        if metric == "no_answer":
            return float(sum(result.rollout.status == "no_answer" for result, _ in results))
        scored = [ScoredResult(result, score) for result, score in results if not result.failed]
        return self.metrics.get(metric, mean_score)(scored)

    def item(self, doc: Doc, roots: "VideoRoots | None" = None) -> EvalItem:
        """A row as a question with its gold answer.

        The video is the existing file, whichever of `.mp4`, `.MP4` and `.mkv` it ends in. Where none exists, the
        item carries the path that was tried.

        Args:
            roots: where videos are looked for; by default as the environment says.

        Raises:
            SettingsError: the row cannot be read; names the task and the row.
        """
        root = (roots or VideoRoots()).folder(self)
        try:
            fields = self.read_row(doc)
            if not fields.gold:
                raise ValueError("the answer is missing")
            if fields.options and fields.gold not in fields.options:
                raise ValueError(f"the answer {fields.gold!r} is not among the options {', '.join(fields.options)}")
        except (KeyError, TypeError, ValueError, SettingsError) as error:
            fault = f"column {error} is missing" if isinstance(error, KeyError) else str(error)
            if isinstance(error, ValidationError):
                fault = validation_message(error, "row field")
            names = ("question_id", "id", "uid", ROW_COLUMN, "video_name", "video")
            row = next((doc[name] for name in names if name in doc), "?")
            raise SettingsError(
                f"{self.task}, row {row}: {fault}; rows must be those of {self.hub}, split {self.split}"
            ) from None
        subtitles = root / (fields.subtitles or "")
        paths = {
            "video": str(_existing_video(root / fields.video)),
            "subtitles": str(subtitles) if self.subtitles and subtitles.is_file() else None,
        }
        question = Question(**fields.model_dump(exclude={"gold", "groups"}) | paths)
        groups = {key: str(value) for key, value in fields.groups.items()}
        return EvalItem(task=self.task, question=question, gold=fields.gold, groups=groups)


def group_metric(value: str) -> str:
    """The name of the accuracy over one value of a group.

    >>> group_metric("Film & Television")
    'accuracy_Film_Television'
    """
    return f"accuracy_{re.sub(r'[^A-Za-z0-9]+', '_', value)}"


@dataclass(frozen=True, kw_only=True, slots=True)
class VideoRoots:
    """Where videos are looked for: in explicit folders, else where the environment says, else the Hugging Face home.

    A benchmark's own folder takes precedence over one for all (`PARAVT_VIDEOS`), among the explicit folders and in
    the environment.
    """

    folders: Mapping[str, Path] = field(default_factory=dict)
    """Task or benchmark (`mlvu`) to its own folder; under an empty name, the folder for all."""

    def folder(self, benchmark: Benchmark) -> Path:
        """A benchmark's video folder."""
        if own := self.folders.get(benchmark.task) or self.folders.get(benchmark.name):
            return own
        if common := self.folders.get(""):
            return common / benchmark.videos
        if named := os.environ.get(benchmark.variable):
            return Path(named).expanduser()
        home = os.environ.get(ALL_VIDEOS) or os.environ.get("HF_HOME") or "~/.cache/huggingface"
        return Path(home).expanduser() / benchmark.videos


def _existing_video(path: Path) -> Path:
    """`path`, or the same file with another suffix where only that exists."""
    return next((one for one in (path, *map(path.with_suffix, _VIDEO_SUFFIXES)) if one.is_file()), path)
