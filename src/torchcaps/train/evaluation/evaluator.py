"""The network of a run whose scores count: its averaged weights, or the trained ones."""

import copy
from collections.abc import Iterable, Mapping
from itertools import islice

import torch
from torch import Tensor, nn

from torchcaps.data import Batch, Batches, Source
from torchcaps.layers import VoteNorm
from torchcaps.models import Network
from torchcaps.recipes import Recipe
from torchcaps.train.evaluation.score import Score, autocast, score
from torchcaps.train.images import Sources
from torchcaps.train.process import Process
from torchcaps.train.signals import Stop

STATISTICS_IMAGES = 10_000
"""Training images that the statistics of averaged weights are computed on."""

NORMS = (nn.modules.batchnorm._BatchNorm, VoteNorm)
"""Every kind of layer that has running statistics."""


@torch.no_grad()
def update_average(
    average: Mapping[str, Tensor], network: nn.Module, decay: float, step: int
) -> None:
    """Move averaged weights towards a network's."""
    # the first steps weigh more, so that the random initial weights are forgotten
    decay = min(decay, (1 + step) / (10 + step))
    weights = [p.detach() for p in network.parameters()]
    torch._foreach_lerp_(list(average.values()), weights, 1 - decay)


@torch.no_grad()
def recompute_statistics(
    network: Network, batches: Iterable[Batch], recipe: Recipe, device: torch.device
) -> None:
    """Compute the running means and variances of averaged weights on training batches.

    The trained network's statistics do not fit: its weights shrink by weight decay while the
    learning rate falls, and the average lags 20 % behind in variance. Tsai's CIFAR-10 network lost
    2 % of test accuracy that way.
    """
    norms = [module for module in network.modules() if isinstance(module, NORMS)]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    for norm in norms:
        norm.train()
    count = max(1, -(-STATISTICS_IMAGES // recipe.batch_size))
    for number, batch in enumerate(islice(batches, count), start=1):
        for norm in norms:
            norm.momentum = 1 / number  # gives the mean over all batches so far
        with autocast(device, recipe.precision):
            network(batch.images, batch.labels if recipe.reconstruction_weight else None)
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        norm.eval()


class Evaluator:
    """The evaluation of a run: of its averaged weights, where the recipe asks for them.

    Args:
        recipe: the recipe of the run.
        network: the network that is trained.
        batches: the training batches, which the averaged weights get their statistics from.
        sources: the images of the run.
        process: this process.
        stop: tells whether the run was asked to stop.
    """

    def __init__(
        self,
        recipe: Recipe,
        network: Network,
        batches: Batches,
        sources: Sources,
        process: Process,
        stop: Stop,
    ) -> None:
        self.recipe = recipe
        self.trained = network
        self.batches = batches
        self.sources = sources
        self.process = process
        self.stop = stop
        self.averaged: Network | None = None
        self.average: dict[str, Tensor] = {}
        """The averaged weights by name; empty where the recipe does not average."""
        if recipe.average:
            self.averaged = copy.deepcopy(network).requires_grad_(False).eval()
            self.average = dict(self.averaged.named_parameters())

    def update_average(self, step: int) -> None:
        """Move the averaged weights towards the trained ones."""
        if self.average:
            update_average(self.average, self.trained, self.recipe.average, step)

    def network(self) -> Network:
        """Return the network to score in evaluation mode, the same in every process."""
        self.process.copy_from_leader(self.trained.buffers())
        if self.averaged is None:
            return self.trained.eval()
        for ours, theirs in zip(self.averaged.buffers(), self.trained.buffers(), strict=True):
            ours.copy_(theirs)
        # always the same images, so that an epoch's score can be computed again
        recompute_statistics(self.averaged, self.batches.epoch(0), self.recipe, self.process.device)
        self.process.copy_from_leader(self.averaged.buffers())
        return self.averaged

    def score(self, network: Network, source: Source, precision: str, draws: int = 1) -> Score:
        """Score a network on images; fewer of them if the run is asked to stop meanwhile."""
        return score(
            network,
            source,
            measure=self.recipe.measure,
            n_classes=self.sources.n_classes,
            process=self.process,
            transforms=self.sources.test_transforms,
            precision=precision,
            draws=draws,
            stopping=lambda: bool(self.stop.signal),
        )
