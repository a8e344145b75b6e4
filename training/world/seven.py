"""The sample world in the clothes of the paper's benchmarks: the seven splits' rows, in their own columns, and videos.

What a benchmark's questions ask, where its videos are and how its columns are called is as in the real data set, so
that a whole evaluation runs without it. What the columns say of a video beyond that (its domain, its length's label)
is made up. Three videos of 30 to 70 s are shared by all, and fifteen questions each ask about them.
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

from paravt_training.world.questions import Kind, WorldQuestion, ask, scene_seed
from paravt_training.world.render import write_video
from paravt_training.world.scene import Scene, seed_of

VIDEOS = 3
PER_VIDEO = 5

_TEXT, _TEXTS, _NUMBER, _REAL = pa.string(), pa.list_(pa.string()), pa.int64(), pa.float64()


def _schema(texts: str, **others: pa.DataType) -> pa.Schema:
    """Columns of text, by name, and others."""
    return pa.schema(dict.fromkeys(texts.split(), _TEXT) | others)


SCHEMAS: dict[str, pa.Schema] = {
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
"""Data set to its columns. LVBench's and MMVU's real files have some more, which nothing here reads."""

SPLITS = {
    "videomme": "test",
    "longvideobench": "validation",
    "lvbench": "train",
    "mlvu": "test",
    "mmvu": "validation",
    "charades_sta": "test",
}
"""Data set to its split, the name of its file."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Place:
    """Which question of a data set a row is."""

    number: int
    """0, 1, 2, ... over the whole data set."""
    scene: Scene
    video: int
    """0, 1 or 2: the scene's."""

    @property
    def name(self) -> str:
        """The video's name, without folder and ending."""
        return f"world-{self.video + 1}"


@lru_cache(maxsize=1)
def scenes() -> tuple[Scene, ...]:
    """The three scenes, none of which is one of training: 30 to 70 s, five events or more."""
    drawn = (Scene.from_seed(scene_seed("test", "seven", number)) for number in naturals())
    return tuple(islice((one for one in drawn if one.duration <= 70 and len(one.events) >= PER_VIDEO), VIDEOS))


def _asked(place: _Place, name: str, type: str, kind: Kind = "choice", options: int = 4) -> WorldQuestion:
    """The first question drawn that has so many options, where it has any."""
    for attempt in naturals():
        draw = random.Random(seed_of("seven", name, place.number, attempt))
        one = ask(place.scene, type, kind, draw)
        if one is not None and (kind != "choice" or len(one.question.options) == options):
            return one
    raise AssertionError("unreachable")


_DOMAINS = ("Knowledge", "Sports Competition", "Life Record")
_FOUR = ("what_at", "pair_at", "which_time", "same_colour", "colours_at", "background", "first_of")


def _videomme(place: _Place) -> dict[str, Any]:
    asked = _asked(place, "videomme", _FOUR[place.number % 7])
    video_id = f"{place.video + 1:03d}"
    return {
        "video_id": video_id,
        "duration": ("short", "medium", "long")[place.video],
        "domain": _DOMAINS[place.video],
        "sub_category": "Technology",
        "url": f"https://example.org/{place.name}",
        "videoID": place.name,
        "question_id": f"{video_id}-{place.number % PER_VIDEO + 1}",
        "task_type": "Temporal Perception",
        "question": asked.question.text,
        "options": [f"{letter}. {text}" for letter, text in asked.question.options.items()],
        "answer": asked.answer,
    }


def _longvideobench(place: _Place) -> dict[str, Any]:
    options = 4 + place.number % 2
    types = ("what_at", "pair_at", "colours_at") if options == 5 else _FOUR
    asked = _asked(place, "longvideobench", types[place.number % len(types)], options=options)
    texts = [*asked.question.options.values(), "N/A"][:5]
    return {
        "video_id": place.name,
        "id": f"{place.name}_{place.number % PER_VIDEO}",
        "video_path": f"{place.name}.mp4",
        "subtitle_path": f"{place.name}_en.json",
        "correct_choice": list(asked.question.options).index(asked.answer),
        "question": asked.question.text,
        **{f"option{number}": text for number, text in enumerate(texts)},
        "duration": float(place.scene.duration),
        "duration_group": (15, 60, 600)[place.video],
        "question_category": "TOS",
        "topic_category": "KH-Knowledge-Hobbies",
        "starting_timestamp_for_subtitles": 0.0,
    }


def _with_options(asked: WorldQuestion) -> str:
    """A question's text with its options inside, a line each."""
    return "\n".join([asked.question.text, *(f"({letter}) {text}" for letter, text in asked.question.options.items())])


