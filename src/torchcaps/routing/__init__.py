"""The routings: one paper, one file, one pure function on dense votes, one class."""

from torchcaps.routing.attention import AttentionRouting, CapsuleActivation, attention_routing
from torchcaps.routing.base import Routing, RoutingFactory
from torchcaps.routing.discriminative import (
    DiscriminativeRouting,
    discriminative_objective,
    discriminative_routing,
)
from torchcaps.routing.dynamic import DynamicRouting, dynamic_routing
from torchcaps.routing.em import EMRouting, em_routing
from torchcaps.routing.inverted_attention import (
    InvertedAttentionRouting,
    inverted_attention_routing,
)
from torchcaps.routing.pairwise import PairwiseRouting, pairwise_agreement

__all__ = [
    "AttentionRouting",
    "CapsuleActivation",
    "DiscriminativeRouting",
    "DynamicRouting",
    "EMRouting",
    "InvertedAttentionRouting",
    "PairwiseRouting",
    "Routing",
    "RoutingFactory",
    "attention_routing",
    "discriminative_objective",
    "discriminative_routing",
    "dynamic_routing",
    "em_routing",
    "inverted_attention_routing",
    "pairwise_agreement",
]
