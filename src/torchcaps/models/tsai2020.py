"""The networks of Tsai 2020: inverted dot-product attention capsules and what it compares with."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, cast, final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output, Routed
from torchcaps.errors import InputError
from torchcaps.layers import (
    CapsuleLayer,
    ConvCapsules,
    LinearCapsules,
    PoseNorm,
    PrimaryCapsules,
    Squash,
)
from torchcaps.layers.primary import Nonlinearity
from torchcaps.models.entry import CIFAR, MULTI, Entry
from torchcaps.models.hinton2018 import BALANCED, EMCapsNet, scaled
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import (
    Backbone,
    BackboneFactory,
    BasicBlock,
    ConvBackbone,
    ImageConv2d,
)
from torchcaps.models.parts.baselines import baseline_cnn, multimnist_cnn, resnet18
from torchcaps.models.sabour2017 import plain_capsnet
from torchcaps.routing import DynamicRouting, InvertedAttentionRouting, RoutingFactory
from torchcaps.routing.base import check_iterations
from torchcaps.tensors import output_size


class Conv(NamedTuple):
    """Kernel size and stride of a capsule convolution."""

    kernel_size: int
    stride: int


POINTWISE = Conv(1, 1)
CONVS = (Conv(3, 2), Conv(3, 1))

RESNET_SCALES = BALANCED._replace(beta_u=(-0.3, 1.7, 1.3))
"""The sums of residual blocks make primary poses longer than one convolution does."""

simple_backbone = partial(ConvBackbone, out_channels=256, kernel_size=3, stride=2, padding=1)
"""The simple backbone of Table 8; Table 9 has 128 channels."""


@final
class AttentionCapsNet(Network):
    """Primary capsules, capsule convolutions, linear capsule layers, one shared linear classifier.

    Inference is Procedure 2. The first iteration runs the layers in order. Each later one updates
    all layers at once, from the previous poses of the layer and of the one below (concurrent).
    Sequential routing (ablation B) runs all iterations of a layer before the next layer.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: backbone class, or a partial of one.
        primary: kernel size and stride of the convolution that makes the primary capsules.
        n_types: capsule types of the primary capsules and of every convolution.
        d: pose size.
        matrix: matrix poses (Tables 8 to 10) or vector poses (Table 11).
        convs: the capsule convolutions.
        hidden: sizes of linear capsule layers before the class capsules (CIFAR-100: 20).
        iterations: routing iterations; the first one couples uniformly.
        concurrent: False is ablation B.
        layer_norm: False is ablation A.
        activated: give the capsules activations, as in EM routing: ablation C. The classifier
            then reads the poses times the activations.
        routing: another routing for all layers; it iterates within each of them (Figure 5).
        weight_std: standard deviation of the initial vote weights; None takes the layers' default,
            which suits votes before LayerNorm.
        nonlinearity: nonlinearity of the primary capsules; None takes LayerNorm, unless
            ``layer_norm`` is False.
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
        nonlinearity: Nonlinearity | None = None,
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
            nonlinearity=nonlinearity or (PoseNorm if layer_norm else None),
            activations=activated,
        )
        n_children = self._positions((primary, *convs)) * n_types
        conv = partial(ConvCapsules, routing=routing, matrix=matrix, weight_std=weight_std)
        linear = partial(LinearCapsules, routing=routing, matrix=matrix, weight_std=weight_std)
        self.layers = nn.ModuleList()
        for kernel_size, stride in convs:
            self.layers.append(conv(n_types, n_types, d, d, kernel_size=kernel_size, stride=stride))
        for n_parents in (*hidden, n_classes):
            self.layers.append(linear(n_children, n_parents, d, d))
            n_children = n_parents
        self.classifier = nn.Linear(d, 1)
        # a routing that starts from the votes alone iterates in its layer
        self.iterations = iterations if self.takes_parents else 1

    def _positions(self, convs: Sequence[Conv]) -> int:
        """Return the number of positions after these convolutions of the features."""
        grid = self.backbone.output_size(self.image_shape[1], self.image_shape[2])
        for kernel_size, stride in convs:
            grid = output_size(grid, (kernel_size, kernel_size), (stride, stride))
            if min(grid) < 1:
                raise InputError(
                    f"images of {self.image_shape[1]}x{self.image_shape[2]} are too small for this "
                    "network's convolutions"
                )
        return grid[0] * grid[1]

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return logits and poses of the classes."""
        primary = self.primary(self.backbone(self.checked(images)))
        if self.concurrent:
            routed = self.concurrently(primary, whole=couplings)
        else:
            routed = self.sequentially(primary)
        last = routed[-1]
        weight = last.activations[..., None] if self.activated else 1
        scores = self.classifier(last.poses * weight).squeeze(-1)
        returned = tuple(layer.couplings for layer in routed) if couplings else ()
        return Output(scores, Capsules(last.poses, last.activations), returned)

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
        """Run Procedure 2: all layers in order, then all at once in each later iteration.

        Primary capsules never change, so the first layer's votes are prepared once. An update of a
        layer reaches the layer above one iteration later. The last updates of the lower layers
        therefore never reach the class capsules; they run only if ``whole``. Otherwise the lower
        layers return poses of an earlier iteration.
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
        """Run ablation B: each layer runs all its iterations before the next begins."""
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