def _lvbench(place: _Place) -> dict[str, Any]:
    asked = _asked(place, "lvbench", _FOUR[place.number % 7])
    start, end = (min(asked.times), max(asked.times)) if asked.times else (0, place.scene.duration)
    return {
        "key": place.name,
        "uid": str(place.number),
        "type": "cartoon",
        "video_path": f"{place.name}.mp4",
        "question": _with_options(asked),
        "answer": asked.answer,
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


def _mlvu(place: _Place) -> dict[str, Any]:
    task_type, type = list(_TASK_TYPES.items())[place.number % 7]
    asked = _asked(place, "mlvu", type)
    return {
        "video_name": f"{place.name}.mp4",
        "duration": float(place.scene.duration),
        "question": _with_options(asked),
        "candidates": list(asked.question.options.values()),
        "answer": asked.answer,
        "task_type": task_type,
    }


_MMVU: tuple[tuple[str, Kind], ...] = (
    *(("what_at", "choice"), ("colour_at", "open"), ("pair_at", "choice")),
    *(("pair_at", "open"), ("colours_at", "choice")),
)


def _mmvu(place: _Place) -> dict[str, Any]:
    type, kind = _MMVU[place.number % len(_MMVU)]
    asked = _asked(place, "mmvu", type, kind, options=5)
    return {
        "id": f"validation_{place.number}",
        "video_path": f"Art/{place.name}.mp4",
        "question_type": "multiple-choice" if kind == "choice" else "open-ended",
        "question": asked.question.text,
        "choices": {letter: asked.question.options.get(letter) for letter in "ABCDE"},
        "answer": asked.answer,
    }


def _charades_sta(place: _Place) -> dict[str, Any]:
    event = place.scene.events[place.number % PER_VIDEO]
    return {
        "video": f"{place.name}.mp4",
        "caption": f"a {event.name}.",
        "timestamp": [float(event.start), float(event.end)],
    }


_WRITERS: dict[str, tuple[str, Callable[[_Place], dict[str, Any]]]] = {
    "videomme": ("videomme/data", _videomme),
    "longvideobench": ("datasets/longvideobench/videos", _longvideobench),
    "lvbench": ("lvbench", _lvbench),
    "mlvu": ("mlvu", _mlvu),
    "mmvu": ("mmvu/Art", _mmvu),
    "charades_sta": ("charades_sta/Charades_v1_480", _charades_sta),
}
"""Data set to where its videos are, and what makes its rows."""


def rows(name: str) -> Iterator[dict[str, Any]]:
    """The rows of a data set, such as `mlvu`: the same each time.

    Charades-STA's last row is there twice, as some of the real ones are.
    """
    make, number = _WRITERS[name][1], 0
    for video, scene in enumerate(scenes()):
        for _ in range(PER_VIDEO):
            yield make(_Place(number=number, scene=scene, video=video))
            number += 1
    if name == "charades_sta":
        yield make(_Place(number=number - 1, scene=scene, video=video))


def write_seven(folder: Path) -> Path:
    """Write all data sets into `folder` and return it: `rows/NAME/SPLIT.parquet`, and the videos as in a Hugging Face
    home, VideoMME's subtitles beside its videos (two of three videos have some).

    Raises:
        OSError: a file cannot be written.
    """
    first = folder / _WRITERS["videomme"][0]
    first.mkdir(parents=True, exist_ok=True)
    videos = [write_video(scene, first / f"world-{number}.mp4") for number, scene in enumerate(scenes(), 1)]
    for name, (place, _) in _WRITERS.items():
        (folder / place).mkdir(parents=True, exist_ok=True)
        for video in videos:
            if video.parent != folder / place:
                shutil.copyfile(video, folder / place / video.name)
        table = pa.Table.from_pylist(list(rows(name)), schema=SCHEMAS[name])
        path = folder / "rows" / name / f"{SPLITS[name]}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table, path)
    subtitles = folder / "videomme" / "subtitle"
    subtitles.mkdir(exist_ok=True)
    for number, scene in enumerate(scenes()[:-1], 1):
        (subtitles / f"world-{number}.srt").write_text(_srt(scene))
    return folder


def _srt(scene: Scene) -> str:
    """A line for each event while it is on screen, in the font tags of VideoMME's files."""
    return "\n".join(
        f"{number}\n{_stamp(event.start)} --> {_stamp(event.end)}\n"
        f'<font color="white" size=".72c">Now a {event.name}.</font>\n'
        for number, event in enumerate(scene.events, 1)
    )


def _stamp(seconds: float) -> str:
    return f"00:{int(seconds) // 60:02d}:{int(seconds) % 60:02d},000"
