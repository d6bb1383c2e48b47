"""The networks of Sabour 2017: CapsNet, and the convolutional baselines of Table 1.

The paper prints no first weights. CapsNet's convolutions, its class capsules and the coupling of
its primary capsules are those of the authors' code, but that the class capsules' weights are not
cut at two deviations; the decoder starts as PyTorch's layers do.

The same network with other routings, widths and backbones serves Yang 2021 (Table I), section 4.1
of Zhao 2020 and the dynamic routing rows of Tsai 2020 (Tables 4 and 5) and Choi 2019, all of
them without that coupling and with PyTorch's start, but for CIFAR-10 in Yang and the votes in Choi.
"""

from functools import partial
from typing import final

from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.layers import Decoder, FullyConnectedDecoder, LinearCapsules, PrimaryCapsules
from torchcaps.layers.primary import first_weights
from torchcaps.models.backbones import BackboneFactory, ConvBackbone, ImageConv2d
from torchcaps.models.network import Classifier, ImageShape, Network
from torchcaps.routing import DynamicRouting, RoutingFactory

__all__ = ["CapsNet", "mnist_baseline", "multimnist_baseline"]


ROUTING = partial(DynamicRouting, bias=True)
"""Dynamic routing with the bias of the authors' code, which the published counts include."""


@final
class CapsNet(Network):
    """A convolution, primary capsules, one capsule per class, scored by length.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: classes.
        backbone: what turns images into features.
        n_types: types of primary capsules.
        d_primary: size of their poses.
        d_class: size of the poses of class capsules.
        stride: of the 9x9 convolution that makes primary capsules.
        padding: of that convolution.
        routing: a routing class, or a partial of one.
        weight_std: standard deviation of the class capsules' weights at the start; 0.1 is the
            authors' code.
        coupled: start both convolutions as the authors' code does, and couple the primary capsules
            to the features by 1 / n_types; else a convolution as PyTorch starts it.
        leaky: the primary capsules have the none-of-the-above category too, as in the authors' code
            where the routing has it: the coupling is 1 / (n_types + 1).
        reconstructs: add the decoder.
        n_objects: objects in one image; as many classes are decoded at test time.
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
        height, width = (
            (n + 2 * padding - 9) // stride + 1
            for n in self.backbone.output_size(image_shape[1], image_shape[2])
        )
        if min(height, width) < 1:
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
        self.classes = LinearCapsules(
            height * width * n_types,
            n_classes,
            d_primary,
            d_class,
            routing=routing,
            weight_std=weight_std,
        )
        self.decoder: Decoder | None = None
        if reconstructs:
            self.decoder = FullyConnectedDecoder(n_classes, d_class, image_shape)
        self.n_objects = n_objects

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Lengths, poses and, with a decoder, reconstructions of the classes."""
        routed = self.classes(self.primary(self.backbone(self.checked(images))))
        scores = routed.activations
        reconstruction = self.reconstruct(
            self.decoder, routed.poses, scores, targets, self.n_objects
        )
        kept = (routed.couplings,) if couplings else ()
        return Output(scores, Capsules(routed.poses, scores), kept, reconstruction)


def mnist_baseline(image_shape: ImageShape, n_classes: int) -> Classifier:
    """The baseline of section 5: three 5x5 convolutions, two hidden layers, dropout."""
    channels, height, width = image_shape
    layers = nn.Sequential(
        ImageConv2d(channels, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 256, 5, padding=2),
        nn.ReLU(),
        nn.Conv2d(256, 128, 5, padding=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(128 * height * width, 328),
        nn.ReLU(),
        nn.Linear(328, 192),
        nn.ReLU(),
        nn.Dropout(0.5),
        nn.Linear(192, n_classes),
    )
    return Classifier(image_shape, n_classes, layers)


def multimnist_baseline(image_shape: ImageShape, n_classes: int) -> Classifier:
    """The baseline of section 6.2: two convolutions with pooling, one hidden layer."""
    channels, height, width = image_shape
    features = nn.Sequential(
        ImageConv2d(channels, 512, 9, padding=4),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Conv2d(512, 256, 5, padding=2),
        nn.ReLU(),
        nn.MaxPool2d(2, ceil_mode=True),
        nn.Flatten(),
    )
    quarter = ((height + 3) // 4) * ((width + 3) // 4)
    head = nn.Sequential(nn.Linear(256 * quarter, 1024), nn.ReLU(), nn.Linear(1024, n_classes))
    return Classifier(image_shape, n_classes, nn.Sequential(features, head))
