"""SFT recipes small enough for a test."""

import json
from pathlib import Path
from typing import Any

import yaml

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


def command(recipe: Path, *more: str) -> tuple[str, ...]:
    return "training.sft", "--recipe", str(recipe), *more


def metrics(recipe: Path) -> list[dict[str, Any]]:
    out = Path(yaml.safe_load(recipe.read_text())["out"])
    return [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
