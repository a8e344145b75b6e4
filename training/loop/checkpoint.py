"""Checkpoints: weights, optimiser, step, data position and random states, each written atomically.

A checkpoint is written under a scratch name and renamed when it is complete. So a run that is killed at any moment
resumes from the newest complete one.
"""

import re
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

from paravt_infer.errors import SettingsError
from paravt_infer.files import atomic_path, scratch_path
from paravt_training.model.distributed import DistributedContext

_NAME = re.compile(r"step-(\d{8})")


@dataclass(kw_only=True, slots=True)
class TrainingProgress:
    """How far a run has come."""

    step: int = 0
    """Completed steps."""
    position: int = 0
    """Conversations or prompts visited over all processes: the number of the next one."""


class CheckpointManager:
    """The checkpoints in a folder.

    Args:
        keep: number of newest checkpoints to keep.
        keep_every: also keep those of every Nth step; 0 for none.
    """

    def __init__(self, folder: Path, distributed: DistributedContext, *, keep: int = 2, keep_every: int = 0):
        self.folder, self.distributed = folder, distributed
        self.keep, self.keep_every = keep, keep_every

    def steps(self) -> list[int]:
        """Steps of the complete checkpoints, ascending."""
        found = (_NAME.fullmatch(path.name) for path in self.folder.glob("step-*"))
        return sorted(int(match[1]) for match in found if match)

    def path(self, step: int) -> Path:
        return self.folder / f"step-{step:08}"

    def save(self, learner: nn.Module, optimiser: torch.optim.Optimizer, progress: TrainingProgress) -> Path:
        """Write a checkpoint and return its folder; every process must call it."""
        distributed, path = self.distributed, self.path(progress.step)
        if distributed.is_main:
            for abandoned in self.folder.glob(".step-*.part"):
                shutil.rmtree(abandoned)
        weights, moments = get_state_dict(learner, optimiser)
        state: dict[str, Any] = {
            "learner": weights,
            "optimiser": moments,
            "step": progress.step,
            "position": progress.position,
            f"random-{distributed.rank}": _random_state(),
        }
        with atomic_path(path) if distributed.is_main else nullcontext(scratch_path(path)) as scratch:
            distributed.barrier()
            with _without_warning():
                dcp.save(state, checkpoint_id=scratch, no_dist=not distributed.sharded)
            distributed.barrier()
        if distributed.is_main:
            self._remove_old()
        distributed.barrier()
        return path

    def load(self, learner: nn.Module, optimiser: torch.optim.Optimizer, step: int) -> TrainingProgress:
        """Load a checkpoint into `learner` and `optimiser`; every process must call it.

        Raises:
            SettingsError: it is a checkpoint of another model.
        """
        path = self.path(step)
        weights, moments = get_state_dict(learner, optimiser)
        state: dict[str, Any] = {"learner": weights, "optimiser": moments, "step": 0, "position": 0}
        random = f"random-{self.distributed.rank}"
        saved = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
        if any(name.startswith(random) for name in saved):  # a process that the run did not have before has none
            state[random] = _random_state()
        try:
            with _without_warning():
                dcp.load(state, checkpoint_id=path, no_dist=not self.distributed.sharded)
        except (dcp.CheckpointException, RuntimeError, ValueError) as error:
            reason = str(error).strip().splitlines()[-1][:200]
            raise SettingsError(f"{path}: does not fit this recipe's model ({reason}); choose another out") from None
        set_state_dict(learner, optimiser, model_state_dict=state["learner"], optim_state_dict=state["optimiser"])
        if random in state:
            _set_random_state(state[random])
        return TrainingProgress(step=int(state["step"]), position=int(state["position"]))

    def _remove_old(self) -> None:
        for step in self.steps()[: -self.keep]:
            if not self.keep_every or step % self.keep_every:
                scratch = scratch_path(self.path(step))  # renamed first: a half-deleted one must not look complete
                self.path(step).replace(scratch)
                shutil.rmtree(scratch)


def load_weights(learner: nn.Module, path: Path) -> None:
    """Load only a checkpoint's weights into an unsharded `learner`.

    Raises:
        SettingsError: no such checkpoint.
    """
    if not path.is_dir():
        raise SettingsError(f"{path}: no such checkpoint")
    state = {"learner": learner.state_dict()}
    with _without_warning():
        dcp.load(state, checkpoint_id=path, no_dist=True)
    learner.load_state_dict(state["learner"])


@contextmanager
def _without_warning() -> Iterator[None]:
    """Hides torch's warning that there is no process group: a single process needs none."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="torch.distributed is disabled")
        yield


def _random_state() -> dict[str, Any]:
    states = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        states["cuda"] = torch.cuda.get_rng_state()
    return states


def _set_random_state(states: dict[str, Any]) -> None:
    torch.set_rng_state(states["cpu"].cpu())
    if "cuda" in states and torch.cuda.is_available():
        torch.cuda.set_rng_state(states["cuda"].cpu())
