"""Rows from Parquet files of the paper's layout: this project's and the public ones, good and bad, in little memory."""

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paravt_infer.errors import SettingsError
from paravt_training.data.rows import (
    ROW_GROUP,
    ConversationRow,
    InvalidRow,
    expand_globs,
    message_media,
    message_text,
    read_rows,
)
from paravt_training.data.videos import VideoFolders, video_prefix
from paravt_training.data.writer import SCHEMA, open_row_writer
from paravt_training.world.build import build

ASKED = [{"role": "user", "content": "Who?"}]


def only(path: Path, **columns: object) -> ConversationRow | InvalidRow:
    """The one row of a file with these columns."""
    pq.write_table(pa.Table.from_pylist([columns]), path)
    (row,) = read_rows(path)
    return row


def test_the_sample_worlds_rows_come_as_they_were_written(tmp_path: Path) -> None:
    path, _ = build(tmp_path, "train", 300, 0, videos=False)
    written, rows = pq.read_table(path).to_pylist(), list(read_rows(path))
    assert [row.number for row in rows] == list(range(1, 301))
    for row, was in zip(rows, written, strict=True):
        assert isinstance(row, ConversationRow)
        assert (row.messages, row.videos) == (json.loads(was["messages"]), was["videos"])
        assert (row.answer, row.kind) == (was["extra_info"]["answer"], was["extra_info"]["kind"])


def test_a_row_of_the_public_sft_files(tmp_path: Path) -> None:
    shown = {"type": "video_url", "video_url": {"url": "file://longvt_source/tvg_1/a.mp4"}}
    picture = {"type": "image_url", "image_url": {"url": "longvt_source/videor1_1/a.png"}}
    said = [
        {"role": "system", "content": [{"type": "text", "text": "You see a video."}]},
        {"role": "user", "content": [shown, picture, {"type": "text", "text": "Who?"}]},
        {"role": "assistant", "content": [{"type": "text", "text": "<think>Ann.</think><answer>Ann</answer>"}]},
    ]
    row = only(tmp_path / "paravt_sft_tvg_6k3.parquet", messages=json.dumps(said), id="tvg-1")
    assert isinstance(row, ConversationRow)
    assert row.messages[0] == {"role": "system", "content": "You see a video."}
    assert message_media(row.messages[1]) == [
        {"type": "video", "video": "longvt_source/tvg_1/a.mp4"},
        {"type": "image", "image": "longvt_source/videor1_1/a.png"},
    ]
    assert row.videos == ["longvt_source/tvg_1/a.mp4"]
    assert (row.answer, row.source, row.info) == ("Ann", "paravt_sft_tvg_6k3", {"id": "tvg-1"})


@pytest.mark.parametrize("as_text", [True, False], ids=["extra_info as JSON", "extra_info as a struct"])
def test_a_row_of_the_public_rl_file(tmp_path: Path, as_text: bool) -> None:
    info = {"answer": "[3.1, 9.0]", "question_type": "tvg"}
    row = only(
        tmp_path / "rl.parquet",
        prompt=[{"role": "user", "content": "<video>When does he sit down?"}],
        videos=[{"video": "file://museg/charades/3MSZA.mp4"}],
        extra_info=json.dumps(info) if as_text else info,
        data_source="charades_tvg",
    )
    assert isinstance(row, ConversationRow)
    assert row.messages == [
        {
            "role": "user",
            "content": [
                {"type": "video", "video": "museg/charades/3MSZA.mp4"},
                {"type": "text", "text": "When does he sit down?"},
            ],
        }
    ]
    assert (row.answer, row.kind, row.source) == ("[3.1, 9.0]", "grounding", "charades_tvg")


def test_messages_as_lists_of_structs_lose_the_keys_that_parquet_filled_in(tmp_path: Path) -> None:
    parts = [{"type": "video", "video": "a.mp4"}, {"type": "text", "text": "Who?"}]
    row = only(tmp_path / "a.parquet", messages=[{"role": "user", "content": parts}])
    assert isinstance(row, ConversationRow)
    assert row.messages == [{"role": "user", "content": parts}]


