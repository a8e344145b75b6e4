"""Mixes: what a manifest gives and forbids, reproducible by seed, written atomically."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paravt_infer.errors import SettingsError
from paravt_training.data.manifest import Manifest, load_manifest
from paravt_training.data.mix import write_mix
from paravt_training.data.rows import ConversationRow, InvalidRow, message_text, read_rows
from paravt_training.data.writer import open_row_writer
from paravt_training.world.traces import call_text


def write(path: Path, count: int, *, tool: bool, mark: str = "") -> None:
    """A file of `count` rows whose questions are numbered from 0."""
    call = call_text((1.0, 2.0)) if tool else ""
    with open_row_writer(path) as writer:
        for number in range(count):
            said = [{"role": "user", "content": f"{mark}{number}?"}, {"role": "assistant", "content": f"{call}a"}]
            writer.write(ConversationRow(messages=said, videos=["v.mp4"]))


def manifest(*sources: dict[str, Any], **values: Any) -> Manifest:
    named = [{"files": [f"{source['name']}.parquet"], **source} for source in sources]
    return Manifest(**{"name": "small", "sources": named, **values})


CHAT, TRACES = {"name": "chat", "tool": False}, {"name": "traces", "tool": True}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    write(tmp_path / "chat.parquet", 700, tool=False, mark="c")
    write(tmp_path / "traces.parquet", 400, tool=True, mark="t")
    return tmp_path


def rows_of(folder: Path) -> list[ConversationRow]:
    return [
        row
        for shard in sorted(folder.glob("*.parquet"))
        for row in read_rows(shard)
        if isinstance(row, ConversationRow)
    ]


def test_the_papers_mix_ships() -> None:
    """Table 3."""
    shipped = load_manifest("paravt_sft_mix")
    assert {source.name: (source.count, source.tool) for source in shipped.sources} == {
        "videor1": (50_000, False),
        "selftrace": (15_000, True),
        "charades": (12_000, False),
        "tvg": (6_000, True),
        "longvideoreason": (5_000, False),
        "geminicot": (5_000, True),
        "museg": (2_500, True),
    }
    assert (shipped.tool_fraction, shipped.seed) == (0.3, 0)
    held = dict(videor1=50_000, selftrace=15_300, charades=12_400, tvg=6_300, longvideoreason=5_200, museg=2_500)
    shares = shipped.allocate({**held, "geminicot": 4_800})  # as the public files' names say
    assert (sum(shares.values()), shipped.rows_with_calls(shares)) == (95_300, 28_300)
    with pytest.raises(SettingsError, match=r"source geminicot: 5,000 rows .*at least 4,500.* its files have 4,000"):
        shipped.allocate({**held, "geminicot": 4_000})


def test_counts_are_met_and_every_row_names_its_source(data: Path, tmp_path: Path) -> None:
    chosen = manifest({**CHAT, "count": 210}, {**TRACES, "count": 90}, tool_fraction=0.3, shard_rows=128)
    mixed = write_mix(chosen, tmp_path / "out", data=data)
    rows = rows_of(tmp_path / "out")
    assert Counter(row.source for row in rows) == {"chat": 210, "traces": 90}
    assert len({message_text(row.messages[0]) for row in rows}) == 300  # none twice
    assert (mixed.rows, mixed.tool_fraction) == (300, 0.3)
    assert mixed.shards == [f"small-0000{number}-of-00003.parquet" for number in range(3)]
    assert [pq.read_metadata(tmp_path / "out" / shard).num_rows for shard in mixed.shards] == [128, 128, 44]
    summary = json.loads((tmp_path / "out/summary.json").read_text())
    assert summary["sources"]["traces"] == {
        "tool": True,
        "held": 400,
        "asked": 90,
        "files": {"traces.parquet": 400},
        "rows": 90,
        "with_calls": 90,
        "bad_rows": 0,
    }
    # Any stretch is mixed, and a source's own rows keep their order.
    assert 20 < sum(row.source == "traces" for row in rows[:128]) < 60
    numbers = [int(message_text(row.messages[0])[1:-1]) for row in rows if row.source == "chat"]
    assert numbers == sorted(numbers) and numbers[-1] > 600


def test_a_seed_gives_one_mix_and_another_seed_another(data: Path, tmp_path: Path) -> None:
    def made(name: str, **values: Any) -> list[str]:
        write_mix(manifest({**CHAT, "count": 70}, {**TRACES, "count": 30}, **values), tmp_path / name, data=data)
        return [message_text(row.messages[0]) for row in rows_of(tmp_path / name)]

    first = made("a")
    assert made("b") == first != made("c", seed=1)
    assert (tmp_path / "a/small-00000-of-00001.parquet").read_bytes() == (
        tmp_path / "b/small-00000-of-00001.parquet"
    ).read_bytes()


def test_what_one_source_gives_does_not_depend_on_the_others(data: Path, tmp_path: Path) -> None:
    write_mix(manifest({**CHAT, "count": 50}, {**TRACES, "count": 30}), tmp_path / "both", data=data)
    write_mix(manifest({**TRACES, "count": 30}), tmp_path / "one", data=data)
    both = [message_text(row.messages[0]) for row in rows_of(tmp_path / "both") if row.source == "traces"]
    assert both == [message_text(row.messages[0]) for row in rows_of(tmp_path / "one")]


def test_without_a_count_all_rows_are_taken(data: Path, tmp_path: Path) -> None:
    mixed = write_mix(manifest(CHAT, {**TRACES, "count": 300}, tool_fraction=0.3), tmp_path / "out", data=data)
    assert (mixed.rows, mixed.sources["chat"].rows) == (1000, 700)


def test_weights_share_out_each_kind() -> None:
    more = {"name": "more", "tool": True}
    chosen = manifest(
        {**CHAT, "weight": 1}, {**TRACES, "weight": 3}, {**more, "weight": 1}, rows=101, tool_fraction=0.3
    )
    assert chosen.allocate(dict(chat=999, traces=999, more=999)) == dict(chat=71, traces=23, more=7)
    plain = manifest({**CHAT, "weight": 1}, {**TRACES, "weight": 3}, rows=100)
    assert plain.allocate(dict(chat=999, traces=999)) == dict(chat=25, traces=75)


@given(st.integers(1, 5000), st.floats(0, 1), st.lists(st.floats(0.1, 9), min_size=2, max_size=6))
def test_shares_add_up(rows: int, fraction: float, weights: list[float]) -> None:
    sources = [{"name": str(n), "tool": n % 2 == 0, "weight": weight} for n, weight in enumerate(weights)]
    chosen = manifest(*sources, rows=rows, tool_fraction=fraction)
    shares = chosen.allocate({source["name"]: rows for source in sources})
    assert sum(shares.values()) == rows and chosen.rows_with_calls(shares) == round(rows * fraction)


@pytest.mark.parametrize(
    ("chosen", "told"),
    [
        (
            manifest({**CHAT, "count": 600}, {**TRACES, "count": 100}, tool_fraction=0.3),
            "tool_fraction 0.3 cannot be met: 100 of these 700 rows have calls, 0.143; "
            "use 233 rows without calls or 257 rows with calls",
        ),
        (
            manifest({**CHAT, "count": 100}, tool_fraction=0.3),
            "tool_fraction 0.3 cannot be met: 0 of these 100 rows have calls, 0.000; use 43 rows with calls",
        ),
        (
            manifest({**CHAT, "weight": 1}, rows=100, tool_fraction=0.3),
            "tool_fraction 0.3 cannot be met: add a source with calls",
        ),
        (
            manifest({**CHAT, "weight": 1}, {**TRACES, "weight": 1}, rows=2000, tool_fraction=0.3),
            "tool_fraction 0.3 cannot be met with 2,000 rows: source traces must provide 600 and has 400; "
            "at these weights the files allow 1,000 rows, and 2,000 rows allow no tool_fraction",
        ),
        (
            manifest({**CHAT, "weight": 1}, {**TRACES, "weight": 1}, rows=1000, tool_fraction=0.5),
            "tool_fraction 0.5 cannot be met with 1,000 rows: source traces must provide 500 and has 400; "
            "at these weights the files allow 800 rows, and 1,000 rows allow a tool_fraction of 0.300 to 0.400",
        ),
        (
            manifest({**CHAT, "count": 701}),
            "source chat: 701 rows are required, but its files have 700; add files or lower its count",
        ),
        (manifest({**CHAT, "files": ["no.parquet"]}), "no.parquet: no such file; check the path"),
    ],
)
def test_what_is_not_available_is_an_error_that_says_what_is(
    data: Path, tmp_path: Path, chosen: Manifest, told: str
) -> None:
    with pytest.raises(SettingsError) as refused:
        write_mix(chosen, tmp_path / "out", data=data)
    assert told in str(refused.value) and "\n" not in str(refused.value)
    assert not (tmp_path / "out").exists()


def test_rows_that_contradict_the_manifest_are_an_error(data: Path, tmp_path: Path) -> None:
    chosen = manifest({**CHAT, "tool": True, "count": 30}, {**TRACES, "tool": False, "count": 70}, tool_fraction=0.3)
    with pytest.raises(
        SettingsError, match=r"tool_fraction 0.3 is not met: 0.700 of .*source chat \(tool: True\) has calls in 0 of 30"
    ):
        write_mix(chosen, tmp_path / "out", data=data)
    assert {path.name for path in tmp_path.iterdir()} == {"chat.parquet", "traces.parquet"}


def test_an_invalid_row_is_reported_and_counted(tmp_path: Path) -> None:
    write(tmp_path / "good.parquet", 20, tool=False)
    table = pq.read_table(tmp_path / "good.parquet").to_pydict()
    table["messages"][6] = "[{"
    pq.write_table(pa.table(table), tmp_path / "chat.parquet")
    bad: list[InvalidRow] = []
    mixed = write_mix(manifest(CHAT), tmp_path / "out", data=tmp_path, on_invalid=bad.append)
    assert [(row.file.name, row.number, row.fault) for row in bad] == [("chat.parquet", 7, "bad_json")]
    assert (mixed.rows, mixed.sources["chat"].bad_rows, len(rows_of(tmp_path / "out"))) == (19, 1, 19)


def test_a_folder_that_is_not_empty_is_left_alone(data: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    write_mix(manifest({**CHAT, "count": 5}), tmp_path / "out", data=data)
    with pytest.raises(SettingsError, match="already exists and is not an empty folder; choose another one"):
        write_mix(manifest({**CHAT, "count": 6}), tmp_path / "out", data=data)
    assert len(rows_of(tmp_path / "out")) == 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: [", "not a YAML file"),
        ("- a", "not a manifest"),
        ("name: a\nsources: []", "manifest key sources: "),
        (
            "name: a\nseeds: 1\nsources: [{name: a, files: [a], tool: true}]",
            "unknown manifest key 'seeds'; did you mean 'seed'?",
        ),
        ("name: a\nsources: [{name: a, files: [a]}]", "manifest key sources.0.tool: is missing"),
        ("name: a\nsources: [{name: a, files: [a], tool: true, weight: 1}]", "rows and weights go together"),
        ("name: a\nrows: 5\nsources: [{name: a, files: [a], tool: true}]", "rows and weights go together"),
        ("name: a\nsources: [{name: a, files: [a], tool: true}, {name: a, files: [a], tool: true}]", "is repeated"),
        ("name: a\nrows: 5\nsources: [{name: a, files: [a], tool: true, weight: 1, count: 1}]", "not both"),
    ],
)
def test_a_wrong_manifest_is_one_line(tmp_path: Path, text: str, told: str) -> None:
    file = tmp_path / "m.yaml"
    file.write_text(text)
    with pytest.raises(SettingsError) as refused:
        load_manifest(file)
    assert str(refused.value).startswith(f"{file}: ") and told in str(refused.value)
    assert "\n" not in str(refused.value)
    with pytest.raises(SettingsError, match="none: no such manifest; pass a YAML file or the built-in paravt_sft_mix"):
        load_manifest("none")
