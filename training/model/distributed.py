"""Processes that train together: who one is, sums over all of them, and the model in shards (FSDP2)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")

PATIENCE = timedelta(hours=2)
"""How long processes wait for each other: the others do for the rollouts of a step, half an hour in the paper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedContext:
    """This process among those that train together."""

    rank: int = 0
    world: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sharded: bool = False
    """Whether there is a process group, and the model is in shards."""
    in_memory: Any = None
    """The processes' group for what is in the computer's memory: a step's pictures need not pass through GPUs."""

    @property
    def leads(self) -> bool:
        return self.rank == 0

    def sums(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        return self._reduced(values, dist.ReduceOp.SUM)

    def most(self, value: int) -> int:
        """The largest of all processes' values."""
        return int(self._reduced([value], dist.ReduceOp.MAX)[0])

    def largest(self, value: float) -> float:
        """The largest of all processes' figures."""
        return self._reduced([value], dist.ReduceOp.MAX)[0]

    def deal(self, parts: Sequence[list[T]]) -> list[T]:
        """This process's part of what the first one has: one part a process, in their order, pickled on the way.

        Args:
            parts: of account in the first process alone.
        """
        if not self.sharded:
            return parts[0]
        box: list[Any] = [None]
        dist.scatter_object_list(box, list(parts) if self.leads else None, src=0, group=self.in_memory)
        return box[0]  # type: ignore[no-any-return]

    def _reduced(self, values: Any, how: Any) -> list[float]:
        together = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.sharded:
            dist.all_reduce(together, how)
        return [float(one) for one in together]

    def wait(self) -> None:
        """Go on when all processes are here."""
        if self.sharded:
            dist.barrier()


def join_processes() -> DistributedContext:
    """This process's place. Under torchrun, or with a GPU, a process group is begun."""
    cuda = torch.cuda.is_available()
    rank, world = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if not cuda and world == 1:
        return DistributedContext()
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=PATIENCE)
    else:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    in_memory = dist.new_group(backend="gloo", timeout=PATIENCE)
    return DistributedContext(rank=rank, world=world, device=device, sharded=True, in_memory=in_memory)


def leave_processes() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(learner: nn.Module, place: DistributedContext, *, bf16: bool) -> None:
    """Split the parameters of `learner`, a `Learner`, over all processes, layer by layer.

    Layers compute in bf16 if asked; gradients are summed and weights kept in fp32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    mesh = init_device_mesh(place.device.type, (place.world,))
    kinds = {"param_dtype": torch.bfloat16, "reduce_dtype": torch.float32}
    # Inputs are not cast: the rotary embedding's sines must stay in fp32, as they are when the model is used.
    policy = MixedPrecisionPolicy(**kinds, cast_forward_inputs=False) if bf16 else None
    options: dict[str, Any] = {"mesh": mesh} | ({"mp_policy": policy} if policy else {})
    network: Any = learner.model
    for layer in (*network.model.visual.blocks, *network.model.language_model.layers):
        fully_shard(layer, **options)
    fully_shard(learner, **options)


def clip(parameters: Any, limit: float) -> float:
    """Cut the gradient to a norm of `limit`; returns the norm it had, over all processes."""
    norm: Any = nn.utils.clip_grad_norm_(parameters, limit)
    return float(norm.full_tensor() if hasattr(norm, "full_tensor") else norm)


def full_tensor(tensor: Tensor) -> Tensor:
    """A sharded tensor's whole; every process must ask."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full
