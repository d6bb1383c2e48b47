"""Behavior of routing: convergence of poses, entropy of couplings, dead capsules."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor

from torchcaps.analysis.trace import LayerTrace, trace
from torchcaps.errors import InputError
from torchcaps.functional import coupling_entropy as coupling_entropy
from torchcaps.models import Network


@dataclass(frozen=True)
class LayerConvergence:
    """Mean absolute changes in a layer by each iteration (Sabour 2017, Fig. A.1).

    Attributes:
        layer: name of the layer.
        changes: changes of a logit. In dynamic routing every iteration adds its agreement, so they
            need not fall when routing has converged.
        couplings: changes of a coupling.
        poses: changes of an entry of a parent's pose. Routing has converged when they are small.
    """

    layer: str
    changes: tuple[float, ...]
    couplings: tuple[float, ...]
    poses: tuple[float, ...]


@dataclass(frozen=True)
class LayerEntropy:
    """Mean entropy of a layer's couplings in nats, after each iteration.

    ``limit`` is the entropy of uniform couplings: the logarithm of the number of competitors. If
    parents at several positions compete for a child (EM routing in a convolution), both are taken
    over all of them and averaged over the children.
    """

    layer: str
    competes_over: str
    entropies: tuple[float, ...]
    limit: float


@dataclass(frozen=True, eq=False)
class CapsuleUse:
    """Presence of the capsules of one layer over many images.

    Attributes:
        layer: name of the layer.
        mean: ``[n]``, mean presence of each capsule, as a share of the layer's largest.
        dead: share of the capsules that never exceed 1 % of the layer's largest presence.
        saturated: share of the capsules that always exceed 99 % of it.
    """

    layer: str
    mean: Tensor
    dead: float
    saturated: float


def routing_convergence(
    network: Network, images: Tensor, *, iterations: int = 5
) -> tuple[LayerConvergence, ...]:
    """Measure how much each iteration changes logits, couplings and poses where layers iterate."""
    layers = trace(network, images, iterations=iterations + 1)
    results = tuple(
        LayerConvergence(
            layer.name, _changes(layer.logits), _changes(layer.couplings), _changes(layer.poses)
        )
        for layer in layers
        if layer.logits
    )
    if not results:
        raise InputError(
            f"{network.name or type(network).__name__} routes in one pass: nothing converges"
        )
    return results


def _changes(steps: Sequence[Tensor]) -> tuple[float, ...]:
    return tuple(float((after - before).abs().mean()) for before, after in pairwise(steps))


def routing_entropy(
    network: Network, images: Tensor, *, iterations: int | None = None
) -> tuple[LayerEntropy, ...]:
    """Measure the mean entropy of the couplings of every layer after every iteration."""
    results = []
    for layer in trace(network, images, iterations=iterations):
        over = _over_image if layer.competition == "image" else _over_window
        entropies = tuple(over(layer, couplings) for couplings in layer.couplings)
        limit = over(layer, torch.ones_like(layer.couplings[0][:1]))
        results.append(LayerEntropy(layer.name, layer.competes_over, entropies, limit))
    return tuple(results)


def _over_window(layer: LayerTrace, couplings: Tensor) -> float:
    return float(coupling_entropy(couplings, competes_over=layer.competes_over).mean())


def _over_image(layer: LayerTrace, couplings: Tensor) -> float:
    """Return the mean entropy of couplings ``[b p s j]`` of each child over all positions."""
    filled = layer.child >= 0
    child = layer.child[filled].unique(return_inverse=True)[1]
    chosen = couplings[:, filled]  # [b (p s) j]
    parts = chosen.new_zeros(len(chosen), int(child.max()) + 1)
    total = parts.index_add(1, child, chosen.sum(dim=-1))
    shares = chosen / total[:, child, None].clamp_min(1e-30)
    return float(parts.index_add(1, child, torch.special.entr(shares).sum(dim=-1)).mean())


def capsule_use(network: Network, images: Tensor) -> tuple[CapsuleUse, ...]:
    """Count dead and saturated capsules of every layer, the primary capsules first."""
    layers = trace(network, images)
    primary = _use("primary", layers[0].present_below)
    return (primary, *(_use(layer.name, layer.present) for layer in layers))


def _use(name: str, present: Tensor) -> CapsuleUse:
    present = present.abs()
    shares = present / present.max().clamp_min(1e-30)
    dead = (shares.amax(dim=0) < 0.01).float().mean()
    saturated = (shares.amin(dim=0) > 0.99).float().mean()
    return CapsuleUse(name, shares.mean(dim=0), float(dead), float(saturated))
