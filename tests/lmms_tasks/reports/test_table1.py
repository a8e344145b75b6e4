"""Our results beside the paper's Table 1: the published numbers as printed, and differences worked out by hand."""

import io
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from lmms_tasks.reports.published import MODELS, NOTES, PARAVT, PUBLISHED, TABLE1_TITLES
from lmms_tasks.reports.table1 import compare_to_paper
from lmms_tasks.reports.tables import table1_table
from lmms_tasks.results import index_by_question, save_results
from lmms_tasks.tasks import BENCHMARKS
from paravt_infer.errors import SettingsError
from tests.fixtures.arms import EXACT, arm_result

MLVU, VIDEOMME, CHARADES = "paravt_mlvu", "paravt_videomme", "paravt_charades_sta"


def test_the_published_numbers_are_the_papers() -> None:
    assert list(PUBLISHED[PARAVT].values()) == [62.1, 69.4, 60.4, 39.8, 65.0, 68.6, 50.1]
    assert len(PUBLISHED) == 15 and list(TABLE1_TITLES) == list(BENCHMARKS)
    assert all(len(one.table1.numbers) == len(MODELS) for one in BENCHMARKS.values() if one.table1)
    missing = {(model, task) for model, numbers in PUBLISHED.items() for task in TABLE1_TITLES if task not in numbers}
    assert missing == NOTES.keys()


def test_the_papers_own_sums_come_out() -> None:
    """Section 4.2: ParaVT against Qwen3-VL-8B, relative gains in percent; it leads the open models on six of seven."""
    ours, base = PUBLISHED[PARAVT], PUBLISHED["Qwen3-VL-8B"]
    gains = {task: 100 * (ours[task] / base[task] - 1) for task in TABLE1_TITLES}
    named = ("paravt_longvideobench", "paravt_lvbench", MLVU)
    assert [round(gains[task], 1) for task in named] == [15.7, 20.2, 11.5]
    assert sum(gains.values()) / 7 == pytest.approx(7.9, abs=0.05)
    rivals = [PUBLISHED[model] for model, kind in MODELS.items() if kind != "proprietary" and model != PARAVT]
    led = [task for task in TABLE1_TITLES if all(ours[task] > numbers.get(task, 0) for numbers in rivals)]
    assert len(led) == 6 and MLVU not in led


def test_ours_less_the_papers_with_the_interval_of_ours() -> None:
    rows = [arm_result(str(n), "A" if n < 75 else "B", task=VIDEOMME) for n in range(100)]
    [line] = compare_to_paper({VIDEOMME: rows}, EXACT)
    assert (line.metric, line.count, line.size, line.ours) == ("accuracy", 100, 2700, 75.0)
    assert line.difference == pytest.approx(75.0 - 62.1)
    assert line.interval == pytest.approx((66.3, 83.1), abs=1.0)  # 1.96 * sqrt(0.75 * 0.25 / 100) = 8.5
    assert line.interval and line.difference_interval == pytest.approx([end - 62.1 for end in line.interval])
    assert line.partial


def test_mlvu_is_the_mean_over_task_types_and_its_interval_too() -> None:
    rows = [arm_result(str(n), task=MLVU, groups={"task_type": "plotQA"}) for n in range(9)]
    rows.append(arm_result("9", "B", task=MLVU, groups={"task_type": "count"}))
    [line] = compare_to_paper({MLVU: rows}, EXACT)
    assert (line.metric, line.ours, line.interval) == ("macro", 50.0, (50.0, 50.0))


def test_charades_is_mean_iou() -> None:
    rows = [arm_result("1", "0.25", task=CHARADES), arm_result("2", "0.75", task=CHARADES)]
    [line] = compare_to_paper({CHARADES: rows}, EXACT)
    assert (line.metric, line.ours, line.interval) == ("miou", 50.0, (25.0, 75.0))


