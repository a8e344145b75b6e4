"""Stand-ins for the data of the paper's benchmarks, made of the sample world: rows in their columns, and videos.

Question types, video folders and column names are those of the real data sets, so that a whole evaluation runs without
them. Other facts about a video (its domain, its length label) are made up. All benchmarks share three videos of 30 to
70 s, and each asks fifteen questions about them.
"""

import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import count as naturals
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from paravt_infer.files import writing
from paravt_training.world.questions import Kind, WorldQuestion, make_question, scene_seed
from paravt_training.world.render import write_video
from paravt_training.world.scene import Scene, stable_seed

VIDEOS = 3
PER_VIDEO = 5

_TEXT, _TEXTS, _NUMBER, _REAL = pa.string(), pa.list_(pa.string()), pa.int64(), pa.float64()


def _schema(text_columns: str, **others: pa.DataType) -> pa.Schema:
    """Text columns, by name, and others."""
    return pa.schema(dict.fromkeys(text_columns.split(), _TEXT) | others)


BENCHMARK_SCHEMAS: dict[str, pa.Schema] = {
    "videomme": _schema(
        "video_id duration domain sub_category url videoID question_id task_type question answer", options=_TEXTS
    ),
    "longvideobench": _schema(
        "video_id id video_path subtitle_path question option0 option1 option2 option3 option4 question_category "
        "topic_category",
        correct_choice=_NUMBER,
        duration=_REAL,
        duration_group=_NUMBER,
        starting_timestamp_for_subtitles=_REAL,
    ),
    "lvbench": _schema("key uid type video_path question answer time_reference", question_type=_TEXTS),
    "mlvu": _schema("video_name question answer task_type", candidates=_TEXTS, duration=_REAL),
    "mmvu": _schema(
        "id video_path question_type question answer", choices=pa.struct([(letter, _TEXT) for letter in "ABCDE"])
    ),
    "charades_sta": _schema("video caption", timestamp=pa.list_(_REAL)),
}
"""Data set to its columns, without those of LVBench and MMVU that nothing here reads."""

BENCHMARK_SPLITS = {
    "videomme": "test",
    "longvideobench": "validation",
    "lvbench": "train",
    "mlvu": "test",
    "mmvu": "validation",
    "charades_sta": "test",
}
"""Data set to its split, which names its file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _RowKey:
    """Which question of a data set a row holds."""

    number: int
    """Counted from 0 over the whole data set."""
    scene: Scene
    video: int
    """Index of the scene: 0, 1 or 2."""

    @property
    def name(self) -> str:
        """The video's name, without folder and suffix."""
        return f"world-{self.video + 1}"


@lru_cache(maxsize=1)
def benchmark_scenes() -> tuple[Scene, ...]:
    """The three scenes, from the split `test`: 30 to 70 s, five events or more."""
    candidates = (Scene.from_seed(scene_seed("test", "seven", number)) for number in naturals())
    return tuple(islice((s for s in candidates if s.duration <= 70 and len(s.events) >= PER_VIDEO), VIDEOS))


def _draw_question(key: _RowKey, name: str, type: str, kind: Kind = "choice", options: int = 4) -> WorldQuestion:
    """The first question drawn that has this number of options, where it is multiple choice."""
    seeds = (stable_seed("seven", name, key.number, attempt) for attempt in naturals())
    items = (make_question(key.scene, type, kind, random.Random(seed)) for seed in seeds)
    return next(item for item in items if item and (kind != "choice" or len(item.question.options) == options))


_DOMAINS = ("Knowledge", "Sports Competition", "Life Record")
_FOUR_OPTION_TYPES = ("what_at", "pair_at", "which_time", "same_colour", "colours_at", "background", "first_of")


def _videomme(key: _RowKey) -> dict[str, Any]:
    item = _draw_question(key, "videomme", _FOUR_OPTION_TYPES[key.number % 7])
    video_id = f"{key.video + 1:03d}"
    return {
        "video_id": video_id,
        "duration": ("short", "medium", "long")[key.video],
        "domain": _DOMAINS[key.video],
        "sub_category": "Technology",
        "url": f"https://example.org/{key.name}",
        "videoID": key.name,
        "question_id": f"{video_id}-{key.number % PER_VIDEO + 1}",
        "task_type": "Temporal Perception",
        "question": item.question.text,
        "options": [f"{letter}. {text}" for letter, text in item.question.options.items()],
        "answer": item.answer,
    }


def _longvideobench(key: _RowKey) -> dict[str, Any]:
    options = 4 + key.number % 2
    types = ("what_at", "pair_at", "colours_at") if options == 5 else _FOUR_OPTION_TYPES
    item = _draw_question(key, "longvideobench", types[key.number % len(types)], options=options)
    texts = [*item.question.options.values(), "N/A"][:5]
    return {
        "video_id": key.name,
        "id": f"{key.name}_{key.number % PER_VIDEO}",
        "video_path": f"{key.name}.mp4",
        "subtitle_path": f"{key.name}_en.json",
        "correct_choice": list(item.question.options).index(item.answer),
        "question": item.question.text,
        **{f"option{number}": text for number, text in enumerate(texts)},
        "duration": float(key.scene.duration),
        "duration_group": (15, 60, 600)[key.video],
        "question_category": "TOS",
        "topic_category": "KH-Knowledge-Hobbies",
        "starting_timestamp_for_subtitles": 0.0,
    }


