"""The device and rank of a process, and the communication between processes."""

import itertools
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from torchcaps.errors import UsageError

TIMEOUT = timedelta(minutes=10)
"""Time that a process waits for the others."""

_joins = itertools.count()


@dataclass(frozen=True)
class Process:
    """One process of a run.

    Attributes:
        device: the device it trains on.
        rank: its number, from 0.
        world: the number of processes.
    """

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Return whether this is the leading process, which writes the files."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """Return the sum over all processes as a new tensor."""
        total = values.clone()
        if self.world > 1:
            dist.all_reduce(total)
        return total

    def copy_from_leader(self, tensors: Iterable[Tensor]) -> None:
        """Copy the leading process's values into the tensors of every process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def any(self, here: bool) -> bool:
        """Return whether a condition holds in any process."""
        return bool(self.sum(torch.tensor([float(here)], device=self.device)) > 0)

    def broadcast(self, data: bytes) -> bytes:
        """Return the leading process's bytes in every process."""
        if self.world == 1:
            return data
        size = torch.tensor([len(data)], device=self.device)
        dist.broadcast(size, 0)
        if not int(size):
            return b""
        if self.leads:
            buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(self.device)
        else:
            buffer = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        dist.broadcast(buffer, 0)
        return buffer.cpu().numpy().tobytes()


def choose_device(name: str) -> torch.device:
    """Return the device of a name; "auto" is a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(
            f"there is no device {name!r}: it is auto, cpu, cuda, cuda:N or mps"
        ) from None
    if device.type not in ("cpu", "cuda", "mps"):
        raise UsageError(f"the commands run on cpu, cuda or mps, not on {name!r}: use --device cpu")
    if device.type == "mps" and not torch.backends.mps.is_available():
        missing = "an Apple GPU that PyTorch can use"
        if not torch.backends.mps.is_built():
            missing = "a PyTorch built for Apple GPUs"
        raise UsageError(f"{name} needs {missing}, which is missing here: use --device cpu")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UsageError(f"{name} was asked for and PyTorch sees no CUDA GPU: use --device cpu")
        if (device.index or 0) >= torch.cuda.device_count():
            raise UsageError(
                f"there is no {name}: this machine has {torch.cuda.device_count()} GPUs"
            )
    return device


@contextmanager
def join_processes(device: str) -> Iterator[Process]:
    """Join the processes that torchrun started; without torchrun, yield a single process."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world == 1 or not dist.is_available():
        chosen = choose_device(device)
        if chosen.type == "cuda":
            torch.cuda.set_device(chosen.index or 0)
        yield Process(chosen)
        return
    local = int(os.environ.get("LOCAL_RANK", "0"))
    chosen = choose_device(device)
    if chosen.type == "cuda":
        chosen = choose_device(f"cuda:{local}")
        torch.cuda.set_device(local)
    from torch.distributed.distributed_c10d import PrefixStore
    from torch.distributed.rendezvous import rendezvous

    store, rank, size = next(rendezvous("env://", timeout=TIMEOUT))
    store.set_timeout(TIMEOUT)
    # torchrun keeps its store over runs and restarts, with the addresses of earlier ones
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        "nccl" if chosen.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt {attempt} run {next(_joins)}", store),
        rank=rank,
        world_size=size,
        timeout=TIMEOUT,
    )
    try:
        yield Process(chosen, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
