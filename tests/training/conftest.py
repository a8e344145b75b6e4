"""What the training tests share: a mini model at its start, made once a run."""

from pathlib import Path

import pytest

from training.mini import build_mini
from training.recipe import MiniShape

SMALL = MiniShape(
    layers=3, hidden=48, intermediate=64, heads=2, kv_heads=1, vision_hidden=32, vision_intermediate=48, vision_heads=1
)


@pytest.fixture(scope="session")
def start(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mini model of few numbers, at its start."""
    return build_mini(tmp_path_factory.mktemp("start"), SMALL)
