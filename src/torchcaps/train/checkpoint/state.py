"""The state of a run, to and from a checkpoint."""

import json
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from torchcaps.models import Network
from torchcaps.train.checkpoint.encoding import dump_tensors, parse_tensors
from torchcaps.train.checkpoint.files import Checkpoint, CheckpointError
from torchcaps.train.optimizers import optimizer_tensors, restore_optimizer
from torchcaps.train.process import Process
from torchcaps.train.step import Step


@dataclass
class Progress:
    """The progress of a run in plain numbers.

    Attributes:
        step: steps taken.
        best: validation accuracy of the best epoch so far, in percent; None before the first.
        best_step: last step of the best epoch.
        best_epoch: number of the best epoch, from 1.
        seconds: seconds of training and validation, over all starts.
        training_seconds: seconds of the steps alone.
        images: images trained on.
        unscored: whether the last epoch has all its steps and no score yet.
    """

    step: int = 0
    best: float | None = None
    best_step: int | None = None
    best_epoch: int | None = None
    seconds: float = 0.0
    training_seconds: float = 0.0
    images: int = 0
    unscored: bool = False

    def choose(self, validation: float | None, epoch: int) -> None:
        """Choose the epoch that has just ended if its validation accuracy is the best so far."""
        if validation is not None and (self.best is None or validation > self.best):
            self.best, self.best_step, self.best_epoch = validation, self.step, epoch


def capture(step: Step, average: dict[str, Tensor], device: torch.device) -> dict[str, Tensor]:
    """Return optimizer, average, meters and random state as named tensors, without the network."""
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
    """Load a checkpoint into a new run; return its progress."""
    progress = _progress(saved)
    restore_weights(step.network, average, saved)
    parameters = list(step.network.named_parameters())
    restore_optimizer(step.optimizer, parameters, saved.optim, "optimiser")
    if step.ascent is not None:
        restore_optimizer(step.ascent, parameters, saved.optim, "ascent")
    step.meters.copy_(saved.optim["meters"])
    step.taken.fill_(progress.step)
    step.count = progress.step
    if process.world == 1:
        torch.set_rng_state(saved.optim["rng/cpu"])
        if process.device.type == "cuda" and "rng/cuda" in saved.optim:
            torch.cuda.set_rng_state(saved.optim["rng/cuda"], process.device)
    return progress


def _progress(saved: Checkpoint) -> Progress:
    """Return the progress of a checkpoint; refuse what is not a number."""
    values = {key: saved.state.get(key, value) for key, value in asdict(Progress()).items()}
    for key, value in values.items():
        if not isinstance(value, int | float | None):
            raise CheckpointError(
                f"the checkpoint cannot be used: its {key} is {value!r} and must be a number; go "
                "back to another checkpoint or start over"
            )
    return Progress(**values)


def restore_weights(network: Network, average: dict[str, Tensor], saved: Checkpoint) -> None:
    """Load the weights of a checkpoint, and their average."""
    network.load_state_dict(saved.model)
    for name, tensor in average.items():
        tensor.copy_(saved.optim[f"average/{name}"])


def share_checkpoint(saved: Checkpoint | None, process: Process) -> Checkpoint | None:
    """Return the leading process's checkpoint in every process, also on other machines."""
    if process.world == 1:
        return saved
    parts = [b"", b"", b""]
    if saved is not None:
        values = json.dumps({"step": saved.step, "state": saved.state}).encode()
        parts = [values, dump_tensors(saved.model), dump_tensors(saved.optim)]
    received = [process.broadcast(part) for part in parts]
    if not received[0]:
        return None
    header: dict[str, Any] = json.loads(received[0])
    model, optim = map(parse_tensors, received[1:])
    return Checkpoint(header["step"], model, optim, header["state"])
