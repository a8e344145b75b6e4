"""The seven splits of the paper's Table 1: their data, where their videos are, and their rows as items.

Each benchmark's folder holds `items.py`, whose `read` knows the columns, and the YAML of its tasks. Nothing here
downloads videos: lmms-eval loads the rows, and a video that is not there becomes a failure that names the file.
"""

import os
import re
import string
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from lmms_tasks.items import Item
from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question

Doc = Mapping[str, Any]
"""A row of a data set."""

INCLUDE = Path(__file__).parent
"""What lmms-eval's `--include_path` takes."""
ALL_VIDEOS = "PARAVT_VIDEOS"
"""Environment variable: a folder laid out as the Hugging Face home is, with the videos of all benchmarks."""
_ENDINGS = (".mp4", ".MP4", ".mkv")


@dataclass(frozen=True, kw_only=True, slots=True)
class Fields:
    """What a row says, whatever its columns are called."""

    id: str
    """The benchmark's own, or one made from what sets the row apart."""
    video: str
    """Path below the benchmark's video folder."""
    text: str
    gold: str
    """As in `Item`."""
    options: Mapping[str, str] = field(default_factory=dict)
    kind: Literal["open", "grounding"] = "open"
    """Of no account where there are options."""
    groups: Mapping[str, object] = field(default_factory=dict)
    subtitles: str = ""
    """Path below the benchmark's video folder; empty where the benchmark has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Benchmark:
    """One task of lmms-eval and the split behind it."""

    task: str
    title: str
    hub: str
    """The data set's id on the Hugging Face hub."""
    split: str
    folder: str
    """Its folder in `lmms_tasks`; several tasks may share one."""
    videos: str
    """Where its videos are below the Hugging Face home, as lmms-eval's own task unpacks them."""
    metrics: tuple[str, ...] = ("accuracy",)
    """What `lmms_tasks.scoring.summary` makes of it, the headline first."""
    groups: tuple[str, ...] = ()
    """What its breakdowns go by."""
    subtitles: bool = False
    """Whether questions carry subtitles. The engine shows the lines of the frames it samples, and no others."""

    @property
    def variable(self) -> str:
        """The environment variable that names its video folder, such as `PARAVT_MLVU_VIDEOS`."""
        return f"PARAVT_{self.folder.upper()}_VIDEOS"

    def item(self, doc: Doc, roots: "Roots | None" = None) -> Item:
        """A row as a question with its right answer.

        The video is the file that is there, whatever of `.mp4`, `.MP4` and `.mkv` it ends in. Where none is, the
        item carries the path that was looked at.

        Args:
            roots: where videos are looked for; by default as the environment says.

        Raises:
            SettingsError: the row cannot be understood; names the task and the row.
        """
        read: Callable[[Doc], Fields] = import_module(f"lmms_tasks.{self.folder}.items").read
        root = (roots or Roots()).of(self)
        try:
            fields = read(doc)
            if not fields.gold:
                raise ValueError("there is no answer")
            if fields.options and fields.gold not in fields.options:
                raise ValueError(f"the answer {fields.gold!r} is none of the options {', '.join(fields.options)}")
            subtitles = root / fields.subtitles
            question = Question.make(
                id=fields.id,
                video=str(_there(root / fields.video)),
                text=fields.text,
                options=dict(fields.options),
                kind=fields.kind,
                subtitles=str(subtitles) if self.subtitles and subtitles.is_file() else None,
            )
        except (KeyError, TypeError, ValueError, SettingsError) as error:
            fault = f"there is no column {error}" if isinstance(error, KeyError) else str(error)
            names = ("question_id", "id", "uid", "row", "video_name", "video")
            row = next((doc[name] for name in names if name in doc), "?")
            raise SettingsError(
                f"{self.task}, row {row}: {fault}; rows must be those of {self.hub}, split {self.split}"
            ) from None
        groups = {key: str(value) for key, value in fields.groups.items()}
        return Item(task=self.task, question=question, gold=fields.gold, groups=groups)


_VIDEOMME = Benchmark(
    task="paravt_videomme",
    title="VideoMME without subtitles",
    hub="lmms-eval/Video-MME",  # formerly lmms-lab/Video-MME
    split="test",
    folder="videomme",
    videos="videomme",
    groups=("duration", "domain"),
)

