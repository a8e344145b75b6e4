"""A whole evaluation: the tasks through lmms-eval itself, what it leaves behind, and shards put together."""

import json
import os
import subprocess
import sys
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmms_tasks.evaluate import RESULTS, EvaluationOutcome, Shard, evaluate, load_items, merge
from lmms_tasks.results import load_results, save_results
from lmms_tasks.sweep import JOURNAL
from lmms_tasks.tasks import BENCHMARKS
from lmms_tasks.tasks.base import VideoRoots
from paravt_infer.backends.base import Generation, Request
from paravt_infer.backends.launch import SGLangServer
from paravt_infer.engine import EngineSpec
from paravt_infer.errors import BackendError, SettingsError
from tests.fixtures.benchmark_questions import items
from tests.fixtures.scripted import ScriptedBackend


class Guess(ScriptedBackend):
    """Answers each question with a letter that its words decide."""

    async def generate(self, request: Request) -> Generation:
        text = request.messages[-1].text
        self.turns.append("[3, 9]" if "[start" in text else "ABCD"[zlib.crc32(text.encode()) % 4])
        return await super().generate(request)


@pytest.fixture
def run(tiny: Path, offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EvaluationOutcome]:
    """Evaluates with guesses into `tmp_path`/`name`."""
    monkeypatch.setattr(EngineSpec, "open_backend", lambda spec, say: Guess(tiny, []))
    from lmms_tasks.adapter import ParavtModel

    def evaluated(name: str, tasks: list[str], *, values: dict[str, Any] | None = None, **more: Any) -> Any:
        model = ParavtModel(protocol="direct", frames=2, out=str(tmp_path / name), **(values or {}))
        return evaluate(model, tasks, include=offline, **more)

    return evaluated


def results(folder: Path) -> dict[str, Any]:
    """results.json, read as strictly as JSON is."""

    def refuse(word: str) -> None:
        raise AssertionError(f"{word} is no JSON")

    found: dict[str, Any] = json.loads((folder / RESULTS).read_text(), parse_constant=refuse)
    return found


def test_the_group_in_process_on_a_real_model(tiny: Path, offline: Path, tmp_path: Path) -> None:
    from lmms_tasks.adapter import ParavtModel

    model = ParavtModel(
        model=str(tiny), backend="transformers", protocol="direct", frames=2, turn_regex=["<answer>[ABCD]</answer>"],
        out=str(tmp_path),
    )  # fmt: skip
    outcome = evaluate(model, ["paravt_table1"], include=offline, limit=1)
    assert list(outcome.summaries) == list(BENCHMARKS) and {*outcome.lmms_eval} >= {*BENCHMARKS}
    assert outcome.failed == 0
    assert [row.item.task for row in model.results] == list(BENCHMARKS)
    assert {row.rollout.answer for row in model.results} <= {*"ABCD"}
    assert sorted(file.stem for file in tmp_path.glob("*.parquet")) == sorted(BENCHMARKS)


def test_lmms_evals_figures_are_this_projects(run: Callable[..., EvaluationOutcome], tmp_path: Path) -> None:
    outcome = run("out", ["paravt_mlvu", "paravt_charades_sta"])
    for task, summary in outcome.summaries.items():
        figures = outcome.lmms_eval[task]
        assert {name: figures[f"{name},none"] for name in summary.metrics} == pytest.approx(summary.metrics)
        assert (figures["failed,none"], figures["no_answer,none"]) == (0, 0)
    right = [row.rollout.answer == row.item.gold for row in load_results(tmp_path / "out" / "paravt_mlvu.parquet")]
    assert outcome.summaries["paravt_mlvu"].metrics["accuracy"] == pytest.approx(100 * sum(right) / 15)
    assert 0 < outcome.summaries["paravt_charades_sta"].headline.value < 100
    kept = results(tmp_path / "out")
    assert kept["summaries"]["paravt_mlvu"]["count"] == 15 and kept["tasks"] == ["paravt_mlvu", "paravt_charades_sta"]
    assert kept["usage"]["by_task"]["paravt_mlvu"]["output_tokens"] > 0


def test_a_second_run_asks_nothing_and_comes_to_the_same(run: Callable[..., EvaluationOutcome], tmp_path: Path) -> None:
    first = run("out", ["paravt_mlvu"])
    journal = (tmp_path / "out" / JOURNAL).read_bytes()
    assert run("out", ["paravt_mlvu"]) == first
    assert (tmp_path / "out" / JOURNAL).read_bytes() == journal


