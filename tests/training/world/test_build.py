"""What is written: Parquet in the paper's layout, videos, and the samples that ship with the package."""

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest

from paravt_infer.times import parse_time
from paravt_infer.video.index import read_index
from paravt_infer.video.readers import get_reader
from paravt_training.world import samples
from paravt_training.world.build import SCHEMA, build, main, trace_row
from paravt_training.world.questions import QUESTION_TYPES, question_at
from paravt_training.world.render import FPS
from paravt_training.world.scene import Scene
from paravt_training.world.traces import main_trace


def test_traces_are_written_in_the_papers_layout(tmp_path: Path) -> None:
    path, videos = build(tmp_path, "train", 600, 0, videos=False)
    file = pq.ParquetFile(path)
    assert file.schema_arrow.equals(SCHEMA) and file.num_row_groups == 3
    rows = file.read().to_pylist()
    assert len(rows) == 600 and videos == len({row["videos"][0] for row in rows})
    assert not list((tmp_path / "videos").iterdir())
    for row in rows:
        messages, info = json.loads(row["messages"]), row["extra_info"]
        assert messages[-1]["role"] == "assistant" and isinstance(messages[-1]["content"], str)
        right = info["answer"]
        if info["options"]:
            right = info["options"]["ABCDE".index(right)]
        assert right in messages[-1]["content"]
        assert row["videos"] == [f"videos/scene-{info['seed']}.mp4"]
        assert Scene.from_seed(info["seed"]).duration == info["duration"]
        parts = [part for message in messages if isinstance(message["content"], list) for part in message["content"]]
        shown = [part for part in parts if part["type"] == "video"]
        assert shown and all(0 <= part["start"] < part["end"] <= info["duration"] for part in shown)
        assert not any("seconds>" in part["text"] for part in parts if part["type"] == "text")
        if info["form"] != "perception":
            assert (shown[0]["start"], shown[0]["end"]) == (0, info["duration"])
            assert set(info["seen_by_overview"]) == {"4", "8", "16", "32", "64"}
            assert info["question_type"] in QUESTION_TYPES


def test_frames_in_tool_turns_are_video_parts_of_their_windows() -> None:
    asked = question_at(0, "train", 1)  # pair_at
    trace = main_trace(asked, "parallel", 8, evidence="frames")
    assert trace is not None
    tool = json.loads(trace_row(trace)["messages"])[3]
    assert [(part.get("start"), part.get("end")) for part in tool["content"] if part["type"] == "video"] == [
        *trace.windows
    ]
    assert re.fullmatch(r"1\. \[.*\] 5 frames:", tool["content"][0]["text"])


def test_the_command_writes_questions_and_their_videos(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*more: str) -> str:
        monkeypatch.setattr("sys.argv", ["build", *more])
        main()
        return capsys.readouterr().out.strip()

    asked = ("--split", "test", "--count", "3", "--seed", "5")
    assert run(str(tmp_path / "a"), *asked).endswith("3 rows about 1 videos")
    (video,) = (tmp_path / "a" / "videos").iterdir()
    rows = pq.read_table(tmp_path / "a" / "test.parquet").to_pylist()
    assert [[message["role"] for message in json.loads(row["messages"])] for row in rows] == [["system", "user"]] * 3
    assert read_index(str(video)).info.duration == rows[0]["extra_info"]["duration"]
    run(str(tmp_path / "b"), *asked, "--no-videos")
    assert (tmp_path / "a/test.parquet").read_bytes() == (tmp_path / "b/test.parquet").read_bytes()
    blocked = tmp_path / "file"
    blocked.touch()
    with pytest.raises(SystemExit, match=r"cannot write \(.*\); free some space or choose another path"):
        run(str(blocked), "--count", "1")
    with pytest.raises(SystemExit):
        run(str(tmp_path / "c"), "--count", "0")
    assert "--count must be at least 1, not 0" in capsys.readouterr().err


LISTING = json.loads((samples.FOLDER / "samples.json").read_text())


def test_samples_are_small_and_each_has_its_question() -> None:
    assert len(LISTING) == 3
    assert sum(file.stat().st_size for file in samples.FOLDER.iterdir()) < 1_500_000
    assert [sample["path"] for sample in LISTING] == list(samples.SAMPLE_SCENES)
    for sample in LISTING:
        assert sample.keys() == {"path", "question", "options", "answer", "note"}


@pytest.mark.parametrize("about", LISTING, ids=lambda about: about["path"])
def test_a_sample_shows_its_answer(about: dict[str, str | dict[str, str]]) -> None:
    path, scene = samples.FOLDER / str(about["path"]), samples.SAMPLE_SCENES[str(about["path"])]
    index = read_index(str(path))
    assert index.info.duration == scene.duration and (index.info.width, index.info.height) == samples.SIZE
    numbers = list(range(0, scene.duration * FPS, 12))
    for number, picture in zip(numbers, get_reader("pyav").read(index, numbers, samples.SIZE), strict=True):
        assert np.abs(picture.astype(int) - scene.render(number / FPS, samples.SIZE)).mean() < 3
    question, options = str(about["question"]), dict(about["options"])
    wordings = [
        re.sub(r"\\\{\d\\\}", ".+", re.escape(wording)) for _, texts in QUESTION_TYPES.values() for wording in texts
    ]
    assert any(re.fullmatch(wording, question) for wording in wordings)
    seen = [scene.event_at(parse_time(clock)) for clock in re.findall(r"\d\d:\d\d", question)]
    if seen:
        part = "colour" if "colours" in question else "name"
        right = ", ".join(getattr(event, part) for event in seen)
    else:
        right = next(o for o in options.values() if (e := scene.event_at(parse_time(o))) and e.name in question)
    assert [letter for letter, option in options.items() if option == right] == [about["answer"]]
