"""The networks of Hahn 2019: ResNet-20 under six heads, three of them capsules.

Layers and widths are those of the authors' code, at https://github.com/coder3000/SR-CapsNet, with
its defaults: 32 types of capsules with poses of 16, and one layer of class capsules.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output, Routed
from torchcaps.functional import squash
from torchcaps.layers import CapsuleLayer, LinearCapsules
from torchcaps.models.entry import CIFAR, Entry
from torchcaps.models.network import Classifier, ImageShape, Network
from torchcaps.models.parts.backbones import Backbone, BasicBlock, ImageConv2d
from torchcaps.routing import DynamicRouting, EMRouting, SelfRouting, Sizes
from torchcaps.votes import Votes

N_TYPES, D_POSE = 32, 16

ClassLayer = Callable[[int, int], CapsuleLayer]
"""Called with the numbers of children and of classes."""


@final
class ResNet20(Backbone):
    """ResNet-20 of He 2016a without its pooling: three groups of three blocks.

    Where a block doubles the channels, zeros pad its shortcut.

    Args:
        in_channels: channels of the images.
        width: channels of the first group; the next two have twice and four times as many.
    """

    def __init__(self, in_channels: int, width: int = 16) -> None:
        super().__init__()
        self.out_channels = 4 * width
        blocks: list[nn.Module] = []
        channels = width
        for group in (width, 2 * width, 4 * width):
            for _ in range(3):
                stride = 1 if channels == group else 2
                blocks.append(BasicBlock(channels, group, stride, padded=True))
                channels = group
        stem = ImageConv2d(in_channels, width, 3, padding=1, bias=False)
        self.layers = nn.Sequential(stem, nn.BatchNorm2d(width), nn.ReLU(), *blocks)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_uniform_(module.weight)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return a quarter of each side, rounded up."""
        return (height + 3) // 4, (width + 3) // 4


@final
class NormalizedPrimary(nn.Module):
    """Primary capsules by 3x3 convolutions, normalized over the batch.

    Args:
        channels: channels of the features.
        activations: also activations, the logistic of a second convolution; otherwise squashed
            poses.
    """

    def __init__(self, channels: int, *, activations: bool) -> None:
        super().__init__()
        self.poses = self._normalized(channels, N_TYPES * D_POSE)
        self.logits = self._normalized(channels, N_TYPES) if activations else None

    def _normalized(self, inputs: int, outputs: int) -> nn.Sequential:
        conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        nn.init.kaiming_uniform_(conv.weight)
        return nn.Sequential(conv, nn.BatchNorm2d(outputs))

    def forward(self, features: Tensor) -> Capsules:
        """Return capsules on the grid of the features."""
        poses = self.poses(features).unflatten(1, (N_TYPES, D_POSE)).permute(0, 3, 4, 1, 2)
        if self.logits is None:
            return Capsules(squash(poses))
        return Capsules(poses, self.logits(features).sigmoid().permute(0, 2, 3, 1))


@final
class PoselessCapsules(CapsuleLayer):
    """Self-routed parents that have activations and no poses, as the authors' last layer.

    Activations of self-routing need no votes, so that every vote and every pose is the number 1.
    """

    def __init__(self, n_children: int, n_parents: int) -> None:
        super().__init__()
        self.routing = SelfRouting(Sizes(n_children, n_parents, D_POSE, 1), bias=True)

    def votes(self, children: Capsules | Routed) -> Votes:
        """Return votes of 1, whatever the pose."""
        poses = Capsules(children.poses).flat().poses
        weight = poses.new_zeros(1, self.routing.sizes.n_parents, D_POSE, 1)
        return Votes(poses, weight, bias=poses.new_ones(1, 1, 1))

    def forward(self, children: Capsules | Routed) -> Routed:
        """Return the activations of the parents."""
        capsules = Capsules(children.poses, children.activations)
        return self.route(capsules, capsules.flat().activations)


@final
class ResNetCapsNet(Network):
    """ResNet-20, primary capsules, and class capsules over all positions.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        classes: the class capsules; called with the numbers of children and of classes.
        activations: give the primary capsules activations, otherwise squash them.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        classes: ClassLayer = PoselessCapsules,
        activations: bool = True,
    ) -> None:
        super().__init__(image_shape, n_classes)
        self.backbone = ResNet20(image_shape[0])
        self.primary = NormalizedPrimary(self.backbone.out_channels, activations=activations)
        height, width = self.backbone.output_size(image_shape[1], image_shape[2])
        self.classes = classes(height * width * N_TYPES, n_classes)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations and poses of the classes."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        scores = routed.activations
        returned = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), returned)


def dynamic_classes(n_children: int, n_classes: int) -> LinearCapsules:
    """Build class capsules with dynamic routing and vector poses."""
    layer = LinearCapsules(n_children, n_classes, D_POSE, D_POSE, routing=DynamicRouting)
    return _started(layer, n_classes * D_POSE * D_POSE)


def em_classes(n_children: int, n_classes: int) -> LinearCapsules:
    """Build class capsules with EM routing and matrix poses."""
    layer = LinearCapsules(n_children, n_classes, D_POSE, D_POSE, routing=EMRouting, matrix=True)
    return _started(layer, n_classes * D_POSE)


def _started(layer: LinearCapsules, fan_in: int) -> LinearCapsules:
    """Draw vote weights uniformly, by the rule of He 2015 for so many inputs."""
    bound = math.sqrt(6 / fan_in)
    nn.init.uniform_(layer.weight, -bound, bound)
    return layer


def pooled(image_shape: ImageShape, n_classes: int, *, pool: type[nn.Module]) -> Classifier:
    """Build ResNet-20 with one pool over all positions and a linear classifier."""
    backbone = ResNet20(image_shape[0])
    linear = nn.Linear(backbone.out_channels, n_classes)
    nn.init.kaiming_uniform_(linear.weight)
    layers = nn.Sequential(backbone, pool(1), nn.Flatten(), linear)
    return Classifier(image_shape, n_classes, layers)


def connected(image_shape: ImageShape, n_classes: int) -> Classifier:
    """Build ResNet-20 with a convolution as wide as the capsules, and one linear classifier."""
    backbone = ResNet20(image_shape[0])
    height, width = backbone.output_size(image_shape[1], image_shape[2])
    channels = N_TYPES * D_POSE
    conv = nn.Conv2d(backbone.out_channels, channels, 3, padding=1)
    linear = nn.Linear(channels * height * width, n_classes)
    for layer in (conv, linear):
        nn.init.kaiming_uniform_(layer.weight)
    head = nn.Sequential(conv, nn.BatchNorm2d(channels), nn.ReLU(), nn.Flatten(), linear)
    return Classifier(image_shape, n_classes, nn.Sequential(backbone, head))


def networks() -> dict[str, Entry]:
    """Return ResNet-20 with each of the six heads."""
    dynamic = partial(ResNetCapsNet, classes=dynamic_classes, activations=False)
    return {
        "resnet20-self": Entry(ResNetCapsNet, CIFAR, paper="931,664 in the authors' code"),
        "resnet20-dynamic": Entry(dynamic, CIFAR),
        "resnet20-em": Entry(partial(ResNetCapsNet, classes=em_classes), CIFAR),
        "resnet20-average": Entry(partial(pooled, pool=nn.AdaptiveAvgPool2d), CIFAR),
        "resnet20-max": Entry(partial(pooled, pool=nn.AdaptiveMaxPool2d), CIFAR),
        "resnet20-connected": Entry(connected, CIFAR),
    }
