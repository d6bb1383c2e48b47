"""A capsule head for anyone's backbone."""

from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.checks import check_sizes
from torchcaps.layers.linear import ClassCapsules
from torchcaps.layers.primary import PoseNorm, PrimaryCapsules, RectifiedActivation, Squash
from torchcaps.routing import (
    AttentionRouting,
    DynamicRouting,
    EMRouting,
    InvertedAttentionRouting,
    RoutingFactory,
)

__all__ = ["CapsuleHead"]

ROUTING = partial(InvertedAttentionRouting, iterations=2)
"""The default: two steps of inverted attention, scored by a linear classifier."""

DYNAMIC_STD = 0.1
"""First weights of dynamic routing, as its authors' code has them. It adds up the votes of a whole
map: with larger ones every class starts as long as it can be and hardly learns."""


@final
class CapsuleHead(nn.Module):
    """Class capsules on top of any features: a map ``[b c h w]`` or tokens ``[b n c]``.

    A 1x1 convolution makes primary capsules at every position; class capsules share their weights
    over positions, so that maps of any size work, and know where a child is by coordinate addition.
    A routing that learns something about each child (attention, discriminative) is local: it routes
    at every position among the types there, without coordinates.

    ``scores`` are logits for the default, inverted attention: train them with cross-entropy. With
    another routing they are what its paper has: lengths (dynamic, attention, discriminative: margin
    loss), activations (EM: spread loss) or agreement (pairwise: cross-entropy).

    Args:
        in_channels: channels of the features.
        num_classes: classes.
        routing: a routing class, or a partial of one.
        n_types: types of primary capsules.
        d: size of all poses.
        matrix: read poses as square matrices, with d times fewer weights.
        coordinates: add the position of a child to its vote; None does so unless routing is
            dynamic, which adds votes up: positions would make every class as long as it can be.
    """

    def __init__(
        self,
        in_channels: int,
        num_classes: int,
        *,
        routing: RoutingFactory = ROUTING,
        n_types: int = 32,
        d: int = 16,
        matrix: bool = True,
        coordinates: bool | None = None,
    ) -> None:
        super().__init__()
        check_sizes(in_channels=in_channels, num_classes=num_classes, n_types=n_types, d=d)
        self.classes = ClassCapsules(
            n_types, num_classes, d, d, routing=routing, matrix=matrix, coordinates=coordinates
        )
        kind = self.classes.routing
        if isinstance(kind, DynamicRouting):
            nn.init.normal_(self.classes.weight, std=DYNAMIC_STD)
        inverted = isinstance(kind, InvertedAttentionRouting)
        normalized = inverted or isinstance(kind, EMRouting)
        rectified = isinstance(kind, AttentionRouting)
        self.primary = PrimaryCapsules(
            in_channels,
            n_types,
            d,
            nonlinearity=PoseNorm if normalized else RectifiedActivation if rectified else Squash,
            activations=isinstance(kind, EMRouting),
        )
        self.classifier = nn.Linear(d, 1) if inverted else None
        self.in_channels = in_channels

    def forward(self, features: Tensor) -> Output:
        """Scores ``[b n]``, class capsules and their couplings ``[b (h w i) n]``."""
        if features.dim() == 3:
            features = features.transpose(1, 2).unsqueeze(-1)
        if features.dim() != 4 or features.shape[1] != self.in_channels:
            raise ValueError(
                f"CapsuleHead takes a map [b {self.in_channels} h w] or tokens "
                f"[b n {self.in_channels}], not {list(features.shape)}"
            )
        routed = self.classes(self.primary(features))
        scores = routed.activations
        if self.classifier is not None:
            scores = self.classifier(routed.poses).squeeze(-1)
        return Output(scores, Capsules(routed.poses, routed.activations), (routed.couplings,))
