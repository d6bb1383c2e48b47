"""Outputs of a network for many images."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.models import Network


@contextmanager
def evaluating(network: nn.Module) -> Iterator[None]:
    """Switch a network to evaluation mode without gradients, and back afterwards."""
    training = network.training
    network.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        network.train(training)


def in_parts(network: Network, images: Tensor, *, part: int = 250) -> Output:
    """Return scores, class capsules and reconstructions of many images, without gradients."""
    with evaluating(network):
        outputs = [network(some) for some in images.split(part)]
    poses = [out.capsules.poses for out in outputs if out.capsules is not None]
    scores = torch.cat([out.scores for out in outputs])
    drawings = [out.reconstruction for out in outputs if out.reconstruction is not None]
    return Output(
        scores,
        Capsules(torch.cat(poses)) if poses else None,
        reconstruction=torch.cat(drawings) if drawings else None,
    )


def features(network: Network, images: Tensor, labels: Tensor, *, part: int = 250) -> Tensor:
    """Return the features of the labeled object, ``[b d]``.

    They are the pose of the label's class capsule, or for a network without capsules the input of
    its last linear layer.
    """
    linear = [module for module in network.modules() if isinstance(module, nn.Linear)]
    linear_inputs: list[Tensor] = []
    with evaluating(network), ExitStack() as stack:
        if linear:
            hook = linear[-1].register_forward_pre_hook(
                lambda _, inputs: linear_inputs.append(inputs[0])
            )
            stack.callback(hook.remove)
        parts: list[Tensor] = []
        for some, classes in zip(images.split(part), labels.split(part), strict=True):
            linear_inputs.clear()
            capsules = network(some).capsules
            if capsules is not None:
                parts.append(capsules.poses[torch.arange(len(some), device=some.device), classes])
            elif linear_inputs:
                parts.append(linear_inputs[-1].flatten(1))
            else:
                raise InputError(
                    f"{network.name or type(network).__name__} has neither capsules nor a linear "
                    "layer, so there are no features to look at"
                )
    return torch.cat(parts)