def test_failures_are_counted_beside_the_scores_and_asked_again(
    run: Callable[..., EvaluationOutcome], seven: Path, tmp_path: Path
) -> None:
    broken = run("out", ["paravt_lvbench"], limit=2, values={"videos": f"lvbench:{tmp_path}"})
    [summary] = broken.summaries.values()
    assert (broken.failed, summary.failed, summary.answered) == (2, 2, 0)
    assert broken.lmms_eval["paravt_lvbench"]["failed,none"] == 2
    kept = results(tmp_path / "out")
    assert kept["summaries"]["paravt_lvbench"]["headline"]["value"] == "NaN"  # nothing was scored, as 0 or otherwise
    (tmp_path / "world-1.mp4").symlink_to(seven / "lvbench" / "world-1.mp4")
    mended = run("out", ["paravt_lvbench"], limit=2, values={"videos": f"lvbench:{tmp_path}"})
    assert mended.failed == 0 and mended.summaries["paravt_lvbench"].answered == 2


@pytest.mark.parametrize(
    ("tasks", "more", "complaint"),
    [
        ([], {}, "no task was named"),
        (
            ["paravt_mlvuu"],
            {},
            "unknown task 'paravt_mlvuu'; did you mean 'paravt_mlvu'?; `lmms-eval --tasks list` lists",
        ),
        (["paravt_mlvu"], {"shard": Shard(index=15, count=16)}, "--shard 16/16: paravt_mlvu has 15 documents"),
    ],
    ids=["none", "unknown", "shard"],
)
def test_what_cannot_be_run_is_one_line(
    run: Callable[..., EvaluationOutcome], tasks: list[str], more: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(SettingsError) as error:
        run("out", tasks, **more)
    assert str(error.value).startswith(complaint) and "\n" not in str(error.value)


def test_a_data_set_that_cannot_be_had_is_one_line(
    offline: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.sleep", lambda seconds: None)  # lmms-eval asks the hub five times, with pauses
    text = (offline / "paravt_mlvu.yaml").read_text().replace("dataset_path: parquet", "dataset_path: no/such")
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "paravt_mlvu.yaml").write_text(text)
    from lmms_tasks.evaluate import load_tasks

    with pytest.raises(SettingsError, match="tasks paravt_mlvu: could not load the data set") as error:
        load_tasks(["paravt_mlvu"], include=tmp_path / "tasks")
    assert "\n" not in str(error.value)


def test_a_server_that_is_down_stops_the_run_with_its_reason(offline: Path, tmp_path: Path) -> None:
    from lmms_tasks.adapter import ParavtModel

    with pytest.raises(BackendError, match=r"http://127\.0\.0\.1:9 cannot be reached"):
        evaluate(ParavtModel(server="http://127.0.0.1:9", out=str(tmp_path)), ["paravt_mlvu"], include=offline, limit=1)


def test_items_are_those_of_the_documents(offline: Path, seven: Path) -> None:
    found = load_items(["paravt_mlvu", "paravt_lvbench"], VideoRoots(folders={"": seven}), include=offline, limit=2)
    wanted = items(seven, "paravt_mlvu", "paravt_lvbench")
    assert found == [*wanted[:2], *wanted[15:17]]


# Shards.


@pytest.mark.parametrize(("text", "number", "of"), [("1/1", 0, 1), ("1/4", 0, 4), ("4/4", 3, 4), ("02/10", 1, 10)])
def test_a_shard_is_written_from_one_on(text: str, number: int, of: int) -> None:
    assert Shard.parse(text) == Shard(index=number, count=of)
    assert Shard.parse(str(Shard.parse(text))) == Shard(index=number, count=of)


@pytest.mark.parametrize("text", ["", "1", "0/4", "5/4", "a/b", "1/0", "-1/4", "1/4/2", "1.0/2"])
def test_what_is_no_shard_is_told_how_to_write_one(text: str) -> None:
    with pytest.raises(SettingsError, match="write I/N, as in 1/4 for the first of four"):
        Shard.parse(text)


def test_shards_merged_are_the_whole_run(run: Callable[..., EvaluationOutcome], tmp_path: Path) -> None:
    tasks = ["paravt_mlvu", "paravt_charades_sta"]  # both number their own rows
    whole = run("whole", tasks)
    parts = [run(f"part{n}", tasks, shard=Shard(index=n, count=3)) for n in range(3)]
    assert [[one.count for one in part.summaries.values()] for part in parts] == [[5, 6], [5, 5], [5, 5]]
    merged = merge([tmp_path / f"part{n}" for n in (2, 0, 1)], tmp_path / "merged")
    assert {task: one.metrics for task, one in merged.items()} == {
        task: pytest.approx(one.metrics) for task, one in whole.summaries.items()
    }
    answers = [
        sorted((row.item.task, row.item.question.id, row.rollout.answer_text) for row in load_results(tmp_path / name))
        for name in ("whole", "merged")
    ]
    assert answers[0] == answers[1] and len(answers[0]) == 31
    assert results(tmp_path / "merged")["merged"] == [str(tmp_path / f"part{n}") for n in (2, 0, 1)]


def test_a_shard_that_is_missing_is_named(run: Callable[..., EvaluationOutcome], tmp_path: Path) -> None:
    for number in (0, 2):
        run(f"part{number}", ["paravt_mlvu"], shard=Shard(index=number, count=3))
    with pytest.raises(SettingsError, match="shard 2/3 is missing; give the folders of all 3 shards"):
        merge([tmp_path / "part0", tmp_path / "part2"], tmp_path / "merged")
    with pytest.raises(SettingsError, match="part1: no results found"):  # one that was stopped on its way
        merge([tmp_path / f"part{n}" for n in range(3)], tmp_path / "merged")


def test_what_was_run_otherwise_is_not_merged(run: Callable[..., EvaluationOutcome], tmp_path: Path) -> None:
    run("one", ["paravt_mlvu"], limit=1)
    run("two", ["paravt_mlvu"], limit=1, values={"seed": 3})
    with pytest.raises(SettingsError, match="have different settings or models; merge shards of one run"):
        merge([tmp_path / "one", tmp_path / "two"], tmp_path / "merged")


def test_two_answers_to_one_question_are_not_merged_but_a_failure_gives_way(
    run: Callable[..., EvaluationOutcome], tmp_path: Path
) -> None:
    run("one", ["paravt_mlvu"], limit=2)
    first, second = load_results(tmp_path / "one")
    failed = second.model_copy(update={"rollout": second.rollout.model_copy(update={"status": "failed"})})
    save_results([failed], tmp_path / "two" / "paravt_mlvu.parquet")
    for order in (("one", "two"), ("two", "one")):
        merge([tmp_path / name for name in order], tmp_path / "merged")
        assert sorted(load_results(tmp_path / "merged"), key=lambda row: row.item.question.id) == [first, second]
    other = first.model_copy(update={"rollout": first.rollout.model_copy(update={"answer_text": "something else"})})
    save_results([other], tmp_path / "three" / "paravt_mlvu.parquet")
    with pytest.raises(SettingsError, match=r"three: paravt_mlvu, question world-1#0 has another answer in .*one"):
        merge([tmp_path / "one", tmp_path / "three"], tmp_path / "merged")


# lmms-eval's own command.


def test_the_console_command_runs_the_group_on_a_server(server: SGLangServer, offline: Path, tmp_path: Path) -> None:
    values = f"server={server.url},frames=2,window_frames=2,max_new_tokens=8,concurrency=4,out={tmp_path / 'ours'}"
    command = [
        *(str(Path(sys.executable).with_name("lmms-eval")), "--model", "paravt", "--model_args", values),
        *("--tasks", "paravt_table1", "--include_path", str(offline), "--limit", "1"),
        *("--output_path", str(tmp_path / "theirs"), "--log_samples"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ, cwd=tmp_path, timeout=300)
    written = list((tmp_path / "theirs").rglob("*_results.json"))  # its exit code is 0 whatever happens
    assert len(written) == 1, done.stderr
    found = json.loads(written[0].read_text())
    assert set(found["results"]) >= {"paravt_table1", *BENCHMARKS}

    rows = list(load_results(tmp_path / "ours"))
    assert [row.item.task for row in rows] == sorted(BENCHMARKS) and not any(row.failed for row in rows)
    assert {row.rollout.backend.name for row in rows} == {"sglang"}
    for row in rows:
        figures = found["results"][row.item.task]
        assert figures["failed,none"] == 0
        assert figures["no_answer,none"] == (row.rollout.status == "no_answer")
        used = found["usage"]["by_task"][row.item.task]
        spent = row.rollout.usage
        assert (used["input_tokens"], used["output_tokens"]) == (spent.prompt_tokens, spent.output_tokens)
    assert found["throughput"]["total_gen_tokens"] == sum(row.rollout.usage.output_tokens for row in rows)
    samples = list((tmp_path / "theirs").rglob("*_samples_*.jsonl"))
    assert len(samples) == len(BENCHMARKS)
