"""The benchmarks made of the sample world: schemas, layout, correct answers, the same each time."""

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from paravt_infer.questions import read_subtitles, subtitles_at
from paravt_infer.times import parse_time
from paravt_infer.video.index import read_index
from paravt_training.world.benchmark_fixture import (
    BENCHMARK_SCHEMAS,
    BENCHMARK_SPLITS,
    benchmark_rows,
    benchmark_scenes,
    write_benchmarks,
)
from paravt_training.world.questions import SPLITS as WORLD_SPLITS

NAMES = list(BENCHMARK_SCHEMAS)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_benchmarks(tmp_path_factory.mktemp("seven"))


@pytest.mark.parametrize("name", NAMES)
def test_rows_are_parquet_in_the_data_sets_columns(folder: Path, name: str) -> None:
    table = pq.read_table(folder / "rows" / name / f"{BENCHMARK_SPLITS[name]}.parquet")
    assert table.schema.equals(BENCHMARK_SCHEMAS[name])
    assert table.to_pylist() == list(benchmark_rows(name))
    assert table.num_rows == 15 + (name == "charades_sta")


@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("videomme", "video_id duration domain sub_category url videoID question_id task_type question options answer"),
        (
            "longvideobench",
            "video_id id video_path subtitle_path correct_choice question option0 option1 option2 option3 option4 "
            "duration duration_group question_category topic_category starting_timestamp_for_subtitles",
        ),
        ("lvbench", "key uid type video_path question answer time_reference question_type"),
        ("mlvu", "video_name duration question candidates answer task_type"),
        ("mmvu", "id video_path question_type question choices answer"),
        ("charades_sta", "video caption timestamp"),
    ],
)
def test_the_columns_are_those_of_the_real_data_sets(name: str, columns: str) -> None:
    assert set(BENCHMARK_SCHEMAS[name].names) == set(columns.split())


@pytest.mark.parametrize(
    "place",
    ["videomme/data", "datasets/longvideobench/videos", "lvbench", "mlvu", "mmvu/Art", "charades_sta/Charades_v1_480"],
)
def test_videos_are_small_short_and_where_a_hugging_face_home_has_them(folder: Path, place: str) -> None:
    for number, scene in enumerate(benchmark_scenes(), 1):
        video = folder / place / f"world-{number}.mp4"
        info = read_index(str(video)).info
        assert 30 <= info.duration == scene.duration <= 70 and (info.width, info.height) == (128, 128)
        assert video.stat().st_size < 200_000


def test_no_scene_is_one_of_training() -> None:
    assert {scene.seed % len(WORLD_SPLITS) for scene in benchmark_scenes()} == {WORLD_SPLITS.index("test")}
    assert len({scene.seed for scene in benchmark_scenes()}) == 3


def test_questions_about_a_time_have_the_answer_that_the_scene_shows() -> None:
    asked = 0
    for row in benchmark_rows("mmvu"):
        scene = benchmark_scenes()[int(row["video_path"][-5]) - 1]
        times = [parse_time(word.strip("?,.")) for word in row["question"].split() if word[:2].isdigit()]
        seen = [event for time in times if (event := scene.event_at(time))]
        right = row["choices"][row["answer"]] if row["question_type"] == "multiple-choice" else row["answer"]
        names = ", ".join(event.name for event in seen)
        colours = ", ".join(event.colour for event in seen)
        assert right == (colours if "olour" in row["question"] else names)
        asked += 1
    assert asked == 15


def test_every_span_is_an_events() -> None:
    for row in benchmark_rows("charades_sta"):
        scene = benchmark_scenes()[int(row["video"][-5]) - 1]
        start, end = row["timestamp"]
        assert f"a {scene.event_at(start).name}." == row["caption"] and scene.event_at(end) is None


def test_breakdowns_have_something_to_break_down() -> None:
    assert {row["duration"] for row in benchmark_rows("videomme")} == {"short", "medium", "long"}
    assert len({row["domain"] for row in benchmark_rows("videomme")}) == 3
    assert len({row["duration_group"] for row in benchmark_rows("longvideobench")}) == 3
    assert {row["option4"] == "N/A" for row in benchmark_rows("longvideobench")} == {True, False}
    assert len({row["task_type"] for row in benchmark_rows("mlvu")}) == 7
    assert {row["question_type"] for row in benchmark_rows("mmvu")} == {"multiple-choice", "open-ended"}
    assert all("\n(A) " in row["question"] for row in benchmark_rows("lvbench"))
    last, before = list(benchmark_rows("charades_sta"))[-1:-3:-1]
    assert last == before


def test_subtitles_are_shown_at_the_frames_that_are_looked_at(folder: Path) -> None:
    files = sorted((folder / "videomme" / "subtitle").iterdir())
    assert [file.name for file in files] == ["world-1.srt", "world-2.srt"]
    lines = read_subtitles(str(files[0]))
    events = benchmark_scenes()[0].events
    assert [(line.start, line.end, line.text) for line in lines] == [
        (event.start, event.end, f"Now a {event.name}.") for event in events
    ]
    assert subtitles_at(lines, [events[1].start + 1]) == [lines[1]]


def test_writing_again_writes_the_same(folder: Path, tmp_path: Path) -> None:
    again = write_benchmarks(tmp_path)
    for file in sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file()):
        assert (again / file).read_bytes() == (folder / file).read_bytes(), file
