"""The record survives saving: every field of it, in each file form, and a file that holds none is named in one line."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from paravt_infer.errors import SettingsError
from paravt_infer.questions import Question
from paravt_infer.rollout import (
    BackendRecord,
    Evidence,
    FrameRef,
    GenerationRecord,
    ProtocolRecord,
    Rollout,
    Turn,
    Usage,
    VideoRecord,
    rollout_from_json,
    rollout_to_json,
)
from paravt_infer.rollout_files import load_rollouts, save_rollouts
from paravt_infer.settings import Settings

ODD = 'é 中 \U0001f3ac "quotes" \\ back, \u2028 and \u2029 and \x85 and \x0c and \x00 and\r\n<|im_end|>'


def rich() -> Rollout:
    """A record with something in every field."""
    frame = FrameRef(time=0.1 + 0.2, width=64, height=32, tokens=2, digest="0123456789ab")
    sub_agent = GenerationRecord(
        fed_ids=[5], output_ids=[6], text=ODD, logprobs=[-1e-9], finish="length", server="http://h:1"
    )
    window = Evidence(
        turn=0, tool="crop_video", raw=ODD, repairs=["prose_around_json"], asked=[1.5, math.inf], used=[1.5, 40.0],
        clamped=True, status="ok", text=ODD, cut=True, frames=[frame], sub_agent=sub_agent, seconds=1e-7,
    )  # fmt: skip
    broken = Evidence(turn=0, tool="", raw="", syntax="tool_code", status="error", fault="bad_python", text="no")
    turn = Turn(
        fed_ids=[1, 2], output_ids=[3, 4, 151645], text=ODD, prefix="<think>\n", logprobs=[-0.1, -math.inf, -2.5],
        finish="stop", prompt_tokens=2**40, cached_tokens=None, calls=[0, 1], forged_response=True, weight_version="7",
    )  # fmt: skip
    return Rollout(
        answer="B", answer_text=ODD, answer_source="answer_block", status="answered",
        evidence=[window, broken], turns=[turn, Turn(kind="final", fed_ids=[9], output_ids=[8], cached_tokens=0)],
        usage=Usage(prompt_tokens=3, seconds=1 / 3), overview=[frame], overview_seconds=0.25,
        settings=Settings(seed=7, turn_regex=("a+", None), think_prefix="every", temperature=0.7),
        question=Question.make(video="v.mp4", text=ODD, options={"A": ODD, "B": "x"}, id="q1"),
        video=VideoRecord(
            path="v.mp4", duration=40.04, fps=29.97, width=640, height=360, rotation=90, codec="h264", size_bytes=2**33
        ),
        protocol=ProtocolRecord(name="paravt", checksum="ab"), versions={"torch": "2"}, id="r1", started_at="2025",
        backend=BackendRecord(name="sglang", servers=["a", "b"], notes=[ODD], context_limit=None),
    )  # fmt: skip


def bare() -> Rollout:
    """A record of an episode that failed before anything happened."""
    return Rollout(question=Question(video="v.mp4", text="Q?"), status="failed", error="v.mp4: no such video file")


def fault(action: Callable[[], Any]) -> str:
    with pytest.raises(SettingsError) as raised:
        action()
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet", "new/folder/a.parquet"])
@pytest.mark.parametrize("record", [rich, bare], ids=["rich", "bare"])
def test_a_record_is_the_same_after_saving(tmp_path: Path, name: str, record: Callable[[], Rollout]) -> None:
    save_rollouts(record(), tmp_path / name)
    assert list(load_rollouts(tmp_path / name)) == [record()]


@pytest.mark.parametrize("name", ["a.jsonl", "a.parquet"])
def test_several_records_keep_their_order(tmp_path: Path, name: str) -> None:
    many = [rich(), bare(), *(bare().model_copy(update={"id": str(n)}) for n in range(100))]
    save_rollouts(iter(many), tmp_path / name)
    assert list(load_rollouts(tmp_path / name)) == many
    save_rollouts([], tmp_path / name)
    assert list(load_rollouts(str(tmp_path / name))) == []


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet"])
def test_numbers_that_are_none_survive(tmp_path: Path, name: str) -> None:
    record = bare()
    record.turns = [Turn(logprobs=[math.nan, -math.inf, math.inf, -0.0])]
    save_rollouts(record, tmp_path / name)
    (loaded,) = load_rollouts(tmp_path / name)
    assert str(loaded.turns[0].logprobs) == "[nan, -inf, inf, -0.0]"


TEXT = st.text() | st.sampled_from(["\u2028", "\x85", "\r", "\n", '"', "NaN", "null", ""])


@given(texts=st.lists(TEXT, min_size=4, max_size=4), data=st.dictionaries(TEXT, TEXT, max_size=3))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=50)
def test_any_text_survives(tmp_path: Path, texts: list[str], data: dict[str, str]) -> None:
    record = bare()
    record.answer, record.error, raw, said = texts
    record.evidence, record.turns, record.versions = [Evidence(turn=0, tool=said, raw=raw)], [Turn(text=said)], data
    assert rollout_from_json(rollout_to_json(record)) == rollout_from_json(rollout_to_json(record, indent=2)) == record
    for name in ("a.jsonl", "a.parquet"):
        save_rollouts([record, record], tmp_path / name)
        assert list(load_rollouts(tmp_path / name)) == [record, record]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet"])
def test_half_a_surrogate_pair_loses_no_record(tmp_path: Path, name: str) -> None:
    """As in the name of a file that is not UTF-8, or in a server's JSON."""
    record = Rollout(question=Question(video="caf\udce9.mp4", text="Q?"), turns=[Turn(text="\ud83d")])
    save_rollouts(record, tmp_path / name)
    (loaded,) = load_rollouts(tmp_path / name)
    assert (loaded.question.video, loaded.turns[0].text) == (r"caf\udce9.mp4", r"\ud83d")


