"""The routing that each layer takes by default."""

from functools import partial

from torchcaps.routing.attention import AttentionRouting
from torchcaps.routing.dynamic import DynamicRouting
from torchcaps.routing.em import EMRouting
from torchcaps.routing.inverted_attention import InvertedAttentionRouting

LINEAR = DynamicRouting
CONVOLUTION = InvertedAttentionRouting
CONVOLUTIONAL_TRANSFORM = AttentionRouting
CLASSES = EMRouting
HEAD = partial(InvertedAttentionRouting, iterations=2)
