"""`paravt eval`: output, files and exit codes."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lmms_tasks.results import load_results
from lmms_tasks.sweep import JOURNAL


@pytest.fixture
def evaluate(command: Callable[..., Any], tiny: Path, offline: Path, tmp_path: Path) -> Callable[..., Any]:
    """`paravt eval` of the tiny model on the generated benchmarks, three questions a task, into `out`."""
    fixed = (
        *("--out", tmp_path / "out", "--limit", "3", "--fixture", tmp_path / "fixture"),
        *("--model", tiny, "--backend", "transformers", "--protocol", "direct", "--frames", "2"),
        *("--set", 'turn_regex=["<answer>[ABCD]</answer>"]'),
    )
    return lambda tasks, *arguments: command("eval", "--tasks", tasks, *fixed, *arguments)


def test_the_table_alone_is_on_stdout_and_all_else_is_in_the_folder(
    evaluate: Callable[..., Any], tmp_path: Path
) -> None:
    done = evaluate("paravt_mlvu,paravt_videomme_w_subtitle")
    assert done.code == 0, done.err
    lines = [line.split() for line in done.out.splitlines() if set(line) - {*" ─"}]
    assert lines[0] == ["task", "measure", "%", "questions", "no", "answer", "failed"]
    rows = list(load_results(tmp_path / "out"))
    tokens = [f"{sum(row.rollout.usage.output_tokens for row in rows[n : n + 3]) / 3:.0f}" for n in (0, 3)]
    assert [line[:2] + line[3:] for line in lines if line[0].startswith("paravt_")][:2] == [
        ["paravt_mlvu", "macro", "3", "0", "0"],
        ["paravt_videomme_w_subtitle", "accuracy", "3", "0", "0"],
    ]
    assert [[line[0], *line[2:4]] for line in lines if line[0].startswith("paravt_")][2:] == [  # what they cost
        ["paravt_mlvu", tokens[0], "0.00"],
        ["paravt_videomme_w_subtitle", tokens[1], "0.00"],
    ]
    assert ["task_type", "needle"] in [line[:2] for line in lines]
    assert f"results, rollouts and settings are in {tmp_path / 'out'}" in done.err
    assert sorted(file.name for file in (tmp_path / "out").iterdir()) == [
        *("journal.jsonl", "paravt_mlvu.parquet", "paravt_videomme_w_subtitle.parquet", "results.json", "run.json"),
    ]
    assert len(rows) == 6
    noted = json.loads((tmp_path / "out" / "run.json").read_text())
    assert noted["settings"]["frames"] == 2 and noted["protocol"]["name"] == "direct"


def test_a_failed_episode_fails_the_command_and_a_second_run_asks_it_alone(
    evaluate: Callable[..., Any], seven: Path, tmp_path: Path
) -> None:
    (tmp_path / "videos").mkdir()
    arguments = ("paravt_mlvu,paravt_lvbench", "--videos", f"mlvu:{tmp_path / 'videos'}")
    done = evaluate(*arguments)
    assert done.code == 1
    [mlvu] = [line.split() for line in done.out.splitlines() if line.lstrip().startswith("paravt_mlvu")]
    assert mlvu == ["paravt_mlvu", "macro", "-", "3", "0", "3"]  # no score of nothing
    *_, last = done.err.strip().splitlines()
    assert last == "paravt: 3 episodes failed and are not scored; running this again retries only them"
    assert f"failed: world-1#0: {tmp_path / 'videos' / 'world-1.mp4'}: no such file" in done.err

    for video in (seven / "mlvu").iterdir():
        (tmp_path / "videos" / video.name).symlink_to(video)
    again = evaluate(*arguments)
    assert again.code == 0, again.err
    assert f"3 of 6 are in {tmp_path / 'out'} already" in again.err
    assert (tmp_path / "out" / JOURNAL).read_bytes().count(b"\n") == 9


def test_a_model_that_is_not_there_is_one_line(evaluate: Callable[..., Any]) -> None:
    done = evaluate("paravt_mlvu", "--model", "/gone")
    assert (done.code, done.out) == (1, "") and done.err.splitlines()[-1].startswith("paravt: /gone: no such model")


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ([","], "no task was named"),
        (["paravt_mlvu", "--shard", "3/2"], "--shard 3/2: write I/N, as in 1/4 for the first of four"),
        (["paravt_mlvu", "--set", "framez=3"], "unknown setting 'framez'; did you mean 'frames'?"),
        (["paravt_mlvu", "--dispatch", "all"], "setting dispatch: "),
        (["paravt_mlvu", "--concurrency", "0"], "concurrency must be a positive integer, not 0"),
        (["paravt_mlvu", "--videos", "/gone"], "videos '/gone': no such folder"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(
    command: Callable[..., Any], offline: Path, arguments: list[str], complaint: str
) -> None:
    done = command("eval", "--tasks", *arguments)
    assert (done.code, done.out) == (1, "")
    *_, last = done.err.strip().splitlines()
    assert last.startswith(f"paravt: {complaint}") and "Traceback" not in done.err
