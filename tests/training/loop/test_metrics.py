"""What a run writes: one line a step, once, however often it was stopped; and plain lines without a terminal."""

import json
from pathlib import Path

import pytest

from paravt_training.loop import metrics
from paravt_training.loop.metrics import MetricsLog, ProgressDisplay


def test_a_step_that_is_done_again_is_written_once(tmp_path: Path) -> None:
    with MetricsLog(tmp_path) as first:
        for step in (1, 2, 3):
            first.write(step, {"loss": float(step), "phase": "a"})
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('{"step": 4, "lo')  # it was killed here
    with MetricsLog(tmp_path, step=2) as again:
        again.write(3, {"loss": 30.0})
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["loss"]) for line in lines] == [(1, 1.0), (2, 2.0), (3, 30.0)]


def test_without_a_terminal_a_line_now_and_then(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr(metrics.time, "monotonic", lambda: clock[0])
    with ProgressDisplay(steps=100) as display:
        for step in range(1, 31):
            clock[0] += 1.0
            display.update(step, 3000, f"mix step {step}/100  loss 0.5000")
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3  # the first step's, and one for each ten seconds
    assert lines[-1] == "mix step 21/100  loss 0.5000  3,000 tokens/s  1:19 left"
