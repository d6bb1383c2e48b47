"""The routings: one paper, one file, one pure function on dense votes, one class."""

from torchcaps.routing.activation import CapsuleActivation as CapsuleActivation
from torchcaps.routing.attention import (
    AttentionRouting as AttentionRouting,
    attention_routing as attention_routing,
)
from torchcaps.routing.base import (
    Kernel as Kernel,
    Routing as Routing,
    RoutingFactory as RoutingFactory,
    Sizes as Sizes,
)
from torchcaps.routing.discriminative import (
    DiscriminativeRouting as DiscriminativeRouting,
    discriminative_objective as discriminative_objective,
    discriminative_routing as discriminative_routing,
)
from torchcaps.routing.dynamic import (
    DynamicRouting as DynamicRouting,
    dynamic_routing as dynamic_routing,
)
from torchcaps.routing.em import EMRouting as EMRouting, em_routing as em_routing
from torchcaps.routing.inverted_attention import (
    InvertedAttentionRouting as InvertedAttentionRouting,
    inverted_attention_routing as inverted_attention_routing,
)
from torchcaps.routing.pairwise import (
    PairwiseRouting as PairwiseRouting,
    pairwise_agreement as pairwise_agreement,
)
from torchcaps.routing.self_attention import (
    SelfAttentionRouting as SelfAttentionRouting,
    self_attention_routing as self_attention_routing,
)
from torchcaps.routing.self_routing import (
    SelfRouting as SelfRouting,
    self_routing as self_routing,
)
from torchcaps.routing.variational import (
    VariationalPriors as VariationalPriors,
    VariationalRouting as VariationalRouting,
    variational_routing as variational_routing,
)

ROUTINGS: dict[str, RoutingFactory] = {
    "dynamic": DynamicRouting,
    "em": EMRouting,
    "inverted-attention": InvertedAttentionRouting,
    "attention": AttentionRouting,
    "pairwise": PairwiseRouting,
    "discriminative": DiscriminativeRouting,
    "self": SelfRouting,
    "self-attention": SelfAttentionRouting,
    "variational": VariationalRouting,
}
"""Every routing by its name in demos."""
