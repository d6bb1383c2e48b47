"""The networks of Tsai 2020: inverted dot-product attention capsules, and the CNN baselines."""

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple, cast, final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output, Routed
from torchcaps.errors import InputError
from torchcaps.layers import CapsuleLayer, ConvCapsules, LinearCapsules, PoseNorm, PrimaryCapsules
from torchcaps.models.backbones import (
    BackboneFactory,
    BasicBlock,
    ConvBackbone,
    ImageConv2d,
    conv3x3,
)
from torchcaps.models.network import Classifier, ImageShape, Network
from torchcaps.routing import InvertedAttentionRouting, RoutingFactory
from torchcaps.routing.base import check_iterations

__all__ = [
    "AttentionCapsNet",
    "Conv",
    "baseline_cnn",
    "multimnist_cnn",
    "resnet18",
    "simple_backbone",
]


class Conv(NamedTuple):
    """Kernel size and stride of a capsule convolution."""

    kernel_size: int
    stride: int


POINTWISE = Conv(1, 1)
CONVS = (Conv(3, 2), Conv(3, 1))

simple_backbone = partial(ConvBackbone, out_channels=256, kernel_size=3, stride=2, padding=1)
"""The simple backbone of Table 8; Table 9 has 128 channels."""


@final
class AttentionCapsNet(Network):
    """Primary capsules, capsule convolutions, linear capsule layers, one shared linear classifier.

    Inference is Procedure 2. The first iteration runs the layers in order. Every later one updates
    all of them at once, each from the poses that it and the layer below had before (concurrent), or
    each in turn as often as there are iterations (sequential, ablation B).

    Args:
        image_shape: channels, height and width of the images.
        n_classes: classes.
        backbone: what turns images into features.
        primary: kernel size and stride of the convolution that makes primary capsules.
        n_types: capsule types of the primary capsules and of every convolution.
        d: size of a pose.
        matrix: matrix poses (Tables 8 to 10) or vector poses (Table 11).
        convs: the capsule convolutions.
        hidden: sizes of linear capsule layers before the class capsules (CIFAR-100: 20).
        iterations: routing iterations; the first one couples uniformly.
        concurrent: False is ablation B.
        layer_norm: False is ablation A.
        activated: capsules have activations too, as in EM routing: ablation C. The classifier then
            sees the poses weighed by them.
        routing: another routing for all layers, which then iterates in each of them (Figure 5).
        weight_std: deviation of the vote weights at the start; by default one that suits votes
            which LayerNorm follows, however short.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: BackboneFactory = simple_backbone,
        primary: Conv = POINTWISE,
        n_types: int = 32,
        d: int = 16,
        matrix: bool = True,
        convs: Sequence[Conv] = CONVS,
        hidden: Sequence[int] = (),
        iterations: int = 2,
        concurrent: bool = True,
        layer_norm: bool = True,
        activated: bool = False,
        routing: RoutingFactory | None = None,
        weight_std: float | None = None,
    ) -> None:
        super().__init__(image_shape, n_classes)
        check_iterations(iterations)
        inverted = partial(InvertedAttentionRouting, layer_norm=layer_norm, activated=activated)
        self.concurrent = concurrent
        self.activated = activated
        routing = routing or inverted
        self.backbone = backbone(image_shape[0])
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            n_types,
            d,
            kernel_size=primary.kernel_size,
            stride=primary.stride,
            bias=False,
            nonlinearity=PoseNorm if layer_norm else None,
            activations=activated,
        )
        size = self.backbone.output_size(image_shape[1], image_shape[2])
        self.layers = nn.ModuleList()
        for kernel_size, stride in (primary, *convs):
            size = ((size[0] - kernel_size) // stride + 1, (size[1] - kernel_size) // stride + 1)
            if min(size) < 1:
                raise InputError(
                    f"images of {image_shape[1]}x{image_shape[2]} are too small for this network's "
                    "convolutions"
                )
        for kernel_size, stride in convs:
            self.layers.append(
                ConvCapsules(
                    n_types,
                    n_types,
                    d,
                    d,
                    kernel_size=kernel_size,
                    stride=stride,
                    routing=routing,
                    matrix=matrix,
                    weight_std=weight_std,
                )
            )
        linear = partial(LinearCapsules, routing=routing, matrix=matrix, weight_std=weight_std)
        n_children = size[0] * size[1] * n_types
        for n_parents in (*hidden, n_classes):
            self.layers.append(linear(n_children, n_parents, d, d))
            n_children = n_parents
        self.classifier = nn.Linear(d, 1)
        # a routing that starts from the votes alone iterates in its layer
        self.iterations = iterations if self.takes_parents else 1

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Logits and poses of the classes."""
        primary = self.primary(self.backbone(self.checked(images)))
        if self.concurrent:
            routed = self.concurrently(primary, whole=couplings)
        else:
            routed = self.sequentially(primary)
        last = routed[-1]
        weight = last.activations[..., None] if self.activated else 1
        scores = self.classifier(last.poses * weight).squeeze(-1)
        kept = tuple(layer.couplings for layer in routed) if couplings else ()
        return Output(scores, Capsules(last.poses, last.activations), kept)

    @property
    def takes_parents(self) -> bool:
        """Return whether the network, and not each layer on its own, iterates."""
        first = cast(CapsuleLayer, self.layers[0])
        return first.routing.takes_parents

    def set_iterations(self, iterations: int) -> None:
        """Route with another number of iterations; nothing that is learned changes."""
        if not self.takes_parents:
            return super().set_iterations(iterations)
        check_iterations(iterations)
        self.iterations = iterations
        self.overrides["iterations"] = iterations

    def concurrently(self, primary: Capsules, *, whole: bool = True) -> list[Routed]:
        """Procedure 2: all layers, once in order, then all at once per iteration.

        Primary capsules never change, so the first layer's votes are prepared once for all of its
        updates. An update of a layer takes one iteration to reach the layer above, so the last one
        of the lower layers never reaches the class capsules: unless ``whole``, those are left out,
        and what is returned for lower layers is of an earlier iteration.
        """
        layers = cast("Sequence[ConvCapsules | LinearCapsules]", tuple(self.layers))
        first = layers[0]
        routed: list[Routed] = [first(primary)]
        for layer in layers[1:]:
            routed.append(layer(routed[-1]))
        updated = self.iterations > (1 if whole else len(layers))
        votes = first.routing.prepared(first.votes(primary)) if updated else None
        for left in reversed(range(self.iterations - 1)):
            lowest = 0 if whole else max(0, len(layers) - 1 - left)
            before = routed
            routed = before[:lowest]
            for index in range(lowest, len(layers)):
                parents = before[index].poses
                if index == 0:
                    routed.append(first(primary, parents, votes))
                else:
                    routed.append(layers[index](before[index - 1], parents))
        return routed

    def sequentially(self, primary: Capsules) -> list[Routed]:
        """Ablation B: each layer takes all its iterations before the next begins."""
        routed: list[Routed] = []
        for layer in cast("Sequence[ConvCapsules | LinearCapsules]", tuple(self.layers)):
            children = routed[-1] if routed else primary
            parents = layer(children)
            updated = self.iterations > 1
            votes = layer.routing.prepared(layer.votes(children)) if updated else None
            for _ in range(self.iterations - 1):
                parents = layer(children, parents.poses, votes)
            routed.append(parents)
        return routed


