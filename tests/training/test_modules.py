"""The modules that torchrun starts: under their installed names, and from a checkout as `training`."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.processes import ROOT, environment


@pytest.mark.parametrize("name", ["sft", "grpo"])
@pytest.mark.parametrize("package", ["training", "paravt_training"])
def test_a_training_module_runs_from_a_checkout_and_installed(package: str, name: str, tmp_path: Path) -> None:
    folder = ROOT if package == "training" else tmp_path
    command = [sys.executable, "-m", f"{package}.{name}", "--help"]
    done = subprocess.run(command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"usage: paravt_training.{name} ") and "--recipe" in done.stdout
