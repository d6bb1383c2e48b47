"""One process of a run: its device, its rank, and what processes say to one another."""

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

__all__ = ["Process", "choose_device", "joined"]

PATIENCE = timedelta(minutes=10)
"""How long a process waits for the others before it gives up."""

_joins = itertools.count()


@dataclass(frozen=True)
class Process:
    """Where this process stands among those of the run."""

    device: torch.device
    rank: int = 0
    world: int = 1

    @property
    def leads(self) -> bool:
        """Whether this is the process that writes."""
        return self.rank == 0

    def sum(self, values: Tensor) -> Tensor:
        """The sum over all processes; a new tensor."""
        total = values.clone()
        if self.world > 1:
            dist.all_reduce(total)
        return total

    def align(self, tensors: Iterable[Tensor]) -> None:
        """Give every process the leader's values, in place."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, 0)

    def any(self, here: bool) -> bool:
        """Whether it is so in any process."""
        return bool(self.sum(torch.tensor([float(here)], device=self.device)) > 0)


def choose_device(name: str) -> torch.device:
    """The device a user names: "auto" takes a GPU where there is one."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        raise UsageError(f"there is no device {name!r}: it is auto, cpu, cuda or cuda:N") from None
    if device.type not in ("cpu", "cuda"):
        raise UsageError(f"torchcaps trains on cpu or cuda, not on {name!r}")
    if device.type == "cuda":
        if not torch.cuda.is_available():
            raise UsageError(f"{name} was asked for and PyTorch sees no CUDA GPU: use --device cpu")
        if (device.index or 0) >= torch.cuda.device_count():
            raise UsageError(
                f"there is no {name}: this machine has {torch.cuda.device_count()} GPUs"
            )
    return device


@contextmanager
def joined(device: str) -> Iterator[Process]:
    """This process among those that torchrun started, or alone."""
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

    store, rank, size = next(rendezvous("env://", timeout=PATIENCE))
    store.set_timeout(PATIENCE)
    # torchrun keeps its store over runs and restarts, and in it the addresses of those before
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    dist.init_process_group(
        "nccl" if chosen.type == "cuda" else "gloo",
        store=PrefixStore(f"attempt {attempt} run {next(_joins)}", store),
        rank=rank,
        world_size=size,
        timeout=PATIENCE,
    )
    try:
        yield Process(chosen, dist.get_rank(), dist.get_world_size())
    finally:
        dist.destroy_process_group()
