"""Weights to SGLang servers without a file: whoever trains and all servers are one process group, and it broadcasts.

NCCL between GPUs, gloo on a CPU. The servers' side is SGLang's `/update_weights_from_distributed`.
"""

import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from paravt_infer.errors import BackendError

BUCKET_BYTES = 1 << 29
"""Tensors are sent together up to so many bytes: a server holds one bucket beside its own weights."""
SECONDS = 120.0
"""A member of the group that does not come, or a tensor that is not taken, is an error after so long."""


class WeightBroadcastGroup:
    """The sending end, rank 0. Servers join by the body of `joining`, which must be under way while `join` waits.

    Args:
        servers: base URLs, with how many processes (GPUs) each runs the model on.
        device: what the servers run on: `cuda` or `cpu`.

    Raises:
        BackendError: there is no way to a server's host.
    """

    def __init__(self, servers: Mapping[str, int], *, device: str):
        self.servers = servers
        self.backend = "nccl" if device == "cuda" else "gloo"
        self.name = f"paravt-{socket.gethostname()}-{uuid.uuid4().hex}"
        self.address = _address_towards([server for server in servers if not _is_here(server)])
        with socket.socket() as free:
            free.bind(("", 0))
            self.port = free.getsockname()[1]
        self.world = 1 + sum(servers.values())
        self._group: Any = None

    def join_requests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each server, and what it must be told at `/init_weights_update_group`."""
        rank = 1
        for server, processes in self.servers.items():
            yield (
                server,
                {
                    "master_address": self.address,
                    "master_port": self.port,
                    "rank_offset": rank,
                    "world_size": self.world,
                    "group_name": self.name,
                    "backend": self.backend,
                },
            )
            rank += processes

    def join(self) -> None:
        """Wait for all servers.

        Raises:
            BackendError: sglang is not installed here, or the group does not come together.
        """
        try:
            from sglang.srt.utils.common import init_custom_process_group
        except ImportError as error:
            raise BackendError(
                f"weights by broadcast need sglang where the trainer runs ({error}); use rollouts.weights=disk"
            ) from None
        try:
            self._group = init_custom_process_group(
                backend=self.backend,
                init_method=f"tcp://{self.address}:{self.port}",
                timeout=timedelta(seconds=SECONDS),
                world_size=self.world,
                rank=0,
                group_name=self.name,
            )
        except (RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            raise BackendError(f"{', '.join(self.servers)}: no process group with them ({line})") from None

    def send(self, tensors: Sequence[Any]) -> None:
        """Broadcast tensors that the servers have been told to expect, in this order."""
        import torch.distributed as dist

        # From wherever they are to where the group works; all of a bucket under way at once, as servers take it.
        device = "cuda" if self.backend == "nccl" else "cpu"
        held = [tensor.detach().to(device).contiguous() for tensor in tensors]
        for work in [dist.broadcast(tensor, src=0, group=self._group, async_op=True) for tensor in held]:
            work.wait()

    def leave(self) -> None:
        """Give the group up; the servers must be told to at the same time."""
        import torch.distributed as dist

        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None


def _address_towards(servers: Sequence[str]) -> str:
    """This machine's address as these servers reach it; the machine's own name often stands for 127.0.1.1."""
    if not servers:
        return "127.0.0.1"
    host = urlsplit(servers[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as way:
            way.connect((host.hostname, host.port or 80))  # nothing is sent
            return str(way.getsockname()[0])
    except OSError as error:
        raise BackendError(f"{servers[0]}: no way to that host ({error})") from None


def _is_here(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def buckets(tensors: Mapping[str, Any], most: int = BUCKET_BYTES) -> Iterator[dict[str, Any]]:
    """Tensors in their order, together as long as they have at most so many bytes; a larger one is alone.

    >>> import torch
    >>> [list(one) for one in buckets({"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(9)}, most=16)]
    [['a', 'b'], ['c']]
    """
    bucket: dict[str, Any] = {}
    held = 0
    for name, tensor in tensors.items():
        size = tensor.numel() * tensor.element_size()
        if bucket and held + size > most:
            yield bucket
            bucket, held = {}, 0
        bucket[name] = tensor
        held += size
    if bucket:
        yield bucket