BENCHMARKS: Mapping[str, Benchmark] = {
    one.task: one
    for one in (
        _VIDEOMME,
        replace(_VIDEOMME, task="paravt_videomme_w_subtitle", title="VideoMME with subtitles", subtitles=True),
        Benchmark(  # without its subtitles, as in the paper
            task="paravt_longvideobench",
            title="LongVideoBench",
            hub="longvideobench/LongVideoBench",
            split="validation",
            folder="longvideobench",
            videos="datasets/longvideobench/videos",
            groups=("duration_group",),
        ),
        Benchmark(
            task="paravt_lvbench",
            title="LVBench",
            hub="lmms-eval/LVBench",  # formerly lmms-lab/LVBench
            split="train",
            folder="lvbench",
            videos="lvbench",
        ),
        Benchmark(
            task="paravt_mlvu",
            title="MLVU dev",
            hub="sy1998/MLVU_dev",
            split="test",
            folder="mlvu",
            videos="mlvu",
            metrics=("macro", "accuracy"),
            groups=("task_type",),
        ),
        Benchmark(
            task="paravt_mmvu",
            title="MMVU",
            hub="lmms-eval/MMVU",  # formerly lmms-lab/MMVU, from yale-nlp/MMVU
            split="validation",
            folder="mmvu",
            videos="mmvu",
            groups=("question_type",),
        ),
        Benchmark(
            task="paravt_charades_sta",
            title="Charades-STA",
            hub="lmms-eval/charades_sta",  # formerly lmms-lab/charades_sta
            split="test",
            folder="charades_sta",
            videos="charades_sta/Charades_v1_480",
            metrics=("miou", "r@0.3", "r@0.5", "r@0.7"),
        ),
    )
}
"""Task to benchmark, in the order of Table 1."""


def get_benchmark(task: str) -> Benchmark:
    """The benchmark of that task.

    Raises:
        SettingsError: no such task; names those there are.
    """
    if task not in BENCHMARKS:
        raise SettingsError(f"task {task!r} does not exist; there are {', '.join(BENCHMARKS)}")
    return BENCHMARKS[task]


@dataclass(frozen=True, kw_only=True, slots=True)
class Roots:
    """Where videos are looked for: what was given; else what the environment names; else the Hugging Face home.

    A benchmark's own folder goes before one for all (`PARAVT_VIDEOS`), in what was given and in the environment.
    """

    given: Mapping[str, Path] = field(default_factory=dict)
    """Task or benchmark (`mlvu`) to its own folder; under an empty name, the folder for all."""

    @classmethod
    def make(cls, given: Iterable[str] = ()) -> "Roots":
        """Roots from flags: ``FOLDER`` for all benchmarks, ``mlvu:FOLDER`` or ``paravt_mlvu:FOLDER`` for one.

        Raises:
            SettingsError: no such benchmark or no such folder.
        """
        names = {"", *BENCHMARKS, *(one.folder for one in BENCHMARKS.values())}
        found = {}
        for flag in given:
            name, parted, folder = flag.rpartition(":")
            name, folder = (name, folder) if name in names and parted else ("", flag)
            path = Path(folder).expanduser()
            if not path.is_dir():
                raise SettingsError(
                    f"videos {flag!r}: no such folder; give FOLDER, or benchmark:FOLDER with one of "
                    + ", ".join(dict.fromkeys(one.folder for one in BENCHMARKS.values()))
                )
            found[name] = path
        return cls(given=found)

    def of(self, benchmark: Benchmark) -> Path:
        """A benchmark's video folder."""
        if own := self.given.get(benchmark.task) or self.given.get(benchmark.folder):
            return own
        if every := self.given.get(""):
            return every / benchmark.videos
        if named := os.environ.get(benchmark.variable):
            return Path(named).expanduser()
        home = os.environ.get(ALL_VIDEOS) or os.environ.get("HF_HOME") or "~/.cache/huggingface"
        return Path(home).expanduser() / benchmark.videos


def _there(path: Path) -> Path:
    """`path`, or the same file with another ending where only that is there."""
    return next((one for one in (path, *map(path.with_suffix, _ENDINGS)) if one.is_file()), path)


