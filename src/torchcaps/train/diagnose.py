"""The origin of the first number that is not finite."""

from typing import Any

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.data import Batch
from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.train.step import total_loss


def find_cause(recipe: Recipe, network: Network, batch: Batch) -> str:
    """Name what stopped being finite first on a batch: the images, a layer's output, a gradient.

    The batch runs once more in float32, forward and backward. Only gradients change.
    """
    if not _is_finite(batch.images):
        return "the images of that batch hold numbers that are not finite"
    for name, parameter in network.named_parameters():
        if not _is_finite(parameter):
            return f"the weight {name} holds numbers that are not finite"
    bad_layers: list[str] = []
    hooks = [
        module.register_forward_hook(_watch(name or type(network).__name__, bad_layers))
        for name, module in network.named_modules()
    ]
    buffers = {name: buffer.clone() for name, buffer in network.named_buffers()}
    try:
        step = torch.zeros((), device=batch.images.device)
        output = network(batch.images, batch.labels if recipe.reconstruction_weight else None)
        if bad_layers:
            return f"the output of layer {bad_layers[0]} is the first that is not finite"
        loss = total_loss(recipe, output, batch, step)
        if not _is_finite(loss):
            return "the scores are finite and the loss is not: look at the loss and its targets"
        network.zero_grad()
        loss.backward()
        # from the last layer on, as gradients flow
        for name, parameter in reversed(list(network.named_parameters())):
            if parameter.grad is not None and not _is_finite(parameter.grad):
                return f"the gradient of {name} is the first that is not finite"
    finally:
        for hook in hooks:
            hook.remove()
        with torch.no_grad():
            for name, buffer in network.named_buffers():
                buffer.copy_(buffers[name])
    return "in float32 the same batch is finite: lower the learning rate or set precision=float32"


def _watch(name: str, bad_layers: list[str]) -> Any:
    """Return a forward hook that adds the first layer whose output is not finite."""

    def check(module: nn.Module, arguments: tuple[Any, ...], output: object) -> None:
        if not bad_layers and not all(_is_finite(tensor) for tensor in _tensors(output)):
            bad_layers.append(f"{name} ({type(module).__name__})")

    return check


def _tensors(output: object) -> list[Tensor]:
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, Output):
        return [output.scores]
    if isinstance(output, tuple):
        return [tensor for part in output for tensor in _tensors(part)]
    return []


def _is_finite(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() or bool(torch.isfinite(tensor).all())
