"""The networks of Hinton 2018: matrix capsules for smallNORB, which Tsai 2020 compares with."""

import math
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast, final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import ClassCapsules, ConvCapsules, PrimaryCapsules
from torchcaps.models.entry import NORB, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import BackboneFactory, ConvBackbone
from torchcaps.routing import EMRouting
from torchcaps.routing.base import Competition
from torchcaps.tensors import output_size

BACKBONE = partial(ConvBackbone, out_channels=32, kernel_size=5, stride=2)
"""The paper's 5x5 convolution with A = 32 channels, without padding as in the authors' code."""


class Scales(NamedTuple):
    """Scales of EM routing with which the activations of a network differ and can be learned.

    Attributes:
        cost: for each of the three layers, ``cost_scale`` times its children per parent.
        beta: ``beta_scale`` of every layer.
        beta_u: start of beta_u in the three layers. Near minus the logarithm of the standard
            deviation of a parent's votes, half of the capsules are active.
    """

    cost: tuple[float, float, float] = (400.0, 400.0, 100.0)
    beta: float = 500.0
    beta_u: tuple[float, float, float] = (0.7, 2.4, 1.3)


BALANCED = Scales()
"""The scales settled by experiment; see ``docs/papers/hinton2018.md``."""


@final
class EMCapsNet(Network):
    """Primary capsules, two capsule convolutions and class capsules, with 4x4 poses and EM routing.

    Class capsules share weights over positions and add coordinates. The scores are activations,
    trained with the spread loss. Poses shrink on their way up, because a parent is a mean of many
    votes; ``scales`` makes up for it.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: backbone class, or a partial of one; the paper's 5x5 convolution by default.
        widths: B, C and D: types of the primary capsules and of the two convolutions.
        iterations: routing iterations.
        competition: "image" is the paper's, "window" cheaper; see :class:`ConvCapsules`.
        scales: scales of cost and beta. None takes 1 for both, as the paper prints, and 0 for the
            start of beta_u; activations of the convolutions then stay near one half.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: BackboneFactory = BACKBONE,
        widths: tuple[int, int, int] = (32, 32, 32),
        iterations: int = 3,
        competition: Competition = "image",
        scales: Scales | None = BALANCED,
    ) -> None:
        super().__init__(image_shape, n_classes)
        self.backbone = backbone(image_shape[0])
        size = self.backbone.output_size(image_shape[1], image_shape[2])
        if min(size) < 7:
            raise InputError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small: their features are "
                f"{size[0]}x{size[1]}, and the two capsule convolutions need 7x7"
            )
        b, c, d = widths
        self.primary = PrimaryCapsules(
            self.backbone.out_channels, b, 16, nonlinearity=None, activations=True
        )
        nn.init.kaiming_normal_(self.primary.pose_conv.weight)
        routings = [partial(EMRouting, iterations=iterations)] * 3
        if scales is not None:
            ratios = _children_per_parent(size, widths, n_classes, competition)
            routings = [
                partial(routing, cost_scale=cost / ratio, beta_scale=scales.beta)
                for routing, cost, ratio in zip(routings, scales.cost, ratios, strict=True)
            ]
        conv = partial(
            ConvCapsules, kernel_size=3, matrix=True, competition=competition, weight_std=0.5
        )
        self.conv1 = conv(b, c, 16, 16, stride=2, routing=routings[0])
        self.conv2 = conv(c, d, 16, 16, routing=routings[1])
        self.classes = ClassCapsules(d, n_classes, 16, 16, routing=routings[2], weight_std=0.5)
        if scales is not None:
            for layer, start in zip(
                (self.conv1, self.conv2, self.classes), scales.beta_u, strict=True
            ):
                nn.init.constant_(cast(EMRouting, layer.routing).beta_u, start)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations and poses of the classes."""
        first = self.conv1(self.primary(self.backbone(self.checked(images))))
        second = self.conv2(first)
        routed = self.classes(second)
        returned = (first.couplings, second.couplings, routed.couplings) if couplings else ()
        return Output(routed.activations, Capsules(routed.poses, routed.activations), returned)


def _children_per_parent(
    size: tuple[int, int], widths: tuple[int, int, int], n_classes: int, competition: Competition
) -> tuple[float, float, float]:
    """Return the number of children per parent in the three layers, among those that compete."""
    first = output_size(size, (3, 3), (2, 2))
    second = output_size(first, (3, 3), (1, 1))
    b, c, d = (math.prod(grid) * n for grid, n in zip((size, first, second), widths, strict=True))
    if competition == "image":
        return b / c, c / d, d / n_classes
    return 9 * widths[0] / widths[1], 9 * widths[1] / widths[2], d / n_classes


def networks() -> dict[str, Entry]:
    """Return the smallNORB network, and the smaller one of Gritzman's study, which pads."""
    backbone = partial(ConvBackbone, out_channels=64, kernel_size=5, stride=2, padding=2)
    small = partial(EMCapsNet, backbone=backbone, widths=(8, 16, 16))
    return {
        "smallnorb": scaled(Entry(EMCapsNet, NORB, 5, paper="310K")),
        "smallnorb-small": scaled(Entry(small, NORB, 5, paper="68K")),
    }


def scaled(entry: Entry) -> Entry:
    """Return the entry of an EM network with the network before it was scaled as definition 1."""
    return replace(entry, earlier=(partial(entry.make, scales=None),))
