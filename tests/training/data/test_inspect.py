"""What is counted of a set of rows."""

from pathlib import Path

from paravt_training.data.inspect import RowStatistics, inspect_rows, quantiles
from paravt_training.data.rows import ConversationRow, InvalidRow, JsonMessage
from paravt_training.data.videos import VideoFolders
from paravt_training.world.traces import call_text


def row(*said: str, source: str = "tvg", videos: tuple[str, ...] = (), **info: object) -> ConversationRow:
    messages: list[JsonMessage] = [{"role": "user", "content": "Who?"}]
    messages += [{"role": "assistant", "content": text} for text in said]
    return ConversationRow(
        messages=messages, videos=list(videos), info={"source": source, **info}, file=Path("in/a.parquet")
    )


def counts_of(*rows: ConversationRow | InvalidRow, **how: object) -> dict[str, object]:
    counts = RowStatistics()
    assert list(inspect_rows(rows, counts, **{"folders": VideoFolders(), **how})) == list(rows)
    return counts.as_dict()


def test_sources_types_calls_and_turns() -> None:
    two = call_text((1, 2)) + call_text((3, 4))
    found = counts_of(
        row(two, two, "<answer>a b</answer>", question_type="mcq"),
        row("yes", source="museg"),
        InvalidRow(file=Path("a"), number=3, fault="bad_json", detail="x"),
    )
    assert (found["rows"], found["with_calls"], found["bad_rows"]) == (2, 1, {"bad_json": 1})
    assert found["sources"] == {"tvg": 1, "museg": 1}
    assert found["question_types"] == {"mcq": 1, "(none)": 1}
    assert found["calls_a_turn"] == {"2": 2, "0": 2}
    assert found["turns"] == {"3": 1, "1": 1}
    assert found["answer_words"] == {"least": 1, "median": 1.5, "mean": 1.5, "p95": 1.95, "most": 2}
    assert "tokens" not in found


def test_lengths_in_characters_and_tokens() -> None:
    found = counts_of(row("one two"), tokens=lambda text: len(text.split()))
    assert found["characters"] == dict.fromkeys(("least", "median", "mean", "p95", "most"), len("Who?one two"))
    assert found["tokens"] == dict.fromkeys(("least", "median", "mean", "p95", "most"), 3)


def test_missing_videos_are_counted_by_prefix(tmp_path: Path) -> None:
    (tmp_path / "selfqa").mkdir()
    (tmp_path / "selfqa/there.mp4").touch()
    found = counts_of(
        row("a", videos=("selfqa/there.mp4", "selfqa/gone.mp4")),
        row("a", videos=("museg/charades/gone.mp4",)),
        row("a", videos=("selfqa/lost.mp4",)),
        folders=VideoFolders(root=tmp_path),
    )
    assert found["videos"] == {"selfqa/": 3, "museg/charades/": 1}
    assert found["missing_videos"] == {"selfqa/": 2, "museg/charades/": 1}
    assert found["first_missing"] == {
        "selfqa/": str(tmp_path / "selfqa/gone.mp4"),
        "museg/charades/": str(tmp_path / "museg/charades/gone.mp4"),
    }


def test_no_rows() -> None:
    assert counts_of()["rows"] == 0
    assert quantiles(RowStatistics().characters)["most"] == 0
