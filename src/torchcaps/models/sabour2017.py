"""The networks of Sabour 2017: CapsNet and its published variants.

The paper does not print the initialization. The convolutions, the class capsules and the coupling
of the primary capsules are initialized as in the authors' code. That code truncates the class
capsules' weights at two standard deviations; we do not. The decoder has PyTorch's initialization.

Other papers use the same network with other routings, widths and backbones: Yang 2021 (Table I),
Zhao 2020 (section 4.1), Tsai 2020 (Tables 4 and 5) and Choi 2019. These variants have no coupling
and PyTorch's initialization, except CIFAR-10 in Yang and the votes in Choi.
"""

from functools import partial
from typing import final

from torch import Tensor

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import Decoder, FullyConnectedDecoder, LinearCapsules, PrimaryCapsules
from torchcaps.layers.primary import first_weights
from torchcaps.models.entry import CIFAR, CROP, MNIST, MULTI, NORB, WIDE, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import BackboneFactory, ConvBackbone
from torchcaps.models.parts.baselines import affnist_baseline, mnist_baseline, multimnist_baseline
from torchcaps.routing import DynamicRouting, RoutingFactory
from torchcaps.tensors import output_size

ROUTING = partial(DynamicRouting, bias=True)
"""Dynamic routing with the bias of the authors' code, which the published counts include."""


@final
class CapsNet(Network):
    """A convolution, primary capsules and one capsule per class, scored by its length.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: backbone class, or a partial of one.
        n_types: types of primary capsules.
        d_primary: pose size of the primary capsules.
        d_class: pose size of the class capsules.
        stride: stride of the 9x9 convolution that makes the primary capsules.
        padding: padding of that convolution.
        routing: routing class, or a partial of one.
        weight_std: standard deviation of the class capsules' initial weights; the authors' code
            has 0.1.
        coupled: initialize both convolutions as the authors' code does, and couple the primary
            capsules to the features by 1 / n_types; otherwise PyTorch's initialization.
        leaky: couple the primary capsules by 1 / (n_types + 1), as the authors' code does where
            the routing has a none-of-the-above category.
        reconstructs: add the decoder.
        n_objects: objects in one image; evaluation decodes as many classes.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: BackboneFactory = ConvBackbone,
        n_types: int = 32,
        d_primary: int = 8,
        d_class: int = 16,
        stride: int = 2,
        padding: int = 0,
        routing: RoutingFactory = ROUTING,
        weight_std: float = 0.1,
        coupled: bool = True,
        leaky: bool = False,
        reconstructs: bool = True,
        n_objects: int = 1,
    ) -> None:
        super().__init__(image_shape, n_classes)
        if n_objects > n_classes:
            raise InputError(f"an image cannot show {n_objects} of {n_classes} classes")
        self.backbone = backbone(image_shape[0])
        if coupled and isinstance(self.backbone, ConvBackbone):
            first_weights(self.backbone.conv, std=0.05)
        features = self.backbone.output_size(image_shape[1], image_shape[2])
        grid = output_size(features, (9, 9), (stride, stride), (padding, padding))
        if min(grid) < 1:
            raise InputError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small for CapsNet's two 9x9 "
                "convolutions"
            )
        self.primary = PrimaryCapsules(
            self.backbone.out_channels,
            n_types,
            d_primary,
            kernel_size=9,
            stride=stride,
            padding=padding,
            coupled=coupled,
            leaky=leaky,
        )
        n_children = grid[0] * grid[1] * n_types
        self.classes = LinearCapsules(
            n_children, n_classes, d_primary, d_class, routing=routing, weight_std=weight_std
        )
        decoder = FullyConnectedDecoder(n_classes, d_class, image_shape) if reconstructs else None
        self.decoder: Decoder | None = decoder
        self.n_objects = n_objects

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Return lengths, poses and, with a decoder, reconstructions of the classes."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        scores = routed.activations
        reconstruction = self.reconstruct(
            self.decoder, routed.poses, scores, targets, self.n_objects
        )
        returned = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), returned, reconstruction)


plain_capsnet = partial(CapsNet, reconstructs=False)
"""CapsNet without its decoder."""

cifar_capsnet = partial(
    plain_capsnet,
    backbone=partial(ConvBackbone, padding=4),
    n_types=64,
    padding=4,
    routing=partial(DynamicRouting, bias=True, leaky=True),
    leaky=True,
)
"""The CIFAR-10 network of section 7: 24x24 crops, zero padding, 64 types, leaky routing."""


def networks() -> dict[str, Entry]:
    """Return the networks of Table 1 and section 7."""
    small = partial(
        plain_capsnet,
        backbone=partial(ConvBackbone, out_channels=64),
        n_types=16,
        d_primary=6,
        d_class=8,
    )
    return {
        "mnist": Entry(CapsNet, MNIST, paper="8.2M"),
        "mnist-plain": Entry(plain_capsnet, MNIST, paper="6.8M"),
        "mnist-baseline": Entry(mnist_baseline, MNIST, paper="35.4M"),
        "multimnist": Entry(partial(CapsNet, n_objects=2), MULTI, paper="11.36M"),
        "multimnist-baseline": Entry(multimnist_baseline, MULTI, paper="24.56M"),
        "affnist": Entry(CapsNet, WIDE, paper="13.4M (quoted by Zhao 2020)"),
        "affnist-baseline": Entry(affnist_baseline, WIDE),
        "cifar10": Entry(cifar_capsnet, CROP),
        "smallnorb": Entry(CapsNet, NORB, 5),
        "svhn": Entry(small, CIFAR),
    }
