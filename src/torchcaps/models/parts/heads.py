"""One small ResNet under any head, with equal numbers of parameters: what a study compares.

Every head begins with a 1x1 convolution. Its width is chosen so that all heads have as many
parameters as capsules with the default routing and a convolution of ``neck`` channels.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, cast, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import UsageError
from torchcaps.layers import (
    ConvTransformCapsules,
    FullyConnectedDecoder,
    LinearCapsules,
    PrimaryCapsules,
)
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import Backbone, BasicBlock, ImageConv2d
from torchcaps.routing import Routing, RoutingFactory, defaults
from torchcaps.routing.base import preview_routing

N_TYPES, D_CHILD, D_CLASS = 8, 8, 8
HIDDEN = (128, 256)
"""Hidden layers of a decoder."""

Pool = Literal["average", "flatten", "attention"]
POOLS: tuple[Pool, ...] = ("average", "flatten", "attention")
"""The heads without capsules."""

FIRST_SCALE = 10.0
"""Initial factor between the scores of capsules and the logits of the loss."""


@final
class SmallResNet(Backbone):
    """A 3x3 convolution, then three residual blocks, of which the last two halve both sides.

    Args:
        in_channels: channels of the images.
        width: channels of the first block; the next have twice and four times as many.
        stride: stride of the first convolution.
    """

    def __init__(self, in_channels: int, *, width: int, stride: int) -> None:
        super().__init__()
        self.out_channels = 4 * width
        self.stride = stride
        self.layers = nn.Sequential(
            ImageConv2d(in_channels, width, 3, stride, padding=1, bias=False),
            nn.BatchNorm2d(width),
            nn.ReLU(),
            BasicBlock(width, width),
            BasicBlock(width, 2 * width, stride=2),
            BasicBlock(2 * width, 4 * width, stride=2),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width after all strides, rounded up."""
        step = 4 * self.stride
        return -(-height // step), -(-width // step)


def class_layer(
    kind: Routing,
    routing: RoutingFactory,
    size: tuple[int, int],
    *,
    n_types: int,
    n_classes: int,
    d_child: int,
    d_parent: int,
) -> LinearCapsules | ConvTransformCapsules:
    """Build class capsules over a grid of this size.

    Where children compete, a convolutional transform keeps them few: one per type.
    """
    if kind.competes_over == "children":
        return ConvTransformCapsules(
            n_types, n_classes, d_child, d_parent, kernel_size=size, routing=routing
        )
    n_children = size[0] * size[1] * n_types
    return LinearCapsules(n_children, n_classes, d_child, d_parent, routing=routing)


class _Headed(Network):
    """A backbone and the 1x1 convolution of a head."""

    def __init__(
        self, image_shape: ImageShape, n_classes: int, backbone: SmallResNet, neck: int
    ) -> None:
        super().__init__(image_shape, n_classes)
        self.backbone = backbone
        self.neck = nn.Sequential(
            nn.Conv2d(backbone.out_channels, neck, 1, bias=False), nn.BatchNorm2d(neck), nn.ReLU()
        )
        self.size = backbone.output_size(image_shape[1], image_shape[2])

    def neck_features(self, images: Tensor) -> Tensor:
        """Return what the head classifies."""
        features: Tensor = self.neck(self.backbone(self.checked(images)))
        return features


@final
class RoutedHead(_Headed):
    """Primary capsules at every position, and one routed capsule per class over all of them.

    Scores are logits. A routing that scores by lengths or activations has them multiplied by one
    learned number, so that one loss fits every routing.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: the backbone.
        neck: channels of the 1x1 convolution.
        routing: a routing class, or a partial of one. Its attributes decide the nonlinearity and
            activations of the primary capsules.
        draws: add a decoder, which does not count among the compared parameters.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: SmallResNet,
        neck: int,
        routing: RoutingFactory,
        draws: bool = False,
    ) -> None:
        super().__init__(image_shape, n_classes, backbone, neck)
        kind = preview_routing(routing)
        self.primary = PrimaryCapsules.below(kind, neck, N_TYPES, D_CHILD)
        self.classes = class_layer(
            kind,
            routing,
            self.size,
            n_types=N_TYPES,
            n_classes=n_classes,
            d_child=D_CHILD,
            d_parent=D_CLASS,
        )
        logits = kind.scores_by == "logit"
        self.classifier = nn.Linear(D_CLASS, 1) if logits else None
        self.scale = None if logits else nn.Parameter(torch.tensor(FIRST_SCALE))
        self.decoder = (
            FullyConnectedDecoder(n_classes, D_CLASS, image_shape, hidden=HIDDEN) if draws else None
        )

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return logits, class capsules and, with a decoder, drawings."""
        routed = self.classes(self.primary(self.neck_features(images)))
        # a convolutional transform gives its one position as a grid of 1x1
        poses, activations = routed.poses.flatten(1, -2), routed.activations.flatten(1)
        if self.classifier is not None:
            scores = self.classifier(poses).squeeze(-1)
        else:
            scores = activations * self.scale
        n_objects = targets.shape[1] if targets is not None and targets.dim() == 2 else 1
        drawn = self.reconstruct(self.decoder, poses, scores, targets, n_objects)
        returned = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(poses, activations), returned, drawn)


