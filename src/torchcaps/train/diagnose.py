"""Where the first number that is not finite came from."""

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.data import Batch
from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.train.step import total_loss

__all__ = ["culprit"]


def culprit(recipe: Recipe, network: Network, batch: Batch) -> str:
    """What went wrong first on a batch, in words: the images, a layer's output, a gradient.

    Runs the batch once more in float32, forward and backward; changes gradients and nothing else.
    """
    if not _finite(batch.images):
        return "the images of that batch hold numbers that are not finite"
    for name, parameter in network.named_parameters():
        if not _finite(parameter):
            return f"the weight {name} holds numbers that are not finite"
    found: list[str] = []
    hooks = [
        module.register_forward_hook(_watch(name or type(network).__name__, found))
        for name, module in network.named_modules()
    ]
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        step = torch.zeros((), device=batch.images.device)
        output = network(batch.images, batch.labels if recipe.reconstruction_weight else None)
        if found:
            return f"the output of layer {found[0]} is the first that is not finite"
        loss = total_loss(recipe, output, batch, step)
        if not _finite(loss):
            return "the scores are finite and the loss is not: look at the loss and its targets"
        network.zero_grad()
        loss.backward()
        # the last layer first: a gradient flows from there
        for name, parameter in reversed(list(network.named_parameters())):
            if parameter.grad is not None and not _finite(parameter.grad):
                return f"the gradient of {name} is the first that is not finite"
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(buffers[name])
    return "in float32 the same batch is finite: lower the learning rate or set precision=float32"


def _watch(name: str, found: list[str]) -> Any:
    def look(module: nn.Module, arguments: tuple[Any, ...], output: object) -> None:
        if not found and not all(_finite(tensor) for tensor in _tensors(output)):
            found.append(f"{name} ({type(module).__name__})")

    return look


def _tensors(output: object) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Output):
        return [output.scores]
    if isinstance(output, tuple):
        return [tensor for part in output for tensor in _tensors(part)]
    return []


def _finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
