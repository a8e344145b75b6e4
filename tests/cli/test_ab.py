"""`paravt ab`: the same questions under two settings, in one folder that can be read and resumed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from lmms_tasks.results import load_results
from lmms_tasks.sweep import JOURNAL


@pytest.fixture
def compare(command: Callable[..., Any], tiny: Path, offline: Path, tmp_path: Path) -> Callable[..., Any]:
    """`paravt ab` of the tiny model: one call and an answer, evidence as text or as frames."""
    from tests.fixtures.responses import answer_form, calls_form

    fixed = (
        *("--a", "dispatch=parallel,evidence=text", "--b", "dispatch=sequential,evidence=frames"),
        *("--model", tiny, "--backend", "transformers", "--set", "frames=2", "--set", "window_frames=2"),
        *("--set", "summary_tokens=4", "--set", "turn_regex=" + json.dumps([calls_form((2, 5)), answer_form()])),
        *("--out", tmp_path / "out"),
    )
    return lambda tasks, *arguments: command("ab", "--tasks", tasks, *fixed, *arguments)


def test_both_arms_answer_the_same_questions_and_a_second_run_asks_none(
    compare: Callable[..., Any], tmp_path: Path
) -> None:
    arguments = ("paravt_mlvu,paravt_lvbench", "--fixture", tmp_path / "fixture", "--limit", "2")
    done = compare(*arguments)
    assert done.code == 0, done.err
    assert "4 questions that both arms answered" in done.out and "parallel, text" in done.out
    out = tmp_path / "out"
    assert sorted(file.name for file in out.iterdir()) == [
        *("a", "ab.html", "b", "comparison.json", "pairs.parquet", "run.json"),
    ]
    a, b = (list(load_results(out / arm)) for arm in "ab")
    assert [row.item for row in a] == [row.item for row in b] and len(a) == 4
    assert {row.rollout.settings.evidence for row in a} == {"text"} != {row.rollout.settings.evidence for row in b}
    assert all(row.rollout.evidence[0].sub_agent is not None for row in a)
    assert all(row.rollout.usage.main_visual_tokens == 2 * row.rollout.overview[0].tokens for row in a)
    assert all(row.rollout.usage.main_visual_tokens > 2 * row.rollout.overview[0].tokens for row in b)
    assert pq.read_table(out / "pairs.parquet").num_rows == 4
    assert json.loads((out / "comparison.json").read_text())["overall"]["pairs"] == 4
    page = (out / "ab.html").read_text()
    assert "paravt_mlvu,paravt_lvbench: parallel, text against sequential, frames" in page
    noted = json.loads((out / "run.json").read_text())
    assert noted["arms"]["a"]["dispatch"] == "parallel" and noted["arms"]["b"]["evidence"] == "frames"

    journals = [(out / arm / JOURNAL).read_bytes() for arm in "ab"]
    again = compare(*arguments)
    assert again.code == 0 and again.out == done.out
    assert [(out / arm / JOURNAL).read_bytes() for arm in "ab"] == journals
    assert "arm a: 4 of 4 are in" in again.err and "arm b: 4 of 4 are in" in again.err


def test_a_failed_episode_is_left_out_and_fails_the_command(
    compare: Callable[..., Any], seven: Path, tmp_path: Path
) -> None:
    (tmp_path / "videos").mkdir()
    (tmp_path / "videos" / "world-1.mp4").symlink_to(seven / "mlvu" / "world-1.mp4")
    arguments = ("--fixture", tmp_path / "fixture", "--videos", f"mlvu:{tmp_path / 'videos'}", "--limit", "6")
    done = compare("paravt_mlvu", *arguments)
    assert done.code == 1
    assert "5 questions that both arms answered" in done.out
    *_, last = done.err.strip().splitlines()
    assert last == "paravt: 2 episodes failed and are not compared; running this again retries only them"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["paravt_mlvu", "--a", "dispatch"], "--a dispatch: write KEY=VALUE"),
        (["paravt_mlvu", "--b", "dispatch=all"], "setting dispatch: "),
        (["paravt_mlvu", "--scorer", "vibes"], "unknown scorer 'vibes'"),
        ([","], "no task was named"),
    ],
    ids=lambda value: None if isinstance(value, str) else " ".join(value),
)
def test_a_mistake_is_one_line_and_a_non_zero_exit(
    compare: Callable[..., Any], arguments: list[str], complaint: str
) -> None:
    done = compare(*arguments)
    assert (done.code, done.out) == (1, "")
    *_, last = done.err.strip().splitlines()
    assert last.startswith(f"paravt: {complaint}") and "Traceback" not in done.err


@pytest.mark.parametrize("given", [True, False])
def test_the_sample_world_is_kept_in_the_videos_folder_or_next_to_the_results(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: bool
) -> None:
    folders = []
    monkeypatch.setattr("paravt_cli.benchmarks.sample_world_items", lambda folder: folders.append(folder) or [])
    videos = ("--videos", tmp_path / "world") if given else ()
    done = command("ab", "--tasks", "sample_world", "--a", "", "--b", "", "--out", tmp_path / "out", *videos)
    assert done.code == 1 and done.err.startswith("paravt: no task was named")
    assert folders == [tmp_path / "world" if given else tmp_path / "out" / "videos"]
