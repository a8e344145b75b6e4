"""Parquet files of conversations: frames as the engine sees them, every row once an epoch, faults named."""

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from PIL import Image

from paravt_infer.errors import SettingsError, VideoError
from paravt_infer.protocols import get_protocol
from paravt_infer.video.types import Frame
from paravt_training.data.loading import step_batches
from paravt_training.data.parquet import SHUFFLE_GROUPS, ParquetSource
from paravt_training.data.rows import InvalidRow
from paravt_training.model.encode import Encoder
from paravt_training.recipe import ParquetData, TraceMix, load_recipe
from paravt_training.world.build import build
from paravt_training.world.stream import trace_at
from paravt_training.world.traces import render_messages

SHAPE = {"min_pixels": 4096, "max_pixels": 4096}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three traces of the sample world with their videos."""
    folder = tmp_path_factory.mktemp("built")
    build(folder, "train", 3, 4, mix=TraceMix(overview=0, reasoning=0, direct=0))
    return folder


def _write(path: Path, rows: list[object], group: int = 4) -> ParquetData:
    texts = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    pq.write_table(pa.table({"messages": texts}), path, row_group_size=group)
    return ParquetData(kind="parquet", files=[str(path)], videos=str(path.parent), **SHAPE)


def _row(number: int) -> list[dict[str, str]]:
    return [{"role": "user", "content": f"q{number}"}, {"role": "assistant", "content": f"a{number}"}]


def test_rows_of_the_world_are_its_traces(built: Path, start: Path) -> None:
    data = ParquetData(kind="parquet", files=[str(built / "*.parquet")], videos=str(built), **SHAPE)
    source, encoder = ParquetSource(data, 32), Encoder(str(start))
    read = [source.conversation(number, TraceMix()) for number in range(3)]
    for number in range(3):
        trace = trace_at(4, "train", number, TraceMix(overview=0, reasoning=0, direct=0), shared=True)
        right = render_messages(trace, (64, 64))
        name = f"{built / 'train.parquet'}, row {number + 1}"
        conversation = next(one for one in read if one.name == name)
        assert conversation.kind == trace.form and conversation.tools == get_protocol(trace.protocol).tools()
        for got, wanted in zip(conversation.messages, right, strict=True):
            assert (got.role, got.text) == (wanted.role, wanted.text)
            kinds = [isinstance(part, Frame) for part in got.parts]
            assert sum(kinds) == len(wanted.frames)
            for one, other in zip(got.frames, wanted.frames, strict=True):
                assert one.time == other.time and one.pixels.shape == (64, 64, 3)
                assert np.abs(one.pixels.astype(int) - other.pixels).mean() < 6  # H.264 has been over it
        assert len(encoder.encode(conversation)) > 100


def test_every_row_comes_once_an_epoch_in_another_order(tmp_path: Path) -> None:
    rows = 4 * SHUFFLE_GROUPS * 2 + 6
    source = ParquetSource(_write(tmp_path / "a.parquet", [_row(number) for number in range(rows)]), 32)

    def epoch(number: int) -> list[str]:
        first = number * rows
        return [source.conversation(first + one, TraceMix()).messages[0].text for one in range(rows)]

    first, second = epoch(0), epoch(1)
    assert Counter(first) == Counter(second) == Counter(f"q{number}" for number in range(rows))
    assert first != second and first == epoch(0) and first != sorted(first, key=lambda q: int(q[1:]))
    assert len(source.cache) <= SHUFFLE_GROUPS
    # Any number alone gives the same.
    again = ParquetSource(source.data, 32)
    assert [again.conversation(number, TraceMix()).messages[0].text for number in (50, 3)] == [first[50], first[3]]


def test_calls_in_a_field_of_their_own_are_written_as_the_model_writes_them(tmp_path: Path) -> None:
    call = {"function": {"name": "crop_video", "arguments": '{"start_time": 1.0, "end_time": 2.0}'}}
    said = {"role": "assistant", "content": "<think>x</think>\n", "tool_calls": [call]}
    source = ParquetSource(_write(tmp_path / "a.parquet", [[{"role": "user", "content": "q"}, said]]), 32)
    text = source.conversation(0, TraceMix()).messages[1].text
    assert get_protocol("paravt").parse_calls(text)[0].arguments == {"start_time": 1.0, "end_time": 2.0}


def test_a_bad_row_is_named_and_the_others_are_used(tmp_path: Path, start: Path) -> None:
    video = [
        {"role": "user", "content": [{"type": "video", "video": "gone.mp4"}]},
        {"role": "assistant", "content": "a"},
    ]
    bad: list[object] = ["{", [{"role": "user", "content": "q"}], [{"content": "q"}], video]
    sound = [{"role": "user", "content": [{"type": "sound", "sound": "x"}]}, {"role": "assistant", "content": "a"}]
    long = [{"role": "user", "content": "word " * 400}, {"role": "assistant", "content": "a"}]
    file = tmp_path / "a.parquet"
    data = _write(file, [*bad, sound, long, _row(0), _row(1)], group=100)
    source = ParquetSource(data, 32)
    faults = {}
    for number in range(8):
        try:
            source.conversation(number, TraceMix())
        except (SettingsError, VideoError) as error:
            faults[str(error)] = number
    told = sorted(faults)
    for row, reason in (
        (1, "bad_json: messages is not JSON"),
        (2, "no_answer: it has no assistant message"),
        (3, "bad_message: message 1 has no role"),
        (5, "bad_part: message 1 has a part of type 'sound'"),
    ):
        assert any(line.startswith(f"{file}, row {row}: ") and reason in line for line in told), told
    assert any("gone.mp4: no such file" in line for line in told) and len(told) == 5
    changes = [f"out={tmp_path}/run", "loaders=0", "row_tokens=400", "held_out.every=0"]
    recipe = load_recipe("mini_sft", [*changes, "phases.0.batch=8"])
    portion = next(step_batches(recipe, source, Encoder(str(start)), step=0, first=0))
    assert portion.samples == 2 and len(portion.dropped) == 6 and portion.after == 8
    assert any("tokens do not fit into row_tokens 400" in line for line in portion.dropped)


def test_a_row_that_is_no_text_costs_itself_alone(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    data = _write(file, [_row(number) for number in range(3)])
    table = pq.read_table(file)
    texts = [text.encode() for text in table["messages"].to_pylist()]
    broken = pa.array([texts[0], b"\xff", texts[2]], pa.binary()).cast(pa.string(), safe=False)
    pq.write_table(table.set_column(table.column_names.index("messages"), "messages", broken), file)
    source = ParquetSource(data, 32)
    rows = [source.row(number) for number in range(3)]
    assert sorted(isinstance(row, InvalidRow) for row in rows) == [False, False, True]
    assert [str(row) for row in rows if isinstance(row, InvalidRow)] == [
        f"{file}, row 2: bad_text: a column is not UTF-8"
    ]


def test_a_file_that_is_damaged_inside_is_named(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    data = _write(file, [_row(number) for number in range(50)], group=100)
    content = bytearray(file.read_bytes())
    content[4:400] = bytes(396)
    file.write_bytes(content)
    with pytest.raises(SettingsError, match=rf"{file}: damaged in row group 0 \(.*; copy it again"):
        ParquetSource(data, 32).row(0)


def test_files_that_are_none(tmp_path: Path) -> None:
    (tmp_path / "text.parquet").write_text("x")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    for name, told in (("none.parquet", "no such file"), ("no*.parquet", "no such file"),
                       ("text.parquet", "not a Parquet file"), ("other.parquet", "it has no column")):  # fmt: skip
        with pytest.raises(SettingsError, match=told):
            ParquetSource(ParquetData(kind="parquet", files=[str(tmp_path / name)]), 32)
    empty = _write(tmp_path / "empty.parquet", [])
    with pytest.raises(SettingsError, match="have no rows"):
        ParquetSource(empty, 32)


def test_pictures_and_folders_by_prefix(tmp_path: Path) -> None:
    (tmp_path / "qa").mkdir()
    Image.new("RGB", (128, 100), (250, 0, 0)).save(tmp_path / "qa" / "a.png")
    said = [
        {"role": "user", "content": [{"type": "image", "image": "selfqa/a.png"}]},
        {"role": "assistant", "content": "a"},
    ]
    data = _write(tmp_path / "a.parquet", [said]).model_copy(update={"prefixes": {"selfqa/": str(tmp_path / "qa")}})
    (frame,) = ParquetSource(data, 32).conversation(0, TraceMix()).messages[0].frames
    assert frame.pixels.shape == (64, 64, 3) and (frame.pixels == (250, 0, 0)).all()
    (tmp_path / "qa" / "a.png").write_text("x")
    with pytest.raises(VideoError, match=r"a\.png: cannot read the image \(not an image\)"):
        ParquetSource(data, 32).conversation(0, TraceMix())
