"""The networks of Hinton 2018: matrix capsules for smallNORB, which Tsai 2020 compares with."""

from functools import partial
from typing import Literal, final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import ClassCapsules, ConvCapsules, PrimaryCapsules
from torchcaps.models.entry import NORB, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import BackboneFactory, ConvBackbone
from torchcaps.routing import EMRouting

BACKBONE = partial(ConvBackbone, out_channels=32, kernel_size=5, stride=2)
"""The paper's 5x5 convolution with A = 32 channels, without padding as in the authors' code."""


@final
class EMCapsNet(Network):
    """Primary capsules, two capsule convolutions and class capsules, with 4x4 poses and EM routing.

    Class capsules share weights over positions and add coordinates. The scores are activations,
    trained with the spread loss. Poses shrink on their way up: in the network of width 32 their
    standard deviation starts at 0.99, 0.125 and 0.018. With the scales of :func:`vote_weight`, it
    starts with equal scores of 1.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: backbone class, or a partial of one; the paper's 5x5 convolution by default.
        widths: B, C and D: types of the primary capsules and of the two convolutions.
        iterations: routing iterations.
        competition: "image" is the paper's, "window" cheaper; see :class:`ConvCapsules`.
        cost_scale: see :func:`em_routing`; 1 is the paper's.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: BackboneFactory = BACKBONE,
        widths: tuple[int, int, int] = (32, 32, 32),
        iterations: int = 3,
        competition: Literal["image", "window"] = "image",
        cost_scale: float = 1.0,
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
        routing = partial(EMRouting, iterations=iterations, cost_scale=cost_scale)
        self.primary = PrimaryCapsules(
            self.backbone.out_channels, b, 16, nonlinearity=None, activations=True
        )
        nn.init.kaiming_normal_(self.primary.pose_conv.weight)
        conv = partial(
            ConvCapsules,
            kernel_size=3,
            routing=routing,
            matrix=True,
            competition=competition,
            weight_std=0.5,
        )
        self.conv1 = conv(b, c, 16, 16, stride=2)
        self.conv2 = conv(c, d, 16, 16)
        self.classes = ClassCapsules(d, n_classes, 16, 16, routing=routing, weight_std=0.5)

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return activations and poses of the classes."""
        first = self.conv1(self.primary(self.backbone(self.checked(images))))
        second = self.conv2(first)
        routed = self.classes(second)
        returned = (first.couplings, second.couplings, routed.couplings) if couplings else ()
        return Output(routed.activations, Capsules(routed.poses, routed.activations), returned)


def networks() -> dict[str, Entry]:
    """Return the smallNORB network, and the smaller one of Gritzman's study, which pads."""
    backbone = partial(ConvBackbone, out_channels=64, kernel_size=5, stride=2, padding=2)
    return {
        "smallnorb": Entry(EMCapsNet, NORB, 5, paper="310K"),
        "smallnorb-small": Entry(
            partial(EMCapsNet, backbone=backbone, widths=(8, 16, 16)), NORB, 5, paper="68K"
        ),
    }
