"""Diagnostics of routing after every epoch, on a fixed batch of images without their labels."""

import math
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.capsules import Routed
from torchcaps.data import Batches
from torchcaps.functional import coupling_entropy
from torchcaps.models import Network
from torchcaps.recipes import Measure
from torchcaps.results import LayerRouting, RoutingPoint
from torchcaps.routing.base import Routing
from torchcaps.train.evaluation.score import predictions
from torchcaps.train.images import Sources
from torchcaps.votes import Votes

MAX_IMAGES = 128
MIN_IMAGES = 16
SHARE_OF_IMAGES = 1 / 400
"""Images of the batch, as a share of the training images: it is run twice an epoch, forward."""


class Call(NamedTuple):
    """The last call of a routing.

    Attributes:
        name: name of the layer.
        routing: the routing.
        inputs: positional arguments of the call.
        named: arguments by name.
        routed: the result.
        earlier: poses that the calls before it returned, in order.
    """

    name: str
    routing: Routing
    inputs: tuple[Any, ...]
    named: dict[str, Any]
    routed: Routed
    earlier: tuple[Tensor, ...]

    @property
    def child(self) -> Tensor | None:
        """The child that every slot of the votes shows; None where each slot is a child."""
        votes = self.named.get("votes", self.inputs[1] if len(self.inputs) > 1 else None)
        return votes.child if isinstance(votes, Votes) else None


def diagnostic_images(sources: Sources) -> Tensor:
    """Return the first held-out images; the first test images where none are held out.

    Their labels are not read. A run without either takes training images.
    """
    source = sources.validation or sources.test or sources.train
    count = int(min(MAX_IMAGES, max(MIN_IMAGES, SHARE_OF_IMAGES * len(sources.train))))
    samples = torch.arange(min(count, len(source)), device=source.device)
    return Batches(source, count, transforms=sources.test_transforms).batch(samples).images


@torch.no_grad()
def diagnose_routing(
    network: Network, images: Tensor, *, epoch: int, measure: Measure
) -> RoutingPoint | None:
    """Measure the couplings and activations that a network's predictions come from.

    The network is put in evaluation mode. None if it has no routing.
    """
    network.eval()
    with _recorded(network) as calls:
        scores = network(images).scores.float()
    if not calls:
        return None
    layers = tuple(_measure(call, len(images)) for call in calls.values())
    if measure == "r2":  # every number changes a little
        return RoutingPoint(epoch, len(images), None, layers)
    predicted, changed = predictions(scores, measure), None
    with ExitStack() as stack:
        able = [stack.enter_context(call.routing.uniform_couplings()) for call in calls.values()]
        if any(able):
            uniform = predictions(network(images).scores.float(), measure)
            differs = (uniform != predicted).reshape(len(images), -1).any(dim=1)
            changed = 100 * float(differs.float().mean())
    return RoutingPoint(epoch, len(images), changed, layers)


@contextmanager
def _recorded(network: nn.Module) -> Iterator[dict[str, Call]]:
    """Record the last call of every routing inside this context."""
    calls: dict[str, Call] = {}

    def listen(name: str, routing: Routing) -> None:
        def keep(_: nn.Module, inputs: tuple[Any, ...], named: dict[str, Any], routed: Any) -> None:
            before = calls.get(name)
            earlier = () if before is None else (*before.earlier, before.routed.poses)
            if isinstance(routed, Routed):
                calls[name] = Call(name, routing, inputs, named, routed, earlier)

        stack.callback(routing.register_forward_hook(keep, with_kwargs=True).remove)

    with ExitStack() as stack:
        for name, module in network.named_modules():
            if isinstance(module, Routing):
                listen(name.removesuffix(".routing"), module)
        yield calls


def _measure(call: Call, n_images: int) -> LayerRouting:
    couplings, activations = call.routed.couplings.float(), call.routed.activations.float()
    entropy: float | None = None
    limit: float | None = None
    if call.routing.competes_over != "none":
        entropy, limit = _entropy(call, couplings)
    present = activations.reshape(n_images, -1)
    low, high = torch.quantile(_thinned(present), present.new_tensor([0.05, 0.95])).tolist()
    shares = present.abs() / present.abs().max().clamp_min(1e-30)
    return LayerRouting(
        layer=call.name,
        entropy=entropy,
        uniform_entropy=limit,
        mean=float(present.mean()),
        std=float(present.std(correction=0)),
        low=low,
        high=high,
        dead=float((shares.amax(dim=0) < 0.01).float().mean()),
        saturated=float((shares.amin(dim=0) > 0.99).float().mean()),
        pose_changes=_pose_changes(call),
    )


def _pose_changes(call: Call) -> tuple[float, ...]:
    """Return the mean absolute change of an entry of a pose from each iteration to the next."""
    poses = [*call.earlier, call.routed.poses]
    if not call.earlier:  # the routing iterates on its own
        poses = [*_after_fewer_iterations(call), call.routed.poses]
    return tuple(float((b.float() - a.float()).abs().mean()) for a, b in pairwise(poses))


def _after_fewer_iterations(call: Call) -> Iterator[Tensor]:
    """Route the same votes with 1, 2, ... iterations, up to one less than the call took."""
    iterations = call.routing.iterations
    try:
        for count in range(1, iterations or 1):
            call.routing.iterations = count
            yield call.routing(*call.inputs, **call.named).poses
    finally:
        call.routing.iterations = iterations


def _thinned(values: Tensor) -> Tensor:
    """Return a million values at most, evenly spaced: torch.quantile takes few more."""
    flat = values.flatten()
    return flat[:: max(1, math.ceil(len(flat) / 1_000_000))]


def _entropy(call: Call, couplings: Tensor) -> tuple[float, float]:
    """Return the mean entropy of couplings ``[b i j]``, and that of uniform ones, in nats."""
    if call.child is None:
        over = call.routing.competes_over
        n_competitors = couplings.shape[1 if over == "children" else 2]
        return float(coupling_entropy(couplings, competes_over=over).mean()), math.log(
            n_competitors
        )
    # the parents of all windows compete for a child
    child = call.child.flatten()
    slots = torch.bincount(child)
    total = couplings.new_zeros(len(slots)).index_add(0, child, couplings.sum(dim=-1).flatten())
    shares = couplings / total[call.child].clamp_min(1e-30)[..., None]
    n_children = int((slots > 0).sum())
    limit = (slots[slots > 0] * couplings.shape[-1]).float().log().mean()
    return float(torch.special.entr(shares).sum() / n_children), float(limit)
