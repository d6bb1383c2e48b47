"""Feature extractors under the capsules of the papers: one convolution, or residual blocks."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = [
    "Backbone",
    "BackboneFactory",
    "ConvBackbone",
    "ImageConv2d",
    "ResNetBackbone",
    "ResNetV2Backbone",
]


class Backbone(nn.Module, ABC):
    """Features ``[b c h w]`` from images, with a known size."""

    out_channels: int

    @abstractmethod
    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the features of an image."""


BackboneFactory = Callable[[int], Backbone]
"""A backbone class, or a partial of one: called with the channels of the images."""


@final
class ImageConv2d(nn.Conv2d):
    """The first convolution of a network; on a GPU a matrix product of the images' patches.

    Images have one to four channels, for which cuDNN has no kernel on tensor cores: the 9x9
    convolution of CapsNet took as long there as the next one, which has 256 times the arithmetic.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Convolve; by patches where nobody asks for the gradient of the images."""
        if images.is_cuda and not images.requires_grad and self._has_patches(images):
            return self.by_patches(images)
        return super().forward(images)

    def _has_patches(self, images: Tensor) -> bool:
        """Whether :meth:`by_patches` does all that was asked for, on few channels."""
        plain = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        plain = plain and self.dilation == (1, 1) and self.groups == 1
        return plain and self.in_channels <= 4 and images.dim() == 4

    def by_patches(self, images: Tensor) -> Tensor:
        """The same as a matrix product, patches side by side and padded to whole vectors."""
        device = images.device.type
        if images.dtype == torch.float32 and torch.is_autocast_enabled(device):
            images = images.to(torch.get_autocast_dtype(device))
        (kh, kw), (sh, sw) = self.kernel_size, self.stride
        ph, pw = int(self.padding[0]), int(self.padding[1])
        if ph or pw:
            images = functional.pad(images, (pw, pw, ph, ph))
        patches = images.permute(0, 2, 3, 1).unfold(1, kh, sh).unfold(2, kw, sw)
        patches = patches.movedim(3, -1).flatten(3)
        # with one channel as it is: DDP wants a gradient of the weight's strides
        weight = self.weight if self.in_channels == 1 else self.weight.permute(0, 2, 3, 1)
        weight = weight.flatten(1)
        short = -weight.shape[1] % 8
        patches, weight = (functional.pad(x, (0, short)) for x in (patches, weight))
        return functional.linear(patches, weight, self.bias).permute(0, 3, 1, 2)


@final
class ConvBackbone(Backbone):
    """One convolution, batch normalization if asked for, and a nonlinearity."""

    def __init__(
        self,
        in_channels: int,
        out_channels: int = 256,
        kernel_size: int = 9,
        *,
        stride: int = 1,
        padding: int = 0,
        batch_norm: bool = False,
        nonlinearity: Callable[[], nn.Module] = nn.ReLU,
    ) -> None:
        super().__init__()
        self.out_channels = out_channels
        self.conv = ImageConv2d(
            in_channels, out_channels, kernel_size, stride, padding, bias=not batch_norm
        )
        self.norm = nn.BatchNorm2d(out_channels) if batch_norm else nn.Identity()
        self.nonlinearity = nonlinearity()

    def forward(self, images: Tensor) -> Tensor:
        """Features of the images."""
        features: Tensor = self.nonlinearity(self.norm(self.conv(images)))
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Height and width of the features."""
        k, s, p = self.conv.kernel_size[0], self.conv.stride[0], int(self.conv.padding[0])
        return (height + 2 * p - k) // s + 1, (width + 2 * p - k) // s + 1


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """The convolution of a residual block: 3x3, no bias."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


def keras_norm(channels: int) -> nn.BatchNorm2d:
    """Batch normalization with the defaults of Keras, in which Choi and Zhao wrote their code."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


@final
class BasicBlock(nn.Module):
    """Residual block of He 2016a: conv, norm, ReLU, conv, norm, add, ReLU."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv3x3(in_channels, out_channels, stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            conv3x3(out_channels, out_channels),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, features: Tensor) -> Tensor:
        """Add the residual."""
        total: Tensor = self.residual(features) + self.shortcut(features)
        return total.relu()


@final
class PreactivationBlock(nn.Module):
    """Residual block of He 2016b: norm, ReLU, conv, norm, ReLU, conv, add."""

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__()
        self.first = nn.Sequential(keras_norm(in_channels), nn.ReLU())
        self.residual = nn.Sequential(
            conv3x3(in_channels, out_channels, stride),
            keras_norm(out_channels),
            nn.ReLU(),
            conv3x3(out_channels, out_channels),
        )
        self.shortcut: nn.Module | None = None
        if stride != 1 or in_channels != out_channels:
            self.shortcut = nn.Conv2d(in_channels, out_channels, 1, stride, bias=False)

    def forward(self, features: Tensor) -> Tensor:
        """Add the residual; a shortcut that changes the size starts after the first ReLU."""
        active: Tensor = self.first(features)
        skipped = features if self.shortcut is None else self.shortcut(active)
        total: Tensor = self.residual(active) + skipped
        return total


@final
class ResNetBackbone(Backbone):
    """The ResNet backbone of Tsai 2020: 3 blocks of 64 channels, then 4 wider ones at half size.

    The paper speaks of four blocks with stride 2 and of 16x16 features from 32x32 images: only the
    first of the four has the stride.
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
        """Features of the images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Half of each side, rounded up."""
        return (height + 1) // 2, (width + 1) // 2


@final
class ResNetV2Backbone(Backbone):
    """The ResNet-v2 backbone of Zhao 2020: three stages of 16, 32 and 64 channels.

    Args:
        in_channels: channels of the images.
        blocks: blocks of each stage.
    """

    out_channels = 64

    def __init__(self, in_channels: int, blocks: tuple[int, int, int] = (8, 8, 8)) -> None:
        super().__init__()
        layers: list[nn.Module] = [
            ImageConv2d(in_channels, 16, 3, padding=1, bias=False),
            keras_norm(16),
            nn.ReLU(),
        ]
        width = 16
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                layers.append(PreactivationBlock(width, 16 * 2**stage, stride))
                width = 16 * 2**stage
        self.layers = nn.Sequential(*layers)

    def forward(self, images: Tensor) -> Tensor:
        """Features of the images."""
        features: Tensor = self.layers(images)
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """A quarter of each side, rounded up twice."""
        return (height + 3) // 4, (width + 3) // 4
