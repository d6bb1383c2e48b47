"""The networks of Mazzia 2021: Efficient-CapsNet for MNIST, MultiMNIST and smallNORB.

The layers and the initialization are those of the authors' code, which has the defaults of Keras.
The published parameter counts leave the decoder out.
"""

import math
from functools import partial
from typing import final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Output
from torchcaps.errors import InputError
from torchcaps.functional import exponential_squash
from torchcaps.layers import Decoder, FullyConnectedDecoder, LinearCapsules
from torchcaps.models.entry import MNIST, MULTI, Entry
from torchcaps.models.network import ImageShape, Network
from torchcaps.models.parts.backbones import Backbone, BackboneFactory, ImageConv2d, keras_norm
from torchcaps.routing import RoutingFactory, SelfAttentionRouting
from torchcaps.tensors import output_size

D_PRIMARY, D_CLASS = 8, 16


@final
class FourConvolutions(Backbone):
    """Four convolutions of 32, 64, 64 and 128 channels, each activated and then normalized.

    Args:
        in_channels: channels of the images.
        first_kernel: kernel size of the first convolution; the others have 3x3.
        strides: strides of the four convolutions.
        instance_norm: instance normalization and leaky ReLU, as on smallNORB, instead of batch
            normalization and ReLU.
    """

    out_channels = 128

    def __init__(
        self,
        in_channels: int,
        *,
        first_kernel: int = 5,
        strides: tuple[int, int, int, int] = (1, 1, 1, 2),
        instance_norm: bool = False,
    ) -> None:
        super().__init__()
        self.kernels = (first_kernel, 3, 3, 3)
        self.strides = strides
        layers: list[nn.Module] = []
        width = in_channels
        for channels, kernel, stride in zip((32, 64, 64, 128), self.kernels, strides, strict=True):
            make = nn.Conv2d if layers else ImageConv2d
            conv = make(width, channels, kernel, stride)
            nn.init.kaiming_normal_(conv.weight, nonlinearity="relu")
            assert conv.bias is not None
            nn.init.zeros_(conv.bias)
            activation = nn.LeakyReLU(0.3) if instance_norm else nn.ReLU()
            norm = instance_normalization if instance_norm else keras_norm
            layers += [conv, activation, norm(channels)]
            width = channels
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Return the features of images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the features."""
        size = (height, width)
        for kernel, stride in zip(self.kernels, self.strides, strict=True):
            size = output_size(size, (kernel, kernel), (stride, stride), (0, 0))
        return size


def instance_normalization(channels: int) -> nn.InstanceNorm2d:
    """Build instance normalization whose weights and biases start uniformly within 0.05 of zero."""
    norm = nn.InstanceNorm2d(channels, eps=1e-3, affine=True)
    for parameter in norm.parameters():
        nn.init.uniform_(parameter, -0.05, 0.05)
    return norm


@final
class DepthwiseCapsules(nn.Module):
    """Primary capsules by a depthwise convolution, then the squash of the paper (section 3.1).

    A pose has the outputs of ``d`` neighboring channels, each from its own feature map alone.
    """

    def __init__(self, channels: int, d: int, kernel_size: int, stride: int = 1) -> None:
        super().__init__()
        self.d = d
        self.conv = nn.Conv2d(channels, channels, kernel_size, stride, groups=channels)
        nn.init.xavier_uniform_(self.conv.weight)
        assert self.conv.bias is not None
        nn.init.zeros_(self.conv.bias)

    def forward(self, features: Tensor) -> Capsules:
        """Return capsules on the grid of the convolution's output."""
        poses = self.conv(features).unflatten(1, (-1, self.d)).permute(0, 3, 4, 1, 2)
        return Capsules(exponential_squash(poses))


