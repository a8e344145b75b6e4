"""What the tests of sweeps share: the generated benchmarks, and their questions without lmms-eval."""

import os
from pathlib import Path

import pytest

from lmms_tasks.benchmarks import ALL_VIDEOS, BENCHMARKS
from training.world.seven import write_seven

for name in ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):  # before lmms-eval is imported
    os.environ.setdefault(name, "1")


@pytest.fixture(scope="session")
def seven(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rows and videos of all seven tasks, and their task files in `tasks`."""
    from lmms_tasks.fixture import write_tasks

    folder = write_seven(tmp_path_factory.mktemp("seven"))
    write_tasks(folder)
    return folder


@pytest.fixture
def offline(seven: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The environment of an evaluation on the generated benchmarks; returns their include path."""
    for name in ("HF_HOME", *(one.variable for one in BENCHMARKS.values())):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv(ALL_VIDEOS, str(seven))
    monkeypatch.setenv("LMMS_EVAL_DATASETS_CACHE", str(tmp_path / "cache"))
    return seven / "tasks"
