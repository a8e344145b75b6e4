"""A file of questions: every form of it, each row once, and what survives a kill."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from paravt_infer import Engine, Settings
from paravt_infer.batch import Batch
from paravt_infer.errors import SettingsError
from paravt_infer.rollout_files import load_rollouts
from tests.fixtures.scripted import ScriptedBackend

DIRECT = Settings(protocol="direct")


def rows(video: str, count: int = 4) -> list[dict[str, Any]]:
    return [{"id": f"q{n}", "video": video, "question": f"Question {n}?", "options": ["x", "y"]} for n in range(count)]


def write(path: Path, questions: list[dict[str, Any]]) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(questions), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in questions))
    else:
        lines = ["id,video,question,options"]
        lines += [f"{r['id']},{r['video']},{r['question']},{'|'.join(r['options'])}" for r in questions]
        path.write_text("\n".join(lines) + "\n")
    return path


async def run(batch: Batch, backend: ScriptedBackend, *, stop_after: int | None = None) -> list[str]:
    """Ids of the questions whose rollouts came; leaves early after `stop_after`, as a kill would."""
    seen: list[str] = []
    async with Engine(backend, batch.settings) as engine:
        async for rollout in batch.run(engine, concurrency=1):
            seen.append(rollout.question.id)
            if len(seen) == stop_after:
                break
    return seen


@pytest.mark.parametrize("source", ["questions.parquet", "questions.jsonl", "questions.csv"])
@pytest.mark.parametrize("out", ["results.parquet", "results.jsonl"])
async def test_every_row_once_in_the_sources_order(
    tiny: Path, video: str, tmp_path: Path, source: str, out: str
) -> None:
    batch = Batch(write(tmp_path / source, rows(video)), tmp_path / out, DIRECT)
    await run(batch, ScriptedBackend(tiny, ["A", "B", "x", "y"]))
    results = list(load_rollouts(tmp_path / out))
    assert [(r.question.id, r.answer) for r in results] == [("q0", "A"), ("q1", "B"), ("q2", "A"), ("q3", "B")]
    assert not batch.journal.exists()


async def test_stopped_and_run_again_nothing_is_lost_and_nothing_asked_twice(
    tiny: Path, video: str, tmp_path: Path
) -> None:
    source, out = write(tmp_path / "q.jsonl", rows(video)), tmp_path / "r.parquet"
    assert await run(Batch(source, out, DIRECT), ScriptedBackend(tiny, ["A"] * 4), stop_after=2) == ["q0", "q1"]
    # The kill came in the middle of a write: the cut line is dropped.
    batch = Batch(source, out, DIRECT)
    with batch.journal.open("ab") as journal:
        journal.write(b'{"answer": "A", "evid')
    backend = ScriptedBackend(tiny, ["B"] * 2)
    await run(batch, backend)
    assert [(r.question.id, r.answer) for r in load_rollouts(out)] == [
        ("q0", "A"),
        ("q1", "A"),
        ("q2", "B"),
        ("q3", "B"),
    ]
    assert len(backend.requests) == 2


async def test_a_finished_batch_asks_nothing_and_a_changed_setting_asks_anew(
    tiny: Path, video: str, tmp_path: Path
) -> None:
    source, out = write(tmp_path / "q.jsonl", rows(video, 2)), tmp_path / "r.jsonl"
    await run(Batch(source, out, DIRECT), ScriptedBackend(tiny, ["A"] * 2))
    again = ScriptedBackend(tiny, [])
    assert await run(Batch(source, out, DIRECT), again) == ["q0", "q1"]
    assert not again.requests
    changed = ScriptedBackend(tiny, ["B"] * 2)
    await run(Batch(source, out, DIRECT.model_copy(update={"frames": 8})), changed)
    assert [r.answer for r in load_rollouts(out)] == ["B", "B"]


async def test_a_failed_row_is_in_the_results_and_is_asked_again(tiny: Path, video: str, tmp_path: Path) -> None:
    late = tmp_path / "late.mp4"
    questions = [*rows(video, 1), {"id": "late", "video": str(late), "question": "?"}]
    source, out = write(tmp_path / "q.jsonl", questions), tmp_path / "r.jsonl"
    await run(Batch(source, out, DIRECT), ScriptedBackend(tiny, ["A"]))
    assert [(r.question.id, r.status) for r in load_rollouts(out)] == [("q0", "answered"), ("late", "failed")]
    late.write_bytes(Path(video).read_bytes())
    backend = ScriptedBackend(tiny, ["fine"])
    await run(Batch(source, out, DIRECT), backend)
    assert [r.status for r in load_rollouts(out)] == ["answered"] * 2
    assert len(backend.requests) == 1


async def test_paths_may_be_relative_to_the_file(tiny: Path, video: str, tmp_path: Path) -> None:
    (tmp_path / "film.mp4").write_bytes(Path(video).read_bytes())
    batch = Batch(write(tmp_path / "q.jsonl", rows("film.mp4", 1)), tmp_path / "r.jsonl", DIRECT)
    await run(batch, ScriptedBackend(tiny, ["A"]))
    assert next(load_rollouts(tmp_path / "r.jsonl")).status == "answered"


@pytest.mark.parametrize(
    ("name", "content", "complaint"),
    [
        ("missing.jsonl", None, "no such file"),
        ("q.txt", "x", "questions are read from .parquet, .jsonl or .csv"),
        ("q.jsonl", "", "has no questions"),
        ("q.jsonl", '{"video": "v"}\n', "row 1: has no question"),
        ("q.jsonl", '{"video": "v", "question": "?"}\n{"que', "line 2: not JSON"),
        ("q.jsonl", "[1]\n", "line 1: not a JSON object"),
        (
            "q.jsonl",
            '{"video": "v", "question": "?", "options": ["A=a", "b"]}',
            "options: give either all",
        ),
        ("q.parquet", "not parquet", "not a Parquet file"),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(tmp_path: Path, name: str, content: str | None, complaint: str) -> None:
    source = tmp_path / name
    if content is not None:
        source.write_text(content)
    with pytest.raises(SettingsError) as error:
        Batch(source, tmp_path / "r.jsonl", DIRECT)
    assert complaint in str(error.value) and str(source) in str(error.value) and "\n" not in str(error.value)
