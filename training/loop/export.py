"""Exports a trained model as a Hugging Face folder that transformers and SGLang load."""

import json
import shutil
from pathlib import Path
from typing import Any

import torch

from paravt_infer.errors import SettingsError
from paravt_infer.files import atomic_path
from paravt_infer.model import load_pretrained
from paravt_training.loop.checkpoint import CheckpointManager, load_weights
from paravt_training.model.distributed import DTYPES, DistributedContext, DType, gather_weights
from paravt_training.model.packing import Learner

START_FILE = "run.json"
"""Holds the model that a run started from, and its whole recipe."""
_COPIED = ("*.json", "*.jinja", "*.txt", "*.model")
_NOT_COPIED = ("config.json", "generation_config.json", "model.safetensors.index.json")


def export_model(
    learner: Learner, start: str, folder: Path, distributed: DistributedContext, *, dtype: DType = "bf16"
) -> Path | None:
    """Write weights, configuration, tokenizer, chat template and processor files atomically.

    Args:
        start: the model that training started from; its tokenizer and processor files are copied.

    Returns:
        The folder on the main process; None on the others, which must call it too.
    """
    weights = gather_weights(learner.model, distributed, dtype)
    if distributed.is_main:
        model: Any = load_pretrained(start, "AutoModelForImageTextToText", dtype=DTYPES[dtype])
        model.load_state_dict(weights)
        files = _files_to_copy(start)
        with atomic_path(folder) as scratch:
            scratch.mkdir()
            model.save_pretrained(scratch)
            for file in files:
                shutil.copyfile(file, scratch / file.name)
    distributed.barrier()
    return folder if distributed.is_main else None


def export_run(run: Path, folder: Path, *, step: int | None = None, dtype: str = "bf16") -> Path:
    """Export a checkpoint of the run in folder `run`, by default its newest; one process is enough.

    Raises:
        SettingsError: no such run, checkpoint or dtype.
    """
    if dtype not in DTYPES:
        raise SettingsError(f"--dtype: must be bf16 or fp32, not {dtype!r}")
    try:
        start = json.loads((run / START_FILE).read_text())["start"]
    except (OSError, ValueError, KeyError):
        raise SettingsError(f"{run}: not the folder of a run (it has no {START_FILE})") from None
    checkpoints = CheckpointManager(run / "checkpoints", DistributedContext())
    steps = checkpoints.steps()
    if not steps or step not in (None, *steps):
        wanted = "" if step is None else f" of step {step}"
        known = f"choose from steps {', '.join(map(str, steps))}" if steps else "none has been written yet"
        raise SettingsError(f"{run}: no checkpoint{wanted}; {known}")
    learner = Learner(load_pretrained(start, "AutoModelForImageTextToText", dtype=torch.float32))
    load_weights(learner, checkpoints.path(steps[-1] if step is None else step))
    export_model(learner, start, folder, DistributedContext(), dtype=dtype)
    return folder


def _files_to_copy(start: str) -> list[Path]:
    """A model's tokenizer, template and processor files."""
    source = Path(start)
    if not source.is_dir():
        from huggingface_hub import snapshot_download

        source = Path(snapshot_download(start, allow_patterns=list(_COPIED)))
    return [file for pattern in _COPIED for file in source.glob(pattern) if file.name not in _NOT_COPIED]
