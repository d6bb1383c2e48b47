"""Averaged weights: the network whose scores count, beside the one that trains."""

from collections.abc import Iterable, Mapping
from itertools import islice

import torch
from torch import Tensor, nn

from torchcaps.data import Batch
from torchcaps.layers import VoteNorm
from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.train.evaluation.score import autocast

__all__ = ["NORMS", "STATISTICS_IMAGES", "settle_statistics", "update_average"]

STATISTICS_IMAGES = 10_000
"""So many training images give the averaged weights their statistics."""

NORMS = (nn.modules.batchnorm._BatchNorm, VoteNorm)
"""Every kind of layer that keeps running statistics."""


@torch.no_grad()
def update_average(
    average: Mapping[str, Tensor], network: nn.Module, decay: float, step: int
) -> None:
    """Move averaged weights towards a network's."""
    # the first steps count more, so that the random start is forgotten
    decay = min(decay, (1 + step) / (10 + step))
    own = [p.detach() for p in network.parameters()]
    torch._foreach_lerp_(list(average.values()), own, 1 - decay)


@torch.no_grad()
def settle_statistics(
    network: Network, batches: Iterable[Batch], recipe: Recipe, device: torch.device
) -> None:
    """Give averaged weights means and variances of their own, over some training batches.

    Those of the network that trains do not fit them: weight decay shrinks its weights while the
    learning rate comes down, and the average is 20 % behind in variance. Tsai's CIFAR-10 network
    lost 2 % of the test images by that.
    """
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    if not norms:
        return
    usual = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
    count = max(1, -(-STATISTICS_IMAGES // recipe.batch_size))
    for number, batch in enumerate(islice(batches, count), start=1):
        for norm in norms:
            norm.momentum = 1 / number  # the mean of all batches so far
        with autocast(device, recipe.precision):
            network(batch.images, batch.labels if recipe.reconstruction_weight else None)
    for norm, momentum in zip(norms, usual, strict=True):
        norm.momentum = momentum
        norm.eval()
