"""The networks of Choi 2019: AR CapsNet, and the CapsuleNet it compares with."""

import math
from functools import partial
from typing import final

import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.functional import normalized_lengths
from torchcaps.layers import (
    ConvTransformCapsules,
    FullyConnectedDecoder,
    PrimaryCapsules,
    RectifiedActivation,
)
from torchcaps.layers.votes import keras_std
from torchcaps.models.entry import CIFAR, MNIST, WIDE, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import ImageConv2d, keras_norm
from torchcaps.models.sabour2017 import CapsNet
from torchcaps.routing import AttentionRouting, DynamicRouting


def backbone(channels: int) -> nn.Sequential:
    """Build the two convolutions under the capsules."""
    return nn.Sequential(
        ImageConv2d(channels, 64, 3, padding=1),
        keras_norm(64),
        nn.ReLU(),
        nn.Conv2d(64, 64, 3, padding=1),
        keras_norm(64),
        nn.ReLU(),
    )


@final
class ARCapsNet(Network):
    """Two convolutions, primary capsules, conv caps layers and one fully conv caps layer (Fig. 1).

    Scores are normalized lengths (Eq. 10); the network has a decoder. The first conv caps layer
    halves the grid. Each later one adds its input before the tanh.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        n_layers: number of conv caps layers, 0 to 4 in the paper.
        d: pose size of the conv caps and fully conv caps layers.
        n_channels: capsule channels of every layer but the last.
        d_primary: pose size of the primary capsules.
        dropout: dropout of the capsules that enter a conv caps or fully conv caps layer.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        n_layers: int = 1,
        d: int = 32,
        n_channels: int = 8,
        d_primary: int = 16,
        dropout: float = 0.5,
    ) -> None:
        super().__init__(image_shape, n_classes)
        if n_layers < 0:
            raise ValueError(f"n_layers must be at least 0, not {n_layers}")
        self.backbone = backbone(image_shape[0])
        self.primary = PrimaryCapsules(
            64,
            n_channels,
            d_primary,
            kernel_size=3,
            stride=2,
            padding=1,
            nonlinearity=RectifiedActivation,
        )
        self.dropout = dropout
        grid = tuple((n + 1) // 2 for n in image_shape[1:])
        inner = partial(AttentionRouting, bounded=False)

        def glorot(area: int, d_in: int, n_out: int) -> float:
            """Return the Glorot standard deviation of the authors' Keras convolution."""
            return math.sqrt(2 / (area * (d_in + n_channels * d * n_out)))

        conv = partial(
            ConvTransformCapsules, n_channels, n_channels, kernel_size=3, padding=1, routing=inner
        )
        self.layers = nn.ModuleList()
        d_child = d_primary
        for layer in range(n_layers):
            std = glorot(9, d_child, n_channels)
            self.layers.append(conv(d_child, d, stride=1 if layer else 2, weight_std=std))
            d_child = d
        if n_layers:
            grid = tuple((n + 1) // 2 for n in grid)
        std = glorot(grid[0] * grid[1], d_child, n_classes)
        self.classes = ConvTransformCapsules(
            n_channels, n_classes, d_child, d, kernel_size=(grid[0], grid[1]), weight_std=std
        )
        self.decoder = FullyConnectedDecoder(n_classes, d, image_shape, hidden=(512, 512))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return normalized lengths, poses and reconstructions of the classes."""
        poses = self.primary(self.backbone(self.checked(images))).poses
        all_couplings = []
        for number, layer in enumerate(self.layers):
            routed = layer(Capsules(self._drop(poses)))
            poses = routed.poses.tanh() if number == 0 else (poses + routed.poses).tanh()
            all_couplings.append(routed.couplings)
        routed = self.classes(Capsules(self._drop(poses)))
        all_couplings.append(routed.couplings)
        classes = routed.poses.flatten(1, 3)
        scores = normalized_lengths(classes)
        reconstruction = self.reconstruct(self.decoder, classes, scores, targets, 1)
        returned = tuple(all_couplings) if couplings else ()
        return Output(scores, Capsules(classes, scores), returned, reconstruction)

    def _drop(self, poses: Tensor) -> Tensor:
        return F.dropout(poses, self.dropout, self.training)


def networks() -> dict[str, Entry]:
    """Return the networks of Tables 1 and 2, with the CapsuleNet they compare with.

    The CapsuleNet's votes start as in the Keras code that the paper names: by Glorot's rule over
    all children and classes. Sabour's initialization makes votes 50 times longer, and on CIFAR-10
    the first step of Adam saturates the lengths of all classes.
    """
    entries = {
        "mnist": Entry(ARCapsNet, MNIST, paper="5.31M"),
        "affnist": Entry(partial(ARCapsNet, d=16), WIDE),
        "cifar10": Entry(partial(ARCapsNet, n_layers=4), CIFAR, paper="9.6M"),
    }
    published = {16: ("7.3M", "3.5M", "3.7M", "3.8M", "4.0M")}
    published[32] = ("12.6M", "7.7M", "8.4M", "8.9M", "9.6M")
    for d, sizes in published.items():
        for n_layers, size in enumerate(sizes):
            make = partial(ARCapsNet, n_layers=n_layers, d=d)
            entries[f"cifar10-{n_layers}-{d}"] = Entry(make, CIFAR, paper=size)
    entries["cifar10-4-32"] = entries["cifar10"]  # Table 2 ends with the network of Table 1
    for name, shape, n_children, size in (
        ("mnist-dynamic", MNIST, 6 * 6 * 32, "8.21M"),
        ("cifar10-dynamic", CIFAR, 8 * 8 * 32, "11.74M"),
    ):
        std = keras_std(n_children, 10, 8, 16)
        capsule_net = partial(CapsNet, routing=DynamicRouting, coupled=False, weight_std=std)
        entries[name] = Entry(capsule_net, shape, paper=size)
    return entries