def test_structured_calls_are_read_as_a_model_writes_them(tmp_path: Path) -> None:
    function = {"name": "crop_video", "arguments": '{"start_time": 1, "end_time": 2}'}
    said = {"role": "assistant", "content": None, "tool_calls": [{"type": "function", "function": function}]}
    row = only(tmp_path / "a.parquet", messages=json.dumps([*ASKED, said]))
    assert isinstance(row, ConversationRow)
    assert message_text(row.messages[1]) == (
        '<tool_call>{"name": "crop_video", "arguments": {"start_time": 1, "end_time": 2}}</tool_call>'
    )


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        ({"messages": "[{"}, "bad_json"),
        ({"messages": "[" * 100_000}, "bad_json"),
        ({"messages": "[]"}, "no_messages"),
        ({"messages": None, "id": "x"}, "no_messages"),
        ({"messages": '["hello"]'}, "bad_message"),
        ({"messages": '[{"role": "user"}]'}, "bad_message"),
        ({"messages": '[{"role": "user", "content": [{"type": "sound"}]}]'}, "bad_part"),
        ({"messages": '[{"role": "user", "content": [{"type": "video"}]}]'}, "bad_part"),
        ({"messages": json.dumps(ASKED), "videos": [{"path": "a.mp4"}]}, "bad_videos"),
        ({"messages": json.dumps(ASKED), "extra_info": "{"}, "bad_json"),
        ({"messages": json.dumps(ASKED), "extra_info": "[1]"}, "bad_extra_info"),
    ],
)
def test_a_bad_row_is_reported_and_reading_continues(tmp_path: Path, columns: dict[str, object], fault: str) -> None:
    path = tmp_path / "a.parquet"
    good = {"messages": json.dumps(ASKED), **dict.fromkeys(columns.keys() - {"messages"})}
    pq.write_table(pa.Table.from_pylist([good, columns, good]), path)
    before, bad, after = read_rows(path)
    assert isinstance(before, ConversationRow) and isinstance(after, ConversationRow) and after.number == 3
    assert isinstance(bad, InvalidRow) and bad.fault == fault
    assert str(bad).startswith(f"{path}, row 2: {fault}: ")


def test_bytes_that_are_no_text_spoil_one_row_alone(tmp_path: Path) -> None:
    texts = pa.array([json.dumps(ASKED).encode(), b"\xff\xfe", json.dumps(ASKED).encode()])
    pq.write_table(pa.table({"messages": texts.view(pa.string())}), tmp_path / "a.parquet")
    faults = [row.fault if isinstance(row, InvalidRow) else "" for row in read_rows(tmp_path / "a.parquet")]
    assert faults == ["", "bad_text", ""]


def test_a_wrong_file_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.parquet: no such file; check the path"):
        list(read_rows(tmp_path / "none.parquet"))
    text = tmp_path / "text.parquet"
    text.write_text("hello")
    with pytest.raises(SettingsError, match=r"text\.parquet: not a Parquet file \(.*\)$"):
        list(read_rows(text))
    pq.write_table(pa.table({"question": ["Who?"]}), text)
    with pytest.raises(SettingsError, match="it has no column messages or prompt"):
        list(read_rows(text))


def test_chosen_rows_alone_are_read(tmp_path: Path) -> None:
    with open_row_writer(tmp_path / "a.parquet") as writer:
        for number in range(700):
            writer.write(ConversationRow(messages=[{"role": "user", "content": f"{number}?"}], videos=[]))
    chosen = np.zeros(700, bool)
    chosen[[0, 255, 256, 699]] = True
    rows = [row for row in read_rows(tmp_path / "a.parquet", chosen) if isinstance(row, ConversationRow)]
    assert [(row.number, message_text(row.messages[0])) for row in rows] == [
        (1, "0?"),
        (256, "255?"),
        (257, "256?"),
        (700, "699?"),
    ]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    row = ConversationRow(
        messages=[{"role": "user", "content": "half a pair: \ud800"}], videos=["v.mp4"], info={"answer": "B"}
    )
    with open_row_writer(tmp_path / "new/a.parquet") as writer:
        writer.write(row)
    assert pq.read_schema(tmp_path / "new/a.parquet").equals(SCHEMA)
    (again,) = read_rows(tmp_path / "new/a.parquet")
    assert isinstance(again, ConversationRow)
    assert (again.messages, again.videos, again.info) == (row.messages, row.videos, row.info)