def test_failed_episodes_are_counted_and_not_scored() -> None:
    rows = [arm_result("1", task=VIDEOMME), arm_result("2", task=VIDEOMME, status="failed")]
    [line] = compare_to_paper({VIDEOMME: rows}, EXACT)
    assert (line.count, line.failed, line.ours, line.interval) == (1, 1, 100.0, None)
    [line] = compare_to_paper({VIDEOMME: rows[1:]}, EXACT)
    assert (line.count, line.ours, line.difference) == (0, None, None)
    assert "1 failed" in _printed([line], all_models=True)


def test_lines_are_in_the_tables_order_and_other_tasks_are_passed_over() -> None:
    rows = {
        task: [arm_result("1", task=task), arm_result("2", task=task)] for task in ("sample_world", CHARADES, VIDEOMME)
    }
    assert [line.task for line in compare_to_paper(rows, EXACT)] == [VIDEOMME, CHARADES]


def test_what_is_printed_says_how_many_of_how_many() -> None:
    rows = [arm_result(str(n), task=VIDEOMME) for n in range(4)]
    printed = _printed(compare_to_paper({VIDEOMME: rows}, EXACT))
    assert "4 of 2,700" in printed and "fewer questions than the split has" in printed and "arXiv 2605.20342" in printed
    assert "GPT-4o" not in printed


def test_all_sets_ours_against_every_published_model() -> None:
    rows = {
        task: [arm_result("1", task=task), arm_result("2", "B", task=task)] for task in (VIDEOMME, "paravt_lvbench")
    }
    printed = _printed(compare_to_paper(rows, EXACT), all_models=True)
    assert "59.9 -9.9" in printed  # Qwen3-VL-8B
    assert "Video-Thinker-7B, LVBench: withheld" in printed


def test_a_question_that_is_there_twice_is_refused() -> None:
    with pytest.raises(SettingsError, match=r"^here: question '1' of t occurs twice"):
        index_by_question([arm_result("1"), arm_result("1")], where="here")


@pytest.mark.parametrize(
    ("folder", "complaint"),
    [("nowhere", "nowhere: no results found"), ("world", "world: holds no task of Table 1")],
)
def test_a_folder_without_a_result_of_table_1_is_one_line(tmp_path: Path, folder: str, complaint: str) -> None:
    save_results([arm_result("1", task="sample_world")], tmp_path / "world" / "rows.parquet")
    done = _command(str(tmp_path / folder))
    assert done.returncode == 1 and done.stdout == ""
    assert complaint in done.stderr and "Traceback" not in done.stderr


def test_the_command_prints_a_table_or_json_for_each_folder(tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_results(
            [arm_result("1", task=VIDEOMME), arm_result("2", task=VIDEOMME)], tmp_path / name / f"{VIDEOMME}.parquet"
        )
    folders = [str(tmp_path / name) for name in ("one", "two")]
    done = _command(*folders)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("VideoMME w/o sub") == 2 and "2 of 2,700" in done.stdout
    found = json.loads(_command(*folders, "--json").stdout)
    assert list(found["results"]) == folders and found["scorer"] == "paravt"
    [line] = found["results"][folders[0]]
    assert (line["ours"], line["published"]["ParaVT-8B"]) == (100.0, 62.1)


def _printed(lines: list, all_models: bool = False) -> str:
    console = Console(width=160, file=io.StringIO())
    console.print(table1_table(lines, title="results", all_models=all_models))
    return console.file.getvalue()  # type: ignore[attr-defined]


def _command(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The command in a process of its own, wherever the main program has it."""
    code = (
        "import sys, typer, paravt_cli.table1\nfrom paravt_infer.errors import ParavtError\n"
        "app = typer.Typer(pretty_exceptions_enable=False)\napp.command()(paravt_cli.table1.table1)\n"
        "try: app()\nexcept ParavtError as error: sys.exit(f'paravt: {error}')\n"
    )
    variables = {**os.environ, "TABLE1_TITLES": "140", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, env=variables, timeout=120
    )