@final
class UpsamplingDecoder(Decoder):
    """The decoder for smallNORB: three doublings of an 8x8 map, a 3x3 convolution after each."""

    def __init__(self, n_classes: int, d: int, image_shape: ImageShape) -> None:
        super().__init__(n_classes, d, image_shape)
        channels, height, width = image_shape
        if (height, width) != (48, 48):
            raise InputError(f"this decoder draws images of 48x48 pixels, not {height}x{width}")
        layers: list[nn.Module] = [nn.Linear(n_classes * d, 64), nn.Unflatten(1, (1, 8, 8))]
        for inputs, outputs in ((1, 64), (64, 128), (128, 128)):
            double = nn.Upsample(scale_factor=2, mode="bilinear")
            layers += [double, nn.Conv2d(inputs, outputs, 3), nn.LeakyReLU(0.2)]
        self.layers = nn.Sequential(*layers, nn.Conv2d(128, channels, 3), nn.Sigmoid())

    def pixels(self, poses: Tensor, chosen: Tensor) -> Tensor:
        """Decode the poses with all but the chosen one masked to zero."""
        is_chosen = torch.arange(self.n_classes, device=chosen.device) == chosen[:, None]
        pixels: Tensor = self.layers(torch.where(is_chosen[..., None], poses, 0).flatten(1))
        return pixels


@final
class EfficientCapsNet(Network):
    """Four convolutions, 16 depthwise primary capsules, one capsule per class scored by its length.

    Args:
        image_shape: channels, height and width of the images.
        n_classes: number of classes.
        backbone: backbone class, or a partial of one.
        kernel_size: kernel size of the depthwise convolution. The paper's covers all features.
        stride: stride of the depthwise convolution.
        routing: routing class, or a partial of one.
        decoder: decoder class, or None.
        n_objects: objects in one image; evaluation decodes as many classes.
    """

    def __init__(
        self,
        image_shape: ImageShape,
        n_classes: int,
        *,
        backbone: BackboneFactory = FourConvolutions,
        kernel_size: int = 9,
        stride: int = 1,
        routing: RoutingFactory = SelfAttentionRouting,
        decoder: type[FullyConnectedDecoder] | type[UpsamplingDecoder] | None = (
            FullyConnectedDecoder
        ),
        n_objects: int = 1,
    ) -> None:
        super().__init__(image_shape, n_classes)
        if n_objects > n_classes:
            raise InputError(f"an image cannot show {n_objects} of {n_classes} classes")
        self.backbone = backbone(image_shape[0])
        features = self.backbone.output_size(image_shape[1], image_shape[2])
        if min(features) < kernel_size:
            raise InputError(
                f"images of {image_shape[1]}x{image_shape[2]} are too small for EfficientCapsNet"
            )
        channels = self.backbone.out_channels
        self.primary = DepthwiseCapsules(channels, D_PRIMARY, kernel_size, stride)
        height, width = output_size(features, (kernel_size, kernel_size), (stride, stride), (0, 0))
        n_children = height * width * channels // D_PRIMARY
        # He's rule of Keras for a tensor [j i d e], whose first axes it takes for positions
        std = math.sqrt(2 / (n_classes * n_children * D_PRIMARY))
        self.classes = LinearCapsules(
            n_children, n_classes, D_PRIMARY, D_CLASS, routing=routing, weight_std=std
        )
        self.decoder = decoder(n_classes, D_CLASS, image_shape) if decoder else None
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


def networks() -> dict[str, Entry]:
    """Return the network of each data set, and that for MNIST without its decoder."""
    strided = partial(FourConvolutions, strides=(1, 1, 2, 2))
    multi = partial(EfficientCapsNet, backbone=strided, kernel_size=5, stride=2, n_objects=2)
    wide = partial(FourConvolutions, first_kernel=7, strides=(2, 1, 1, 2), instance_norm=True)
    norb = partial(EfficientCapsNet, backbone=wide, kernel_size=8, decoder=UpsamplingDecoder)
    return {
        "mnist": Entry(EfficientCapsNet, MNIST, paper="161,824 + decoder"),
        "mnist-plain": Entry(partial(EfficientCapsNet, decoder=None), MNIST, paper="161,824"),
        "multimnist": Entry(multi, MULTI),
        "smallnorb": Entry(norb, (2, 48, 48), 5, paper="151K + decoder"),
    }