@final
class ResNetBackbone(Backbone):
    """The ResNet backbone: 3 blocks of 64 channels, then 4 wider ones at half the size.

    The paper says that four blocks have stride 2, and that 32x32 images give 16x16 features. Only
    the first of the four can have the stride.
    """

    def __init__(self, in_channels: int, out_channels: int = 128) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.layers = nn.Sequential(
            ImageConv2d(in_channels, 64, 3, padding=1, bias=False),
            nn.BatchNorm2d(64),
            nn.ReLU(),
            *(BasicBlock(64, 64) for _ in range(3)),
            BasicBlock(64, out_channels, stride=2),
            *(BasicBlock(out_channels, out_channels) for _ in range(3)),
        )

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return half of each side, rounded up."""
        return (height + 1) // 2, (width + 1) // 2


def networks() -> dict[str, Entry]:
    """Return the networks of Table 1, Figure 4 with its ablations, and Figure 5.

    ``-unscaled`` networks have the agreement of Eq. 2 as printed, without the code's 1/sqrt(d).
    """
    entries: dict[str, Entry] = {}
    em_backbone = partial(ConvBackbone, kernel_size=4, stride=2, padding=1, batch_norm=True)
    dynamic = partial(plain_capsnet, routing=DynamicRouting, coupled=False)
    larger = partial(AttentionCapsNet, d=36, hidden=(20,))
    sizes10 = ("0.56M", "1.83M", "7.99M", "12.45M", "0.45M", "1.71M", "18.92M", "11.17M")
    sizes100 = ("1.46M", "2.80M", "31.59M", "36.04M", "0.50M", "1.76M", "19.01M", "11.22M")
    for name, classes, ours, width, sizes in (
        ("cifar10", 10, partial(AttentionCapsNet), 256, sizes10),
        ("cifar100", 100, larger, 128, sizes100),
    ):
        simple = partial(simple_backbone, out_channels=width)
        variants: dict[str, Callable[..., Network]] = {
            "simple": partial(ours, backbone=simple),
            "resnet": partial(ours, backbone=ResNetBackbone),
            "simple-dynamic": dynamic,
            "resnet-dynamic": partial(
                dynamic, backbone=partial(ResNetBackbone, out_channels=256), stride=1
            ),
            "simple-em": partial(EMCapsNet, backbone=em_backbone, iterations=2),
            "resnet-em": partial(
                EMCapsNet, backbone=ResNetBackbone, iterations=2, scales=RESNET_SCALES
            ),
            "baseline": baseline_cnn,
            "resnet18": resnet18,
        }
        for (variant, make), size in zip(variants.items(), sizes, strict=True):
            entry = Entry(make, CIFAR, classes, size)
            entries[f"{name}-{variant}"] = scaled(entry) if variant.endswith("-em") else entry
    unscaled = partial(InvertedAttentionRouting, scale=1.0)
    entries |= {
        "cifar10-resnet-unscaled": Entry(
            partial(AttentionCapsNet, backbone=ResNetBackbone, routing=unscaled), CIFAR
        ),
        "cifar10-simple-a": Entry(partial(AttentionCapsNet, layer_norm=False), CIFAR),
        "cifar10-simple-b": Entry(partial(AttentionCapsNet, concurrent=False), CIFAR),
        "cifar10-simple-c": Entry(partial(AttentionCapsNet, activated=True), CIFAR),
    }
    return entries | _figure_5()


def _figure_5() -> dict[str, Entry]:
    """Return the networks for DiverseMultiMNIST.

    ``vector-extra`` has the second layer of ten capsules that a third party's configuration has.
    """
    wide = partial(simple_backbone, out_channels=1024)
    digits = partial(
        AttentionCapsNet, backbone=wide, primary=Conv(3, 2), n_types=16, d=64, convs=(Conv(3, 1),)
    )
    vector = partial(digits, matrix=False)
    shape = (3, 36, 36)
    return {
        "diversemultimnist-matrix": Entry(digits, shape),
        "diversemultimnist-vector": Entry(vector, shape),
        "diversemultimnist-vector-dynamic": Entry(
            # squash makes votes of Tsai's scale too short to learn from
            partial(vector, routing=DynamicRouting, weight_std=0.15, nonlinearity=Squash),
            shape,
            earlier=(partial(vector, routing=DynamicRouting, weight_std=0.1),),
        ),
        "diversemultimnist-matrix-unscaled": Entry(
            partial(digits, routing=partial(InvertedAttentionRouting, scale=1.0)), shape
        ),
        "diversemultimnist-vector-extra": Entry(partial(vector, hidden=(10,)), shape),
        "diversemultimnist-baseline": Entry(multimnist_cnn, shape),
        "diversemultimnist-baseline-learned": Entry(
            partial(multimnist_cnn, learned_pooling=True), MULTI, paper="42.49M"
        ),
    }