@dataclass(frozen=True, kw_only=True, slots=True)
class Videos:
    """The videos that rows ask about."""

    count: int
    missing: tuple[str, ...]
    """Paths that were looked at and are not there, each once."""
    subtitled: int
    """Videos whose subtitles are there."""


def videos_of(benchmark: Benchmark, docs: Iterable[Doc], roots: Roots) -> Videos:
    """Which videos of these rows are there. Raises SettingsError where a row cannot be understood."""
    questions = {item.question.video: item.question for item in (benchmark.item(doc, roots) for doc in docs)}
    return Videos(
        count=len(questions),
        missing=tuple(video for video in questions if not Path(video).is_file()),
        subtitled=sum(question.subtitles is not None for question in questions.values()),
    )


# What the readers of rows share.

_LABEL = re.compile(r"\s*[(\[]?([A-Z])[)\].:]\s*(?=\S)")


def lettered(options: Iterable[Any]) -> dict[str, str]:
    """Options by letter, in their order, without the label that many data sets write before each.

    A label is dropped where most options have theirs: two times of day "A.M." and "P.M." keep all of it.

    >>> lettered(["A. a cat", "B. a dog", "C.both"]), lettered(["A.M.", "P.M."])
    ({'A': 'a cat', 'B': 'a dog', 'C': 'both'}, {'A': 'A.M.', 'B': 'P.M.'})
    """
    given = dict(zip(string.ascii_uppercase, (str(option).strip() for option in options), strict=False))
    bare = {
        letter: text[label.end() :]
        for letter, text in given.items()
        if (label := _LABEL.match(text)) and label.group(1) == letter
    }
    return given | bare if 2 * len(bare) > len(given) else given


def parted(question: str, listed: Iterable[Any] | None = None) -> tuple[str, dict[str, str]]:
    """A question and its options by letter, where its text may hold them too.

    Options in a text are lines "(A) x", "A. x", "A) x" or "A: x", in the order of their letters and as many as
    there are; or the first of these forms within one line.

    Args:
        listed: the options, where a column lists them.

    >>> parted("Who?\\n(A) Ann\\n(B) Bo")
    ('Who?', {'A': 'Ann', 'B': 'Bo'})
    """
    stem, options = _by_line(question.splitlines())
    if not options:
        stem, options = _by_line(re.sub(r"\s+(?=\([A-Z]\)\s*\S)", "\n", question).splitlines())
    if not options:
        stem = question.strip()
    return stem, lettered(listed) if listed else options


def _by_line(lines: list[str]) -> tuple[str, dict[str, str]]:
    """The lines before the last "A" that a "B" follows, and the options from there on."""
    found = [_LABEL.match(line) for line in lines]
    labels = [label.group(1) if label else "" for label in found]
    starts = [at for at, label in enumerate(labels) if label == "A" and "B" in labels[at:]]
    if not starts:
        return "", {}
    texts: list[str] = []
    for label, line in zip(labels[starts[-1] :], lines[starts[-1] :], strict=True):
        if label and label == string.ascii_uppercase[len(texts)]:
            texts.append(_LABEL.sub("", line, count=1).strip())
        else:  # an option's further line
            texts[-1] = f"{texts[-1]} {line.strip()}".strip()
    return "\n".join(lines[: starts[-1]]).strip(), dict(zip(string.ascii_uppercase, texts, strict=False))


def gold_letter(answer: Any, options: Mapping[str, str]) -> str:
    """The right option's letter, from an answer that is a letter or an option's text.

    Raises:
        ValueError: it is neither.
    """
    said = str(answer).strip()
    if said.strip("(). ").upper() in options:
        return said.strip("(). ").upper()
    named = [letter for letter, text in options.items() if text == said]
    if len(named) != 1:
        raise ValueError(f"the answer {said!r} is none of the options {', '.join(options)}")
    return named[0]


def row_id(video: str, doc: Doc, otherwise: str) -> str:
    """A name for a row of a data set that has none: its number, where `lmms_tasks.metrics.numbered` gave it one."""
    return f"{Path(video).stem}#{doc.get('row', otherwise)}"
