"""Recipes small enough for a test, and runs of them in processes of their own."""

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
RECIPE: dict[str, Any] = {
    "name": "test",
    "model": {
        "mini": {
            "layers": 3, "hidden": 48, "intermediate": 64, "heads": 2, "kv_heads": 1,
            "vision_hidden": 32, "vision_intermediate": 48, "vision_heads": 1,
        },
    },
    "data": {"kind": "world"},
    "batch": 5,
    "row_tokens": 1500,
    "threads": 1,
    "loaders": 0,
    "phases": [
        {"name": "a", "steps": 3, "learning_rate": 1e-3, "mix": {"budgets": [4]}},
        {"name": "b", "steps": 3, "learning_rate": 1e-3, "vision_rate": 0.5, "batch": 1, "mix": {"budgets": [4]}},
    ],
    "checkpoints": {"every": 2, "keep": 2},
}  # fmt: skip


def write_recipe(folder: Path, **changes: Any) -> Path:
    """A recipe whose run is in `folder`/run."""
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump(RECIPE | {"out": str(folder / "run")} | changes))
    return path


def command(recipe: Path, *more: str) -> list[str]:
    return [sys.executable, "-m", "training.sft", "--recipe", str(recipe), *more]


def environment(**more: str) -> dict[str, str]:
    return os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"} | more


def run(recipe: Path, *more: str) -> None:
    """A whole run in one process."""
    done = subprocess.run(command(recipe, *more), env=environment(), capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr[-3000:]


def run_two(recipe: Path) -> None:
    """A whole run in two processes, as torchrun starts them."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    both = [
        subprocess.Popen(
            command(recipe),
            env=environment(
                RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="127.0.0.1", MASTER_PORT=port
            ),
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]  # fmt: skip
    try:
        for process in both:
            _, said = process.communicate(timeout=120)
            assert process.returncode == 0, said[-3000:]
    finally:
        for process in both:
            process.kill()


def metrics(recipe: Path) -> list[dict[str, Any]]:
    out = Path(yaml.safe_load(recipe.read_text())["out"])
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
