"""Every routing and every option of it that changes what is computed, and how tests call them."""

from functools import partial

import torch
from torch import Tensor

import torchcaps as tc
from torchcaps.capsules import Capsules, Routed
from torchcaps.routing import ROUTINGS as CLASSES, Routing, RoutingFactory, Sizes
from torchcaps.votes import Votes

ROUTINGS: dict[str, RoutingFactory] = {
    **CLASSES,
    "dynamic-1": partial(tc.DynamicRouting, iterations=1),
    "dynamic-priors-bias": partial(tc.DynamicRouting, learned_priors=True, bias=True),
    "em-1": partial(tc.EMRouting, iterations=1),
    "em-scaled": partial(tc.EMRouting, cost_scale=20.0, iterations=2),
    "inverted-attention-3": partial(tc.InvertedAttentionRouting, iterations=3),
    "inverted-attention-a": partial(
        tc.InvertedAttentionRouting, iterations=2, layer_norm=False, scale=1.0
    ),
    "inverted-attention-c": partial(tc.InvertedAttentionRouting, iterations=2, activated=True),
    "attention-unbounded": partial(tc.AttentionRouting, bounded=False),
    "pairwise-inner": partial(tc.PairwiseRouting, unit=False),
    "pairwise-code": partial(tc.PairwiseRouting, normalise=False, half=False),
    "discriminative-l1": partial(tc.DiscriminativeRouting, penalty="l1"),
}


def sizes_for(votes: Votes | Tensor, d_child: int = 8) -> Sizes:
    """Return the sizes that a routing of these votes is built for."""
    _, i, j, e = votes.shape
    return Sizes(i, j, d_child, e)


def route(
    routing: Routing,
    votes: Votes | Tensor,
    activations: Tensor | None = None,
    parents: Tensor | None = None,
) -> Routed:
    """Route votes; children of dense votes get fixed random poses."""
    if isinstance(votes, Votes):
        poses = votes.children()
    else:
        shape = (*votes.shape[:2], routing.sizes.d_child)
        generator = torch.Generator().manual_seed(0)
        poses = torch.randn(shape, generator=generator)
        poses = poses.to(votes) if votes.is_floating_point() else poses
    routed: Routed = routing(Capsules(poses, activations), votes, parents)
    return routed
