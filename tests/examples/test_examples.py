"""Every script of `examples/` runs as a user runs it, offline, and prints what it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(script: str, *arguments: str | Path) -> str:
    """What a script prints to stdout; its failure is the test's."""
    command = [sys.executable, str(ROOT / "examples" / script), *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def answered(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A folder in which ask_many.py has run, and what it printed."""
    folder = tmp_path_factory.mktemp("ask_many")
    return folder, run("ask_many.py", folder)


def test_ask_prints_the_evidence_and_the_right_answer() -> None:
    printed = run("ask.py")
    assert "answer: C (expected C)" in printed
    assert len(re.findall(r"s \(ok\): a ", printed)) == 2


def test_ask_many_resumes_with_the_same_episodes(answered: tuple[Path, str]) -> None:
    folder, first = answered
    second = run("ask_many.py", folder)
    assert len(re.findall(r"^sample-\d: [A-D] ", first, re.MULTILINE)) == 3
    assert sorted(second.splitlines()) == sorted(first.splitlines())  # the episodes' ids are random


def test_a_custom_tool_is_called_and_its_window_is_inspected() -> None:
    printed = run("custom_tool.py")
    assert printed == "watch_ending [40.0, 48.0] ok: a blue star from 40.0 to 42.0 s.\nanswer: blue star\n"


def test_a_custom_protocol_speaks_and_reads_its_own_format() -> None:
    printed = run("custom_protocol.py")
    letter = re.search(r"^Answer: ([A-D])$", printed, re.MULTILINE)
    assert letter is not None
    assert f"answer: {letter[1]}, read from: last_line" in printed
    assert "protocol: last_line " in printed


def test_stored_rollouts_are_scored_without_a_model(answered: tuple[Path, str]) -> None:
    printed = run("score_rollouts.py", answered[0] / "results.parquet")
    assert "sample-0, full: 2.80 (accuracy 1.00, format 1.00, tool 0.80)" in printed
    assert "sample-0, without R_tool: 2.00 (accuracy 1.00, format 1.00, tool 0.80)" in printed
    assert len(re.findall(r"full: 2\.80", printed)) == 3


def test_every_script_has_a_test() -> None:
    tested = set(re.findall(r'run\("(\w+\.py)"', Path(__file__).read_text()))
    assert tested == {script.name for script in (ROOT / "examples").glob("*.py")}
