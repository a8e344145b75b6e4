"""The training processes: rank and device of this one, collectives over all of them, and sharding (FSDP2)."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Literal, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor, nn

T = TypeVar("T")
DType = Literal["bf16", "fp32"]

DTYPES: dict[DType, torch.dtype] = {"bf16": torch.bfloat16, "fp32": torch.float32}
TIMEOUT = timedelta(hours=2)
"""Timeout of collectives: the other processes wait in one during rollouts, half an hour per step in the paper."""


@dataclass(frozen=True, kw_only=True, slots=True)
class DistributedContext:
    """This process among all that train together."""

    rank: int = 0
    world_size: int = 1
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    sharded: bool = False
    """Whether there is a process group, and the model is sharded over it."""
    cpu_group: Any = None
    """A gloo group of all processes, for objects in CPU memory: a step's frames need not pass through the GPUs."""

    @property
    def is_main(self) -> bool:
        return self.rank == 0

    def sum(self, *values: float) -> list[float]:
        """Each value summed over all processes."""
        return self._all_reduce(values, dist.ReduceOp.SUM)

    def max(self, value: float) -> float:
        """The maximum of a value over all processes."""
        return self._all_reduce([value], dist.ReduceOp.MAX)[0]

    def _all_reduce(self, values: Sequence[float], operation: Any) -> list[float]:
        reduced = torch.tensor(values, dtype=torch.float64, device=self.device)
        if self.sharded:
            dist.all_reduce(reduced, operation)
        return [float(value) for value in reduced]

    def scatter(self, parts: Sequence[list[T]]) -> list[T]:
        """This process's part of what the main process has.

        Args:
            parts: one part per process, in the order of ranks; pickled for transport. Ignored outside the main process.
        """
        if not self.sharded:
            return parts[0]
        received: list[Any] = [None]
        dist.scatter_object_list(received, list(parts) if self.is_main else None, src=0, group=self.cpu_group)
        return received[0]  # type: ignore[no-any-return]

    def barrier(self) -> None:
        """Wait until all processes are here."""
        if self.sharded:
            dist.barrier()


def init_distributed() -> DistributedContext:
    """This process's context. Under torchrun, and on a GPU, a process group is initialised."""
    cuda = torch.cuda.is_available()
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if not cuda and world_size == 1:
        return DistributedContext()
    device = torch.device("cpu")
    if cuda:
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "RANK" in os.environ:
        dist.init_process_group("nccl" if cuda else "gloo", timeout=TIMEOUT)
    else:
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
    cpu_group = dist.new_group(backend="gloo", timeout=TIMEOUT)
    return DistributedContext(rank=rank, world_size=world_size, device=device, sharded=True, cpu_group=cpu_group)


def shutdown_distributed() -> None:
    if dist.is_initialized():
        dist.destroy_process_group()


def shard(learner: nn.Module, distributed: DistributedContext, dtype: DType) -> None:
    """Shard the parameters of `learner`, a `Learner`, over all processes, layer by layer.

    Layers compute in `dtype`; gradients are reduced and weights kept in fp32.
    """
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

    options: dict[str, Any] = {"mesh": init_device_mesh(distributed.device.type, (distributed.world_size,))}
    if dtype == "bf16":
        # Inputs are not cast: the rotary embedding's sines must stay in fp32, as they do in inference.
        options["mp_policy"] = MixedPrecisionPolicy(
            param_dtype=torch.bfloat16, reduce_dtype=torch.float32, cast_forward_inputs=False
        )
    network: Any = learner.model
    for layer in (*network.model.visual.blocks, *network.model.language_model.layers):
        fully_shard(layer, **options)
    fully_shard(learner, **options)


def clip_gradients(parameters: Any, max_norm: float) -> float:
    """Clip the gradient to `max_norm`; returns the norm it had, over all processes."""
    return float(full_tensor(nn.utils.clip_grad_norm_(parameters, max_norm)))


def full_tensor(tensor: Tensor) -> Tensor:
    """The unsharded tensor; every process must call it."""
    full: Tensor = tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor
    return full


def gather_weights(model: nn.Module, distributed: DistributedContext, dtype: DType) -> dict[str, Tensor]:
    """The unsharded state dict of `model` as a copy on the CPU; every process must call it.

    Returns:
        Name to weight on the main process; empty on the others, which need no memory for it.
    """
    gathered = {}
    for name, tensor in model.state_dict().items():
        full = full_tensor(tensor.detach())
        if distributed.is_main:
            gathered[name] = full.to("cpu", DTYPES[dtype], copy=True)
    return gathered