def _with_options(item: WorldQuestion) -> str:
    """A question's text followed by its options, one per line."""
    return "\n".join([item.question.text, *(f"({letter}) {text}" for letter, text in item.question.options.items())])


def _lvbench(key: _RowKey) -> dict[str, Any]:
    item = _draw_question(key, "lvbench", _FOUR_OPTION_TYPES[key.number % 7])
    start, end = (min(item.times), max(item.times)) if item.times else (0, key.scene.duration)
    return {
        "key": key.name,
        "uid": str(key.number),
        "type": "cartoon",
        "video_path": f"{key.name}.mp4",
        "question": _with_options(item),
        "answer": item.answer,
        "time_reference": f"{start // 60:02d}:{start % 60:02d}-{end // 60:02d}:{end % 60:02d}",
        "question_type": ["key information retrieval"],
    }


_TASK_TYPES = {
    "plotQA": "colours_at",
    "needle": "what_at",
    "ego": "pair_at",
    "count": "which_time",
    "order": "first_of",
    "anomaly_reco": "same_colour",
    "topic_reasoning": "background",
}


def _mlvu(key: _RowKey) -> dict[str, Any]:
    task_type, type = list(_TASK_TYPES.items())[key.number % 7]
    item = _draw_question(key, "mlvu", type)
    return {
        "video_name": f"{key.name}.mp4",
        "duration": float(key.scene.duration),
        "question": _with_options(item),
        "candidates": list(item.question.options.values()),
        "answer": item.answer,
        "task_type": task_type,
    }


_MMVU: tuple[tuple[str, Kind], ...] = (
    *(("what_at", "choice"), ("colour_at", "open"), ("pair_at", "choice")),
    *(("pair_at", "open"), ("colours_at", "choice")),
)


def _mmvu(key: _RowKey) -> dict[str, Any]:
    type, kind = _MMVU[key.number % len(_MMVU)]
    item = _draw_question(key, "mmvu", type, kind, options=5)
    return {
        "id": f"validation_{key.number}",
        "video_path": f"Art/{key.name}.mp4",
        "question_type": "multiple-choice" if kind == "choice" else "open-ended",
        "question": item.question.text,
        "choices": {letter: item.question.options.get(letter) for letter in "ABCDE"},
        "answer": item.answer,
    }


def _charades_sta(key: _RowKey) -> dict[str, Any]:
    event = key.scene.events[key.number % PER_VIDEO]
    return {
        "video": f"{key.name}.mp4",
        "caption": f"a {event.name}.",
        "timestamp": [float(event.start), float(event.end)],
    }


_DATA_SETS: dict[str, tuple[str, Callable[[_RowKey], dict[str, Any]]]] = {
    "videomme": ("videomme/data", _videomme),
    "longvideobench": ("datasets/longvideobench/videos", _longvideobench),
    "lvbench": ("lvbench", _lvbench),
    "mlvu": ("mlvu", _mlvu),
    "mmvu": ("mmvu/Art", _mmvu),
    "charades_sta": ("charades_sta/Charades_v1_480", _charades_sta),
}
"""Data set to its video folder and the function that makes its rows."""


def benchmark_rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set, such as `mlvu`; the same each time.

    The last row of Charades-STA is repeated, as some of the real ones are.
    """
    make, number = _DATA_SETS[name][1], 0
    for video, scene in enumerate(benchmark_scenes()):
        for _ in range(PER_VIDEO):
            yield make(_RowKey(number=number, scene=scene, video=video))
            number += 1
    if name == "charades_sta":
        yield make(_RowKey(number=number - 1, scene=scene, video=video))


def write_benchmarks(folder: Path) -> Path:
    """Write all data sets into `folder` and return it: `rows/NAME/SPLIT.parquet`, the videos as in a Hugging Face home,
    and subtitles of two of VideoMME's three videos next to its videos.

    Raises:
        SettingsError: a file cannot be written.
    """
    with writing(folder):
        first = folder / _DATA_SETS["videomme"][0]
        videos = [
            write_video(scene, first / f"world-{number}.mp4") for number, scene in enumerate(benchmark_scenes(), 1)
        ]
        for name, (video_folder, _) in _DATA_SETS.items():
            (folder / video_folder).mkdir(parents=True, exist_ok=True)
            for video in videos:
                if video.parent != folder / video_folder:
                    shutil.copyfile(video, folder / video_folder / video.name)
            table = pa.Table.from_pylist(list(benchmark_rows(name)), schema=BENCHMARK_SCHEMAS[name])
            path = folder / "rows" / name / f"{BENCHMARK_SPLITS[name]}.parquet"
            path.parent.mkdir(parents=True, exist_ok=True)
            pq.write_table(table, path)
        subtitles = folder / "videomme" / "subtitle"
        subtitles.mkdir(exist_ok=True)
        for number, scene in enumerate(benchmark_scenes()[:-1], 1):
            (subtitles / f"world-{number}.srt").write_text(_srt(scene))
    return folder


def _srt(scene: Scene) -> str:
    """One subtitle for each event while it is on screen, in the font tags of VideoMME's files."""
    return "\n".join(
        f"{number}\n{_srt_time(event.start)} --> {_srt_time(event.end)}\n"
        f'<font color="white" size=".72c">Now a {event.name}.</font>\n'
        for number, event in enumerate(scene.events, 1)
    )


def _srt_time(seconds: float) -> str:
    return f"00:{int(seconds) // 60:02d}:{int(seconds) % 60:02d},000"