def test_an_interrupted_file_is_not_there_and_the_old_one_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), open_row_writer(path) as writer:
        writer.write(ConversationRow(messages=ASKED, videos=[]))
        raise KeyboardInterrupt
    assert [one.name for one in tmp_path.iterdir()] == ["a.parquet"] and path.read_text() == "old"
    with (
        pytest.raises(SettingsError, match=r"cannot write \(.*\); free some space or choose another path"),
        open_row_writer(path / "b"),
    ):
        pass


@pytest.mark.parametrize("row_group", [ROW_GROUP, 20_000], ids=["small row groups", "one row group"])
def test_memory_does_not_grow_with_the_file(tmp_path: Path, row_group: int) -> None:
    """20,000 rows of 2,000 characters are 40 MB; both Arrow's memory and Python's stay below a fifth of that."""
    path = tmp_path / "a.parquet"
    noise = np.random.default_rng(0).integers(97, 123, (20_000, 2_000), np.uint8).view("S2000")[:, 0]
    texts = [f'[{{"role": "user", "content": "{text.decode()}"}}]' for text in noise]
    pq.write_table(pa.table({"messages": texts}), path, row_group_size=row_group, compression="none")
    size = path.stat().st_size
    del texts, noise
    before, most, rows = pa.total_allocated_bytes(), 0, 0
    tracemalloc.start()
    for _ in read_rows(path):
        rows += 1
        if rows % 100 == 0:
            most = max(most, pa.total_allocated_bytes() - before)
    python = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 20_000 and size > 40_000_000
    assert most < size / 5 and python < size / 5


def test_sentinel_paths_are_looked_for_under_the_root(tmp_path: Path) -> None:
    beside, root = Path("files/a.parquet"), tmp_path
    folders = VideoFolders(root=root, by_prefix={"selfqa/": tmp_path / "qa", "museg/": tmp_path / "m"})
    assert folders.resolve("longvt_source/tvg_1/a.mp4", beside) == root / "longvt_source/tvg_1/a.mp4"
    assert folders.resolve("selfqa/a.mp4", beside) == tmp_path / "qa/a.mp4"
    assert folders.resolve("museg/charades/a.mp4", beside) == tmp_path / "m/charades/a.mp4"
    assert folders.resolve("/abs/a.mp4", beside) == Path("/abs/a.mp4")
    assert VideoFolders().resolve("videos/a.mp4", beside) == Path("files/videos/a.mp4")
    assert [video_prefix(path) for path in ("museg/et_instruct_164k/a.mp4", "longvt_source/x/a.mp4", "a.mp4")] == [
        "museg/et_instruct_164k/",
        "longvt_source/",
        "./",
    ]


def test_a_damaged_file_says_after_which_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    with open_row_writer(path) as writer:
        for number in range(2 * ROW_GROUP):
            writer.write(ConversationRow(messages=[{"role": "user", "content": f"{number}?"}], videos=[]))
    place = pq.read_metadata(path).row_group(1).column(0).data_page_offset
    raw = bytearray(path.read_bytes())
    raw[place + 20 : place + 60] = b"\0" * 40
    path.write_bytes(raw)
    rows = read_rows(path)
    with pytest.raises(SettingsError, match=r"a\.parquet: damaged after row \d+ \(.*\); copy it again"):
        list(rows)


def test_files_are_found_by_patterns(tmp_path: Path) -> None:
    for name in ("b.parquet", "a.parquet", "deep/c.parquet"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    found = expand_globs(["*.parquet", str(tmp_path / "deep/c.parquet")], "x", tmp_path)
    assert [str(path.relative_to(tmp_path)) for path in found] == ["a.parquet", "b.parquet", "deep/c.parquet"]
    assert len(expand_globs([str(tmp_path / "**/*.parquet")], "x")) == 3
    with pytest.raises(SettingsError, match=r"source x: .*/none\*: no such file; check the path"):
        expand_globs(["none*"], "source x", tmp_path)