def test_parquet_has_columns_to_look_at_without_this_program(tmp_path: Path) -> None:
    save_rollouts([rich(), bare()], tmp_path / "a.parquet")
    first, second = pq.read_table(tmp_path / "a.parquet").to_pylist()
    assert (first["id"], first["answer"], first["calls"], first["turns"], first["question_id"]) == (
        "r1",
        "B",
        2,
        2,
        "q1",
    )
    assert (first["question"], first["video"], first["seconds"]) == (ODD, "v.mp4", 1 / 3)
    assert (second["status"], second["answer"], second["error"]) == ("failed", None, "v.mp4: no such video file")
    assert json.loads(first["rollout"])["turns"][0]["output_ids"] == [3, 4, 151645]


def test_an_infinite_time_is_a_word_in_json() -> None:
    assert json.loads(rollout_to_json(rich()))["evidence"][0]["asked"] == [1.5, "Infinity"]


LINE = rollout_to_json(bare())


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a.json", None, "no such file; check the path"),
        ("a.parquet", None, "no such file; check the path"),
        ("a.json", b"", "not a saved rollout (Invalid JSON: EOF"),
        ("a.json", b"[1, 2]", "not a saved rollout (must be an object, not [1, 2])"),
        ("a.json", b"\xff\xfe\x00", "cannot read it as UTF-8 text"),
        ("a.json", b'{"answer": "B"}', "not a saved rollout (field question: is missing)"),
        ("a.jsonl", f"{LINE}\n\n{LINE[:-9]}\n".encode(), "line 3: not a saved rollout (Invalid JSON: "),
        ("a.jsonl", f'{LINE}\n{{"question": 3}}\n'.encode(), "line 2: not a saved rollout (field question: must be"),
        (
            "a.jsonl",
            LINE.replace('"turns"', '"turms"').encode(),
            "line 1: not a saved rollout (unknown field 'turms'",
        ),
        ("a.parquet", b"", "not a Parquet file of rollouts ("),
        ("a.parquet", LINE.encode(), "not a Parquet file of rollouts ("),
        ("a.parquet", {"text": ["a"]}, "not a Parquet file of rollouts (it has no column rollout)"),
        ("a.parquet", {"rollout": [LINE, "{"]}, "row 2: not a saved rollout (Invalid JSON: "),
        ("a.parquet", {"rollout": [LINE, None]}, "row 2: not a saved rollout ("),
        ("a.parquet", {"rollout": [1]}, "row 1: not a saved rollout ("),
    ],
)
def test_what_is_no_saved_rollout_is_named_with_its_place(tmp_path: Path, name: str, content: Any, says: str) -> None:
    path = tmp_path / name
    if isinstance(content, dict):
        pq.write_table(pa.table(content), path)
    elif content is not None:
        path.write_bytes(content)
    line = fault(lambda: list(load_rollouts(path)))
    assert line.startswith(str(path))
    assert says in line
    assert len(line) < len(str(path)) + 200


def test_a_truncated_parquet_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    save_rollouts([rich()], path)
    path.write_bytes(path.read_bytes()[:-20])
    assert fault(lambda: list(load_rollouts(path))).startswith(f"{path}: not a Parquet file of rollouts (")


@pytest.mark.parametrize(
    ("records", "name", "says"),
    [
        ([bare()], "a.txt", "are saved as .json, .jsonl or .parquet"),
        ([bare(), bare()], "a.json", ".json holds one rollout; use .jsonl or .parquet for 2"),
        ([], "a.json", ".json holds one rollout; use .jsonl or .parquet for 0"),
        ([bare()], "file/a.json", "cannot write ("),
        ([bare()], "file/a.parquet", "cannot write ("),
        ([bare()], "folder.jsonl", "cannot write (Is a directory)"),
    ],
    ids=["ending", "two in .json", "none in .json", "in a file", "Parquet in a file", "a folder"],
)
def test_what_cannot_be_saved_says_why_and_leaves_nothing(tmp_path: Path, records: Any, name: str, says: str) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder.jsonl").mkdir()
    line = fault(lambda: save_rollouts(records, tmp_path / name))
    assert line.startswith(str(tmp_path / name))
    assert says in line
    assert sorted(path.name for path in tmp_path.iterdir()) == ["file", "folder.jsonl"]


@pytest.mark.parametrize("name", ["a.json", "a.jsonl", "a.parquet"])
def test_a_save_that_fails_midway_leaves_the_old_file(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    save_rollouts(bare(), tmp_path / name)

    def full(self: Path, target: Path) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    assert "No space left on device" in fault(lambda: save_rollouts(rich(), tmp_path / name))
    assert list(load_rollouts(tmp_path / name)) == [bare()]
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_a_turns_prompt_is_everything_fed_and_generated_before_it() -> None:
    record = bare()
    record.turns = [
        Turn(fed_ids=[1, 2], output_ids=[3]),
        Turn(fed_ids=[4], output_ids=[5, 6]),
        Turn(fed_ids=[7]),
    ]
    assert [record.input_ids(turn) for turn in range(3)] == [[1, 2], [1, 2, 3, 4], [1, 2, 3, 4, 5, 6, 7]]
    with pytest.raises(IndexError):
        record.input_ids(3)


def test_a_response_holds_its_prefix_and_support_is_what_ran() -> None:
    record = rich()
    assert record.turns[0].response == "<think>\n" + ODD
    assert record.supporting_evidence == [record.evidence[0]]
