"""A trained model as a Hugging Face folder that transformers and SGLang load."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from paravt_infer.errors import SettingsError
from paravt_infer.model import load_pretrained
from paravt_training.loop.checkpoint import CheckpointManager, load_weights
from paravt_training.model.distributed import DistributedContext, full_tensor
from paravt_training.model.packing import Learner

START_FILE = "run.json"
"""Says which model a run began with, and its whole recipe."""
_BESIDE = ("*.json", "*.jinja", "*.txt", "*.model")
_NOT = ("config.json", "generation_config.json", "model.safetensors.index.json")


def export_model(
    learner: Learner, start: str, folder: Path, place: DistributedContext, *, dtype: str = "bf16"
) -> Path | None:
    """Write weights, configuration, tokenizer, chat template and processor files; whole or not at all.

    Args:
        start: the model that training began from: its tokenizer and processor files are taken over.
        dtype: `bf16` or `fp32`.

    Returns:
        The folder, on the first process; None on the others, which must take part.
    """
    kind = torch.bfloat16 if dtype == "bf16" else torch.float32
    weights: dict[str, Any] = {}
    for name, tensor in learner.model.state_dict().items():
        full = full_tensor(tensor.detach())
        if place.leads:
            weights[name] = full.to("cpu", kind, copy=True)
    if not place.leads:
        place.wait()
        return None
    part = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(part, ignore_errors=True)
    part.mkdir(parents=True)
    bare: Any = load_pretrained(start, "AutoModelForImageTextToText", dtype=kind)
    bare.load_state_dict(weights)
    bare.save_pretrained(part)
    _copy_files(start, part)
    if folder.exists():
        shutil.rmtree(folder)
    part.replace(folder)
    place.wait()
    return folder


def export_run(run: Path, folder: Path, *, step: int | None = None, dtype: str = "bf16") -> Path:
    """Export a checkpoint of the run in folder `run`, by default its newest; one process is enough.

    Raises:
        SettingsError: there is no such run or checkpoint, or no such dtype.
    """
    if dtype not in ("bf16", "fp32"):
        raise SettingsError(f"--dtype: must be bf16 or fp32, not {dtype!r}")
    try:
        start = json.loads((run / START_FILE).read_text())["start"]
    except (OSError, ValueError, KeyError):
        raise SettingsError(f"{run}: not the folder of a run (it has no {START_FILE})") from None
    checkpoints = CheckpointManager(run / "checkpoints", DistributedContext())
    steps = checkpoints.steps()
    if not steps or step not in (None, *steps):
        there = f"there are those of steps {', '.join(map(str, steps))}" if steps else "there is none yet"
        raise SettingsError(f"{run}: no checkpoint{'' if step is None else f' of step {step}'}; {there}")
    learner = Learner(load_pretrained(start, "AutoModelForImageTextToText", dtype=torch.float32))
    load_weights(learner, checkpoints.path(steps[-1] if step is None else step))
    done = export_model(learner, start, folder, DistributedContext(), dtype=dtype)
    assert done is not None
    return done


def _copy_files(start: str, folder: Path) -> None:
    """Tokenizer, template and processor files, byte for byte."""
    source = Path(start)
    if not source.is_dir():
        from huggingface_hub import snapshot_download

        source = Path(snapshot_download(start, allow_patterns=list(_BESIDE)))
    for pattern in _BESIDE:
        for file in source.glob(pattern):
            if file.name not in _NOT:
                shutil.copyfile(file, folder / file.name)
