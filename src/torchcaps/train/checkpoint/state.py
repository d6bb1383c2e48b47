"""Everything a run must remember, to and from a checkpoint."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torchcaps.models import Network
from torchcaps.train.checkpoint.encoding import dump_tensors, parse_tensors
from torchcaps.train.checkpoint.files import Checkpoint
from torchcaps.train.optimizers import optimizer_tensors, restore_optimizer
from torchcaps.train.process import Process
from torchcaps.train.step import Step

__all__ = ["Progress", "capture", "restore", "restore_weights", "shared"]


@dataclass
class Progress:
    """How far a run has come, in plain numbers.

    Attributes:
        step: steps taken.
        best: validation score of the best epoch so far, percent; None before the first.
        best_step: the step it ended with.
        best_epoch: its number, from 1.
        seconds: of training and validation, over all starts.
        training_seconds: of the steps alone.
        images: trained on.
        unscored: whether the last epoch's steps are taken and its end is still to come.
    """

    step: int = 0
    best: float | None = None
    best_step: int | None = None
    best_epoch: int | None = None
    seconds: float = 0.0
    training_seconds: float = 0.0
    images: int = 0
    unscored: bool = False

    def choose(self, held_out: float | None, epoch: int) -> None:
        """Take the epoch that has just ended if it is better on held-out images than all before."""
        if held_out is not None and (self.best is None or held_out > self.best):
            self.best, self.best_step, self.best_epoch = held_out, self.step, epoch


def capture(step: Step, average: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Optimizer, average, meters and random numbers as named tensors; the network's apart."""
    names = {id(p): name for name, p in step.network.named_parameters()}
    tensors = optimizer_tensors(step.optimizer, names, "optimiser")
    if step.ascent is not None:
        tensors |= optimizer_tensors(step.ascent, names, "ascent")
    tensors |= {f"average/{name}": tensor for name, tensor in average.items()}
    tensors["meters"] = step.meters
    tensors["rng/cpu"] = torch.get_rng_state()
    if device.type == "cuda":
        tensors["rng/cuda"] = torch.cuda.get_rng_state(device)
    return tensors


def restore(
    step: Step, average: dict[str, Tensor], saved: Checkpoint, process: Process
) -> Progress:
    """Put a checkpoint back into a run that was built afresh."""
    restore_weights(step.network, average, saved)
    parameters = list(step.network.named_parameters())
    restore_optimizer(step.optimizer, parameters, saved.optim, "optimiser")
    if step.ascent is not None:
        restore_optimizer(step.ascent, parameters, saved.optim, "ascent")
    step.meters.copy_(saved.optim["meters"])
    fresh = asdict(Progress())
    progress = Progress(**{key: saved.state.get(key, fresh[key]) for key in fresh})
    step.taken.fill_(progress.step)
    step.count = progress.step
    if process.world == 1:
        torch.set_rng_state(saved.optim["rng/cpu"])
        if process.device.type == "cuda" and "rng/cuda" in saved.optim:
            torch.cuda.set_rng_state(saved.optim["rng/cuda"], process.device)
    return progress


def restore_weights(network: Network, average: dict[str, Tensor], saved: Checkpoint) -> None:
    """Put the weights of a checkpoint back, and their average."""
    network.load_state_dict(saved.model)
    for name, tensor in average.items():
        tensor.copy_(saved.optim[f"average/{name}"])


def shared(saved: Checkpoint | None, process: Process) -> Checkpoint | None:
    """The leader's checkpoint in every process, on whatever machine it runs."""
    if process.world == 1:
        return saved
    parts = [b"", b"", b""]
    if saved is not None:
        header = json.dumps({"step": saved.step, "state": saved.state}).encode()
        parts = [header, dump_tensors(saved.model), dump_tensors(saved.optim)]
    received = [_broadcast(part, process) for part in parts]
    if not received[0]:
        return None
    described: dict[str, Any] = json.loads(received[0])
    return Checkpoint(
        described["step"],
        parse_tensors(received[1]),
        parse_tensors(received[2]),
        described["state"],
    )


def _broadcast(data: bytes, process: Process) -> bytes:
    """The leader's bytes."""
    size = torch.tensor([len(data)], device=process.device)
    dist.broadcast(size, 0)
    if not int(size):
        return b""
    if process.leads:
        buffer = torch.frombuffer(bytearray(data), dtype=torch.uint8).to(process.device)
    else:
        buffer = torch.empty(int(size), dtype=torch.uint8, device=process.device)
    dist.broadcast(buffer, 0)
    return buffer.cpu().numpy().tobytes()
