"""Items with what came of them, to Parquet and back."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lmms_tasks.results import EvalResult, load_results, save_results
from paravt_infer.errors import SettingsError
from paravt_infer.rollout import Rollout, Usage
from tests.fixtures.results import choice_result, open_result, span_result

ROWS = [
    choice_result("<answer>B</answer>", "B", groups={"duration": "short", "domain": "Knowledge"}, id="1"),
    choice_result("I do not know", "A", id="2"),
    choice_result(None, "C", id="3"),
    open_result("<answer>a “red” square, \n\x00 両</answer>", "a red square", id="4"),
    span_result("<answer>[1, 2]</answer>", id="5"),
]


def test_rows_come_back_as_they_were_and_in_their_order(tmp_path: Path) -> None:
    save_results(iter(ROWS), tmp_path / "new" / "rows.parquet")
    assert list(load_results(tmp_path / "new" / "rows.parquet")) == ROWS
    assert [file.name for file in (tmp_path / "new").iterdir()] == ["rows.parquet"]


def test_no_rows_are_a_file_of_none(tmp_path: Path) -> None:
    save_results([], tmp_path / "rows.parquet")
    assert list(load_results(tmp_path / "rows.parquet")) == []


def test_plain_columns_say_what_came_of_each_question(tmp_path: Path) -> None:
    cost = Usage(calls=2, prompt_tokens=900, output_tokens=60, seconds=1.5)
    first = ROWS[0].model_copy(update={"rollout": ROWS[0].rollout.model_copy(update={"usage": cost})})
    save_results([first, *ROWS[1:]], tmp_path / "rows.parquet")
    table = pq.read_table(tmp_path / "rows.parquet").drop_columns(["item", "rollout"]).to_pylist()
    assert table[0] == {
        **{"task": "paravt_videomme", "id": "1", "gold": "B", "answer": "B", "status": "answered", "error": None},
        **{"calls": 2, "prompt_tokens": 900, "output_tokens": 60, "seconds": 1.5},
    }
    assert [one["status"] for one in table] == ["answered", "no_answer", "failed", "answered", "answered"]
    assert table[2]["error"] == "the video is gone" and table[2]["answer"] is None


@pytest.mark.parametrize(
    ("status", "failed"),
    [("answered", False), ("no_answer", False), ("failed", True), ("cancelled", True), ("running", True)],
)
def test_an_episode_failed_unless_it_came_to_its_end(status: str, failed: bool) -> None:
    broken = EvalResult(item=ROWS[0].item, rollout=Rollout(question=ROWS[0].item.question, status=status))  # type: ignore[arg-type]
    assert broken.failed is failed


def test_a_folder_is_all_its_files_by_name(tmp_path: Path) -> None:
    save_results(ROWS[2:], tmp_path / "b.parquet")
    save_results(ROWS[:2], tmp_path / "a.parquet")
    assert list(load_results(tmp_path)) == ROWS


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nothing.parquet", r"nothing\.parquet: no results found; give a folder that `paravt eval` wrote"),
        ("empty", r"empty: no results found"),
        ("text.parquet", r"text\.parquet: not a file of results \("),
        ("other.parquet", r"other\.parquet: not a file of results \(it has no columns item and rollout\)"),
    ],
)
def test_what_holds_no_results_is_one_line(tmp_path: Path, name: str, complaint: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "text.parquet").write_text("no Parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "other.parquet")
    with pytest.raises(SettingsError, match=complaint) as error:
        list(load_results(tmp_path / name))
    assert "\n" not in str(error.value)


def test_a_row_that_is_damaged_is_named(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    save_results(ROWS[:2], path)
    table = pq.read_table(path)
    for column in ("item", "rollout"):
        damaged = pa.array([table[column][0].as_py(), '{"no": 1}'])
        pq.write_table(table.set_column(table.schema.get_field_index(column), column, damaged), path)
        with pytest.raises(SettingsError, match=r"rows\.parquet, row 2: not a saved"):
            list(load_results(path))


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(
        SettingsError, match=r"rows\.parquet: cannot write \(.*\); free some space or choose another path"
    ):
        save_results(ROWS, tmp_path / "file" / "rows.parquet")
