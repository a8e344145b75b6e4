"""Sends weights to SGLang servers without a file: the trainer broadcasts to a process group with all servers.

NCCL between GPUs, gloo on CPUs. The servers' side is SGLang's `/update_weights_from_distributed`.
"""

import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

from paravt_infer.backends.http import free_port
from paravt_infer.errors import BackendError

BUCKET_BYTES = 1 << 29
"""Maximum size of a bucket of tensors: a server holds one bucket besides its own weights."""
TIMEOUT_SECONDS = 120.0
"""For a server to join the group, and for a tensor to be received."""


class WeightBroadcastGroup:
    """The trainer's end of the process group, rank 0. While `join` waits, each server must get its `join_requests`.

    Args:
        servers: base URLs, with the number of processes (GPUs) that each runs the model on.
        device: the servers' device: `cuda` or `cpu`.

    Raises:
        BackendError: there is no route to a server's host.
    """

    def __init__(self, servers: Mapping[str, int], *, device: str):
        self.servers = servers
        self.backend = "nccl" if device == "cuda" else "gloo"
        self.name = f"paravt-{socket.gethostname()}-{uuid.uuid4().hex}"
        self.address = _address_towards([server for server in servers if not _is_local(server)])
        self.port = free_port("")
        self.world_size = 1 + sum(servers.values())
        self._group: Any = None

    def join_requests(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Each server, and the body of its request to `/init_weights_update_group`."""
        rank = 1
        for server, processes in self.servers.items():
            body = {"master_address": self.address, "master_port": self.port, "rank_offset": rank}
            yield server, body | {"world_size": self.world_size, "group_name": self.name, "backend": self.backend}
            rank += processes

    def join(self) -> None:
        """Wait until all servers have joined.

        Raises:
            BackendError: sglang is not installed here, or not all servers join in time.
        """
        try:
            from sglang.srt.utils.common import init_custom_process_group
        except ImportError as error:
            raise BackendError(
                f"broadcasting weights needs sglang next to the trainer ({error}); use rollouts.weights=disk"
            ) from None
        try:
            self._group = init_custom_process_group(
                backend=self.backend,
                init_method=f"tcp://{self.address}:{self.port}",
                timeout=timedelta(seconds=TIMEOUT_SECONDS),
                world_size=self.world_size,
                rank=0,
                group_name=self.name,
            )
        except (RuntimeError, ValueError) as error:
            line = " ".join(str(error).split())[:200]
            raise BackendError(f"{', '.join(self.servers)}: cannot form a process group with them ({line})") from None

    def broadcast(self, tensors: Sequence[Any]) -> None:
        """Send tensors, in the order that the servers have been told to expect."""
        import torch.distributed as dist

        # All of a bucket at the same time, as the servers receive it.
        device = "cuda" if self.backend == "nccl" else "cpu"
        local = [tensor.detach().to(device).contiguous() for tensor in tensors]
        for work in [dist.broadcast(tensor, src=0, group=self._group, async_op=True) for tensor in local]:
            work.wait()

    def destroy(self) -> None:
        """Leave the group; the servers must be told to leave at the same time."""
        import torch.distributed as dist

        if self._group is not None:
            dist.destroy_process_group(self._group)
            self._group = None


def _address_towards(servers: Sequence[str]) -> str:
    """This machine's address as the servers see it; its own host name often resolves to 127.0.1.1."""
    if not servers:
        return "127.0.0.1"
    host = urlsplit(servers[0])
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((host.hostname, host.port or 80))  # sends nothing
            return str(probe.getsockname()[0])
    except OSError as error:
        raise BackendError(f"{servers[0]}: no route to this host ({error})") from None


def _is_local(server: str) -> bool:
    host = urlsplit(server).hostname or ""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def buckets(tensors: Mapping[str, Any], max_bytes: int = BUCKET_BYTES) -> Iterator[dict[str, Any]]:
    """The tensors in order, grouped into buckets of at most `max_bytes`; a larger tensor is alone in its bucket.

    >>> import torch
    >>> tensors = {"a": torch.zeros(2), "b": torch.zeros(2), "c": torch.zeros(9)}
    >>> [list(bucket) for bucket in buckets(tensors, max_bytes=16)]
    [['a', 'b'], ['c']]
    """
    bucket: dict[str, Any] = {}
    nbytes = 0
    for name, tensor in tensors.items():
        if bucket and nbytes + tensor.nbytes > max_bytes:
            yield bucket
            bucket, nbytes = {}, 0
        bucket[name] = tensor
        nbytes += tensor.nbytes
    if bucket:
        yield bucket