def baseline_cnn(image_shape: ImageShape, n_classes: int) -> Classifier:
    """The baseline CNN of Tables 2 and 3: three convolutions of 1,024 channels."""
    layers = nn.Sequential(
        ImageConv2d(image_shape[0], 1024, 3, stride=2, padding=1),
        nn.ReLU(),
        *_conv_relu_norm(stride=2, padding=1),
        nn.AvgPool2d(2),
        *_conv_relu_norm(stride=2, padding=1),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(1024, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)


def multimnist_cnn(
    image_shape: ImageShape, n_classes: int, *, learned_pooling: bool = False
) -> Classifier:
    """The baseline CNN of Table 12, pooling by average or by one learned linear layer."""
    channels, height, width = image_shape
    features = nn.Sequential(
        ImageConv2d(channels, 1024, 3, stride=2, padding=1),
        nn.ReLU(),
        *_conv_relu_norm(stride=2, padding=0),
        *_conv_relu_norm(stride=1, padding=0),
    )
    positions = 1
    for n in (height, width):
        positions *= (((n - 1) // 2 + 1) - 3) // 2 + 1 - 2
    pooling: list[nn.Module]
    if learned_pooling:
        pooling = [nn.Flatten(), nn.Linear(1024 * positions, 640)]
    else:
        pooling = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(1024, 640)]
    return Classifier(
        image_shape, n_classes, nn.Sequential(features, *pooling, nn.Linear(640, n_classes))
    )


def _conv_relu_norm(*, stride: int, padding: int) -> tuple[nn.Module, nn.Module, nn.Module]:
    return (nn.Conv2d(1024, 1024, 3, stride, padding), nn.ReLU(), nn.BatchNorm2d(1024))


def resnet18(image_shape: ImageShape, n_classes: int) -> Classifier:
    """ResNet-18 with a 3x3 stem and no pooling after it, as usual for CIFAR."""
    blocks: list[nn.Module] = []
    width = 64
    for channels in (64, 128, 256, 512):
        blocks += [
            BasicBlock(width, channels, stride=1 if channels == 64 else 2),
            BasicBlock(channels, channels),
        ]
        width = channels
    layers = nn.Sequential(
        conv3x3(image_shape[0], 64),
        nn.BatchNorm2d(64),
        nn.ReLU(),
        *blocks,
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(512, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)
