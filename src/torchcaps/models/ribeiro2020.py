"""The networks of Ribeiro 2020: matrix capsules with Variational Bayes routing.

Layers, widths and initialization are those of the authors' code, at
https://github.com/fabio-deep/Variational-Capsule-Routing.
"""

import math
from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import ClassCapsules, ConvCapsules, LinearCapsules
from torchcaps.models.entry import CIFAR, MNIST, NORB, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import ConvBackbone
from torchcaps.routing import VariationalRouting
from torchcaps.tensors import output_size

D_POSE = 16
ROUTING = partial(VariationalRouting, batch_norm=True)


@final
class NormalizedCapsules(nn.Module):
    """Primary capsules: poses and activations by one convolution, each normalized over the batch.

    Every type has one mean and one variance for all entries of its poses.
    """

    def __init__(self, channels: int, n_types: int, kernel_size: int = 1, stride: int = 1) -> None:
        super().__init__()
        self.n_types = n_types
        self.conv = nn.Conv2d(channels, n_types * (D_POSE + 1), kernel_size, stride, bias=False)
        split = (n_types * D_POSE, n_types)
        for weight in self.conv.weight.data.split(split):
            nn.init.xavier_uniform_(weight)
        self.pose_norm = nn.BatchNorm3d(n_types)
        self.activation_norm = nn.BatchNorm2d(n_types)

    def forward(self, features: Tensor) -> Capsules:
        """Return capsules on the grid of the convolution's output."""
        split = (self.n_types * D_POSE, self.n_types)
        poses, logits = self.conv(features).split(split, dim=1)
        poses = self.pose_norm(poses.unflatten(1, (self.n_types, D_POSE)))
        present = self.activation_norm(logits).sigmoid()
        return Capsules(poses.permute(0, 3, 4, 1, 2), present.permute(0, 2, 3, 1))


def start_uniformly(weight: nn.Parameter, fan_in: int, fan_out: int) -> None:
    """Draw vote weights by Xavier's rule for these numbers of inputs and outputs."""
    bound = math.sqrt(6 / (fan_in + fan_out))
    nn.init.uniform_(weight, -bound, bound)


class _Stem(Network):
    """A 5x5 convolution with 64 channels and batch normalization, which both networks start with.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
    """

    def __init__(self, image_shape: ImageShape, n_classes: int) -> None:
        super().__init__(image_shape, n_classes)
        self.backbone = ConvBackbone(image_shape[0], 64, 5, stride=2, batch_norm=True)
        nn.init.kaiming_uniform_(self.backbone.conv.weight)
        self.size = self.backbone.output_size(image_shape[1], image_shape[2])
        if min(self.size) < 7:
            raise InputError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small for "
                f"{type(self).__name__}: use at least 17x17 pixels"
            )


@final
class VariationalCapsNet(_Stem):
    """Primary capsules, two capsule convolutions and class capsules, with 4x4 poses.

    Class capsules share weights over positions and add coordinates.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        widths: types of the primary capsules and of the two convolutions.
        iterations: routing iterations.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        widths: tuple[int, int, int] = (8, 16, 16),
        iterations: int = 3,
    ) -> None:
        super().__init__(image_shape, n_classes)
        b, c, d = widths
        routing = partial(ROUTING, iterations=iterations)
        conv = partial(ConvCapsules, kernel_size=3, routing=routing, matrix=True)
        self.primary = NormalizedCapsules(64, b)
        self.conv1 = conv(b, c, D_POSE, D_POSE, stride=2)
        self.conv2 = conv(c, d, D_POSE, D_POSE)
        self.classes = ClassCapsules(d, n_classes, D_POSE, D_POSE, routing=routing)
        for layer, inputs, outputs in ((self.conv1, b, c), (self.conv2, c, d)):
            start_uniformly(layer.weight, 9 * inputs * D_POSE, 9 * outputs * D_POSE)
        start_uniformly(self.classes.weight, d * D_POSE, n_classes * D_POSE)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations and poses of the classes."""
        first = self.conv1(self.primary(self.backbone(self.checked(images))))
        second = self.conv2(first)
        routed = self.classes(second)
        returned = (first.couplings, second.couplings, routed.couplings) if couplings else ()
        return Output(routed.activations, Capsules(routed.poses, routed.activations), returned)


@final
class OneLayerVariationalCapsNet(_Stem):
    """Primary capsules by a strided 3x3 convolution, and a capsule of each class over all of them.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        n_types: types of the primary capsules.
        iterations: routing iterations.
    """

    def __init__(
        self, image_shape: ImageShape, n_classes: int, *, n_types: int = 16, iterations: int = 3
    ) -> None:
        super().__init__(image_shape, n_classes)
        self.primary = NormalizedCapsules(64, n_types, kernel_size=3, stride=2)
        height, width = output_size(self.size, (3, 3), (2, 2), (0, 0))
        n_children = height * width * n_types
        self.classes = LinearCapsules(
            n_children,
            n_classes,
            D_POSE,
            D_POSE,
            routing=partial(ROUTING, iterations=iterations),
            matrix=True,
        )
        fan_out = height * width * n_classes * D_POSE
        start_uniformly(self.classes.weight, n_children * D_POSE, fan_out)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations and poses of the classes."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        returned = (routed.couplings,) if couplings else ()
        return Output(routed.activations, Capsules(routed.poses, routed.activations), returned)


def networks() -> dict[str, Entry]:
    """Return the networks of the authors' code, with one for each data set."""
    return {
        "smallnorb": Entry(VariationalCapsNet, NORB, 5),
        "smallnorb-one-layer": Entry(OneLayerVariationalCapsNet, NORB, 5),
        "fashion-mnist": Entry(VariationalCapsNet, MNIST),
        "svhn": Entry(VariationalCapsNet, CIFAR),
        "cifar10": Entry(VariationalCapsNet, CIFAR),
    }
