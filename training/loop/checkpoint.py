"""Checkpoints: weights, optimiser, step, data position and random states. One is there whole, or not at all.

A checkpoint is written under another name and renamed when it is complete; so a run that is killed at any moment
goes on from the last whole one.
"""

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from paravt_infer.errors import SettingsError
from paravt_training.model.distributed import DistributedContext

_NAME = re.compile(r"step-(\d{8})")


@dataclass(kw_only=True, slots=True)
class TrainingProgress:
    """Where a run is."""

    step: int = 0
    """Steps done."""
    position: int = 0
    """Conversations visited, over all processes: the number of the next one."""


class CheckpointManager:
    """The checkpoints in a folder.

    Args:
        keep: the newest so many stay.
        keep_every: those of every so many steps stay too; 0 for none.
    """

    def __init__(self, folder: Path, place: DistributedContext, *, keep: int = 2, keep_every: int = 0):
        self.folder, self.place = folder, place
        self.keep, self.keep_every = keep, keep_every

    def steps(self) -> list[int]:
        """Steps of which there is a whole checkpoint, ascending."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08}"

    def save(self, learner: nn.Module, optimiser: torch.optim.Optimizer, progress: TrainingProgress) -> Path:
        """Write a checkpoint; every process takes part. Returns its folder."""
        path = self.path(progress.step)
        part = path.with_name(f".{path.name}.part")
        if self.place.leads:
            self.folder.mkdir(parents=True, exist_ok=True)
            for left in self.folder.glob(".step-*.part"):
                shutil.rmtree(left)
        self.place.wait()
        weights, moments = get_state_dict(learner, optimiser)
        state: dict[str, Any] = {
            "learner": weights,
            "optimiser": moments,
            "step": progress.step,
            "position": progress.position,
            f"random-{self.place.rank}": _random(),
        }
        with _quiet():
            dcp.save(state, checkpoint_id=part, no_dist=not self.place.sharded)
        self.place.wait()
        if self.place.leads:
            if path.exists():
                shutil.rmtree(path)
            part.replace(path)
            self._thin()
        self.place.wait()
        return path

    def load(self, learner: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> TrainingProgress:
        """Put a checkpoint's state into `learner` and `optimiser`; every process takes part.

        Raises:
            SettingsError: it is of another model.
        """
        path = self.path(step)
        weights, moments = get_state_dict(learner, optimiser)
        state: dict[str, Any] = {"learner": weights, "optimiser": moments, "step": 0, "position": 0}
        random = f"random-{self.place.rank}"
        known = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        if any(name.startswith(random) for name in known):  # with more processes than before, some have none
            state[random] = _random()
        try:
            with _quiet():
                dcp.load(state, checkpoint_id=path, no_dist=not self.place.sharded)
        except (dcp.CheckpointException, RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise SettingsError(f"{path}: does not fit this recipe's model ({reason}); name another out") from None
        set_state_dict(learner, optimiser, model_state_dict=state["learner"], optim_state_dict=state["optimiser"])
        if random in state:
            _set_random(state[random])
        return TrainingProgress(step=int(state["step"]), position=int(state["position"]))

    def _thin(self) -> None:
        """Remove the old ones."""
        for step in self.steps()[: -self.keep]:
            if not self.keep_every or step % self.keep_every:
                old = self.path(step)
                gone = old.with_name(f".{old.name}.part")  # no half checkpoint under a whole one's name
                old.replace(gone)
                shutil.rmtree(gone)


def load_weights(learner: nn.Module, path: Path) -> None:
    """Put a checkpoint's weights alone into an unsharded `learner`.

    Raises:
        SettingsError: there is no such checkpoint.
    """
    if not path.is_dir():
        raise SettingsError(f"{path}: no such checkpoint")
    state = {"learner": learner.state_dict()}
    with _quiet():
        dcp.load(state, checkpoint_id=path, no_dist=True)
    learner.load_state_dict(state["learner"])


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warning that one process is alone: it is meant to be."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _random() -> dict[str, Any]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
