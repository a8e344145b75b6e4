"""What a person watching a GRPO run is shown, and what must not pass unseen."""

import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from paravt_training.grpo.live import ROWS, GrpoMonitor
from paravt_training.loop.metrics import MetricsLog, ProgressDisplay

VALUES: dict[str, Any] = {
    "loss": 0.1, "tokens": 100, "learned_tokens": 50, "reward/total": 1.5, "f_tau": 0.5, "kappa": 0.25, "kl": 0.01,
    "drift/mean": 0.001, "drift/tokens": 50, "rollouts_failed": 0, "groups": 2, "groups_flat": 0, "idle": 0,
}  # fmt: skip


def said(folder: Path, capsys: pytest.CaptureFixture[str], *steps: dict[str, Any]) -> list[str]:
    """The lines on stderr after these steps; stdout stays empty."""
    with MetricsLog(folder) as log, ProgressDisplay(steps=100) as display:
        monitor = GrpoMonitor(log, display)
        for number, values in enumerate(steps, 1):
            monitor.log_step(number, VALUES | values)
    told = capsys.readouterr()
    assert told.out == ""
    return told.err.splitlines()


def test_a_step_is_one_line_and_one_record(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = said(tmp_path, capsys, {})
    assert line.startswith("step 1/100  reward 1.500  f_tau 0.500  kappa 0.25  KL 0.0100")
    (record,) = map(json.loads, (tmp_path / "metrics.jsonl").read_text().splitlines())
    assert record == {"step": 1} | VALUES


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({"rollouts_failed": 3, "failure": "v.mp4: no such file"}, "step 1: 3 rollouts failed and were dropped (v.mp4"),
        ({"idle": 1, "groups_flat": 2}, "warning: step 1: nothing to learn from (2 of 2 groups flat)"),
        (
            {"idle": 4, "groups_flat": 2},
            "warning: step 1: nothing to learn from (2 of 2 groups flat), 4 steps in a row",
        ),
        (
            {"drift/mean": 0.03},
            "warning: step 1: log-probabilities of learner and rollouts differ by 0.0300 on average",
        ),
        ({"held_out/accuracy": 0.625}, "held out at step 1: accuracy 0.625"),
    ],
)
def test_what_must_not_pass_unseen_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], values: dict[str, Any], told: str
) -> None:
    lines = said(tmp_path, capsys, values)
    assert len(lines) == 2 and lines[1].startswith(told)


@pytest.mark.parametrize(
    ("drifts", "alarms"),
    [
        ([0.03, 0.03, 0.05], [(1, "0.02")]),  # once, as long as it stays
        ([0.021, 0.021, 0.3, 0.3], [(1, "0.02"), (3, "0.02")]),  # again, when it has more than doubled
        ([0.004] * 5 + [0.011, 0.013], [(7, "0.012")]),  # three times its mean over the first five steps
        ([0.0001] * 5 + [0.0015, 0.0021], [(7, "0.002")]),  # in fp32 there is next to none of it
        ([0.019] * 5 + [0.0199, 0.021], [(7, "0.02")]),
    ],
)
def test_drift_is_alarmed_when_it_is_great_or_grows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], drifts: list[float], alarms: list[tuple[int, str]]
) -> None:
    lines = [line for line in said(tmp_path, capsys, *({"drift/mean": drift} for drift in drifts)) if "warning" in line]
    assert [(int(line.split()[2][:-1]), line.split("above ")[1].split()[0]) for line in lines] == alarms


def test_drift_of_stale_tokens_is_no_alarm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = said(tmp_path, capsys, {"drift/mean": 0.5, "drift/tokens": 0})
    assert not any("warning" in line for line in lines)


def test_the_measure_before_the_first_step_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with MetricsLog(tmp_path) as log:
        GrpoMonitor(log, ProgressDisplay(steps=5)).log_step(0, {"held_out/accuracy": 0.25})
    assert "held out before the first step: accuracy 0.250" in capsys.readouterr().err


def test_on_a_terminal_a_table_shows_each_figure_beside_its_mean_of_the_steps_before(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as log:
        monitor = GrpoMonitor(log, ProgressDisplay(steps=9))
        for step, kappa in enumerate((0.1, 0.3, 0.8), 1):
            monitor.log_step(step, VALUES | {"kappa": kappa})
    console = Console(width=120, record=True, file=(tmp_path / "shown").open("w"))
    console.print(monitor.table("step 3/9"))
    shown = " ".join(console.export_text().split())
    assert shown.startswith("step 3/9 reward total 1.500 (1.500)")
    assert "kappa 0.800 (0.200)" in shown and "closed - " in shown  # not measured yet
    assert all(name in shown for _, cells in ROWS for _, name in cells)