@final
class PooledHead(_Headed):
    """One vector from all positions, and a linear classifier.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: the backbone.
        neck: channels of the 1x1 convolution.
        pool: mean over positions, all positions in a row, or a mean with learned attention.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: SmallResNet,
        neck: int,
        pool: Pool,
    ) -> None:
        super().__init__(image_shape, n_classes, backbone, neck)
        self.pool = pool
        self.attention = nn.Conv2d(neck, 1, 1) if pool == "attention" else None
        places = self.size[0] * self.size[1] if pool == "flatten" else 1
        self.classifier = nn.Linear(neck * places, n_classes)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return logits."""
        features = self.neck_features(images)
        if self.attention is not None:
            weights = self.attention(features).flatten(1).softmax(dim=-1)
            pooled = torch.einsum("bcp,bp->bc", features.flatten(2), weights)
        elif self.pool == "average":
            pooled = features.mean(dim=(2, 3))
        else:
            pooled = features.flatten(1)
        return Output(self.classifier(pooled))


@dataclass(frozen=True)
class HeadFactory:
    """A builder of the backbone with one head, wide enough for the common number of parameters.

    Attributes:
        head: a routing class or a partial of one, or a name of :data:`POOLS`.
        width: width of the backbone.
        stride: stride of the backbone's first convolution.
        neck: channels of the 1x1 convolution under the default routing.
        draws: add a decoder to capsules.
    """

    head: RoutingFactory | Pool
    width: int
    stride: int
    neck: int
    draws: bool = False

    def __call__(self, image_shape: ImageShape, n_classes: int) -> Network:
        """Build the network for these images."""

        def count(head: RoutingFactory | Pool, neck: int) -> int:
            with torch.device("meta"):
                return compared_parameters(self._build(head, neck, image_shape, n_classes))

        one, two = count(self.head, 1), count(self.head, 2)
        wanted = count(defaults.LINEAR, self.neck)
        neck = max(1, 1 + round((wanted - one) / (two - one)))
        return self._build(self.head, neck, image_shape, n_classes)

    def _build(
        self, head: RoutingFactory | Pool, neck: int, image_shape: ImageShape, n_classes: int
    ) -> Network:
        backbone = SmallResNet(image_shape[0], width=self.width, stride=self.stride)
        if not callable(head):
            if head not in POOLS:
                raise UsageError(f"a head is a routing or one of {', '.join(POOLS)}, not {head!r}")
            return PooledHead(image_shape, n_classes, backbone=backbone, neck=neck, pool=head)
        routing = cast(Callable[..., Routing], head)
        return RoutedHead(
            image_shape,
            n_classes,
            backbone=backbone,
            neck=neck,
            routing=routing,
            draws=self.draws,
        )


def compared_parameters(network: Network) -> int:
    """Return the number of learned parameters without the decoder's."""
    decoder = getattr(network, "decoder", None)
    drawn = sum(p.numel() for p in decoder.parameters()) if decoder is not None else 0
    return network.n_parameters - drawn
