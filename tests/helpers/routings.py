"""Every routing and every option of it that changes what is computed."""

from functools import partial

import torchcaps as tc
from torchcaps.routing import RoutingFactory

ROUTINGS: dict[str, RoutingFactory] = {
    "dynamic": tc.DynamicRouting,
    "dynamic-1": partial(tc.DynamicRouting, iterations=1),
    "dynamic-priors-bias": partial(tc.DynamicRouting, learned_priors=True, bias=True),
    "em": tc.EMRouting,
    "em-1": partial(tc.EMRouting, iterations=1),
    "em-scaled": partial(tc.EMRouting, cost_scale=20.0, iterations=2),
    "inverted-attention": tc.InvertedAttentionRouting,
    "inverted-attention-3": partial(tc.InvertedAttentionRouting, iterations=3),
    "inverted-attention-a": partial(
        tc.InvertedAttentionRouting, iterations=2, layer_norm=False, scale=1.0
    ),
    "inverted-attention-c": partial(tc.InvertedAttentionRouting, iterations=2, activated=True),
    "attention": tc.AttentionRouting,
    "attention-unbounded": partial(tc.AttentionRouting, bounded=False),
    "pairwise": tc.PairwiseRouting,
    "pairwise-inner": partial(tc.PairwiseRouting, unit=False),
    "pairwise-code": partial(tc.PairwiseRouting, normalise=False, half=False),
    "discriminative-l2": tc.DiscriminativeRouting,
    "discriminative-l1": partial(tc.DiscriminativeRouting, penalty="l1"),
}
