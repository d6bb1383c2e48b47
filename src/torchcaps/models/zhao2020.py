"""The networks of Zhao 2020: ResNet-v2 blocks under capsules, for three routings alike."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import (
    Decoder,
    LinearCapsules,
    PrimaryCapsules,
    VoteNorm,
)
from torchcaps.layers.votes import VoteNormFactory, keras_std
from torchcaps.models.backbones import ResNetV2Backbone
from torchcaps.models.network import ImageShape, Network
from torchcaps.routing import PairwiseRouting, RoutingFactory

__all__ = ["ResCapsNet"]


INNER = partial(PairwiseRouting, unit=False)
"""Section 3.3: a capsule layer hands s_j to the next one, not the unit pose."""


@final
class ResCapsNet(Network):
    """Figure 3: ResNet-v2 blocks, primary capsules, linear capsule layers with 4x4 poses.

    Scores are the activations of the class capsules: agreement, or length with dynamic routing.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: classes.
        blocks: residual blocks of each of the three stages.
        hidden: sizes of the capsule layers before the class capsules.
        routing: routing of the class capsules.
        inner_routing: routing of the layers before.
        vote_norm: batch normalization of the votes.
        glorot: start the vote weights as the authors' code does, by Keras' rule, which counts all
            children and parents of a layer as inputs and outputs. Votes are then so short that the
            epsilon of their normalization keeps them so. With longer ones, whose direction is all
            that pairwise agreement sees, dynamic routing starts with every class at a length of
            1 and was still guessing after 1,750 steps on affNIST's digits.
        decoder: a decoder class, or None.
        n_objects: objects in one image; as many classes are decoded at test time.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        blocks: tuple[int, int, int] = (8, 8, 8),
        hidden: Sequence[int] = (32, 16),
        routing: RoutingFactory = PairwiseRouting,
        inner_routing: RoutingFactory = INNER,
        vote_norm: VoteNormFactory = VoteNorm,
        glorot: bool = False,
        decoder: Callable[[int, int, ImageShape], Decoder] | None = None,
        n_objects: int = 1,
    ) -> None:
        super().__init__(image_shape, n_classes)
        if n_objects > n_classes:
            raise InputError(f"an image cannot show {n_objects} of {n_classes} classes")
        self.backbone = ResNetV2Backbone(image_shape[0], blocks)
        height, width = self.backbone.output_size(image_shape[1], image_shape[2])
        n_children = ((height + 1) // 2) * ((width + 1) // 2) * 4

        def linear(n_children: int, n_parents: int, routing: RoutingFactory) -> LinearCapsules:
            std = keras_std(n_children, n_parents, 4, 4) if glorot else None
            make = partial(LinearCapsules, matrix=True, vote_norm=vote_norm, weight_std=std)
            return make(n_children, n_parents, 16, 16, routing=routing)

        self.layers = nn.ModuleList()
        for n_parents in hidden:
            self.layers.append(linear(n_children, n_parents, inner_routing))
            n_children = n_parents
        self.classes = linear(n_children, n_classes, routing)
        self.primary = PrimaryCapsules(
            64,
            4,
            16,
            kernel_size=5,
            stride=2,
            padding=2,
            bias=False,
            batch_norm=True,
            activations=self.classes.routing.child_activations != "ignored",
        )
        self.decoder = decoder(n_classes, 16, image_shape) if decoder else None
        self.n_objects = n_objects

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Activations, poses and, with a decoder, reconstructions of the classes."""
        routed = self.primary(self.backbone(self.checked(images)))
        all_couplings = []
        for layer in (*self.layers, self.classes):
            routed = layer(routed)
            all_couplings.append(routed.couplings)
        scores = routed.activations
        reconstruction = self.reconstruct(
            self.decoder, routed.poses, scores, targets, self.n_objects
        )
        kept = tuple(all_couplings) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), kept, reconstruction)
