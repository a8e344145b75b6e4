"""`paravt merge`: shards of a sweep that ran apart, as one folder, scored as a whole."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from lmms_tasks.results import load_results, save_results
from tests.fixtures.results import choice_result


def test_shards_that_ran_apart_are_scored_as_a_whole(
    command: Callable[..., Any], tiny: Path, offline: Path, tmp_path: Path
) -> None:
    for number in (1, 2):
        done = command(
            *("eval", "--tasks", "paravt_mlvu", "--shard", f"{number}/2", "--out", tmp_path / str(number)),
            *("--fixture", tmp_path / "fixture", "--model", tiny, "--backend", "transformers"),
            *("--protocol", "direct", "--frames", "2", "--set", 'turn_regex=["<answer>[ABCD]</answer>"]'),
        )
        assert done.code == 0, done.err
    assert [len(list(load_results(tmp_path / str(number)))) for number in (1, 2)] == [8, 7]

    alone = command("merge", tmp_path / "2", "--out", tmp_path / "whole")
    assert alone.code == 1 and alone.err == "paravt: shard 1/2 is missing; give the folders of all 2 shards\n"

    done = command("merge", tmp_path / "1", tmp_path / "2", "--out", tmp_path / "whole")
    assert done.code == 0, done.err
    [mlvu, _] = [line.split() for line in done.out.splitlines() if line.lstrip().startswith("paravt_mlvu")]
    merged = list(load_results(tmp_path / "whole"))
    right = {}
    for one in merged:
        right.setdefault(one.item.groups["task_type"], []).append(one.rollout.answer == one.item.gold)
    macro = 100 * sum(sum(values) / len(values) for values in right.values()) / 7
    assert mlvu == ["paravt_mlvu", "macro", f"{macro:.1f}", "15", "0", "0"]
    assert len({one.item.question.id for one in merged}) == 15


def test_failures_fail_the_command_and_are_not_scored(command: Callable[..., Any], tmp_path: Path) -> None:
    save_results([choice_result("B", "B", id="1"), choice_result(None, "B", id="2")], tmp_path / "one" / "rows.parquet")
    save_results([choice_result("B", "B", id="3")], tmp_path / "two" / "rows.parquet")
    done = command("merge", tmp_path / "one", tmp_path / "two", "--out", tmp_path / "whole")
    assert done.code == 1
    assert done.err == "paravt: 1 episodes failed and are not scored; run their shards again\n"
    [task, _] = [line.split() for line in done.out.splitlines() if line.lstrip().startswith("paravt_videomme")]
    assert task == ["paravt_videomme", "accuracy", "100.0", "3", "0", "1"]


def test_a_folder_without_results_is_one_line(command: Callable[..., Any], tmp_path: Path) -> None:
    done = command("merge", tmp_path / "gone", "--out", tmp_path / "whole")
    assert (done.code, done.out) == (1, "")
    assert done.err == f"paravt: {tmp_path / 'gone'}: no results found; give a folder that `paravt eval` wrote\n"
