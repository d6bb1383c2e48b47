"""Backbones: the contract, one convolution, and the parts that several papers share."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import final

import torch
from torch import Tensor, nn
from torch.nn import functional

from torchcaps.tensors import output_size


class Backbone(nn.Module, ABC):
    """A network that turns images into features ``[b c h w]`` of a known size."""

    out_channels: int

    @abstractmethod
    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the features of an image."""


BackboneFactory = Callable[[int], Backbone]
"""Backbone class, or a partial of one; called with the number of image channels."""


@final
class ImageConv2d(nn.Conv2d):
    """The first convolution of a network; on a GPU, one matmul over the patches of the images.

    cuDNN has no tensor-core kernel for the one to four channels of an image. With cuDNN, CapsNet's
    first 9x9 convolution is as slow as its second, which has 256 times the arithmetic.
    """

    def forward(self, images: Tensor) -> Tensor:
        """Convolve; on a GPU by patches, unless the gradient of the images is needed."""
        if images.is_cuda and not images.requires_grad and self._can_use_patches(images):
            return self.by_patches(images)
        return super().forward(images)

    def _can_use_patches(self, images: Tensor) -> bool:
        """Return whether :meth:`by_patches` supports these arguments and these images."""
        plain = self.padding_mode == "zeros" and not isinstance(self.padding, str)
        plain = plain and self.dilation == (1, 1) and self.groups == 1
        return plain and self.in_channels <= 4 and images.dim() == 4

    def by_patches(self, images: Tensor) -> Tensor:
        """Convolve as a matmul of patches, padded to a multiple of 8 entries."""
        device = images.device.type
        if images.dtype == torch.float32 and torch.is_autocast_enabled(device):
            images = images.to(torch.get_autocast_dtype(device))
        (kh, kw), (sh, sw) = self.kernel_size, self.stride
        ph, pw = int(self.padding[0]), int(self.padding[1])
        if ph or pw:
            images = functional.pad(images, (pw, pw, ph, ph))
        patches = images.permute(0, 2, 3, 1).unfold(1, kh, sh).unfold(2, kw, sw)
        patches = patches.movedim(3, -1).flatten(3)
        # a permuted view of one channel would give a gradient whose strides DDP refuses
        weight = self.weight if self.in_channels == 1 else self.weight.permute(0, 2, 3, 1)
        weight = weight.flatten(1)
        short = -weight.shape[1] % 8
        patches, weight = (functional.pad(x, (0, short)) for x in (patches, weight))
        return functional.linear(patches, weight, self.bias).permute(0, 3, 1, 2)


@final
class ConvBackbone(Backbone):
    """One convolution, optional batch normalization, and a nonlinearity."""

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
        """Return the features of images."""
        features: Tensor = self.nonlinearity(self.norm(self.conv(images)))
        return features

    def output_size(self, height: int, width: int) -> tuple[int, int]:
        """Return height and width of the features."""
        kernel, stride = self.conv.kernel_size[0], self.conv.stride[0]
        padding = int(self.conv.padding[0])
        return output_size((height, width), (kernel, kernel), (stride, stride), (padding, padding))


def conv3x3(in_channels: int, out_channels: int, stride: int = 1) -> nn.Conv2d:
    """Build the convolution of a residual block: 3x3, no bias."""
    return nn.Conv2d(in_channels, out_channels, 3, stride, padding=1, bias=False)


def keras_norm(channels: int) -> nn.BatchNorm2d:
    """Build batch normalization with the defaults of Keras, which Choi and Zhao use."""
    return nn.BatchNorm2d(channels, eps=1e-3, momentum=0.01)


@final
class PaddedShortcut(nn.Module):
    """Every ``stride``-th row and column, with new channels of zeros on both sides."""

    def __init__(self, channels: int, stride: int) -> None:
        super().__init__()
        self.before, self.after = channels // 2, channels - channels // 2
        self.stride = stride

    def forward(self, features: Tensor) -> Tensor:
        """Thin out and pad the features."""
        thinned = features[:, :, :: self.stride, :: self.stride]
        return functional.pad(thinned, (0, 0, 0, 0, self.before, self.after))


@final
class BasicBlock(nn.Module):
    """The residual block of He 2016a: conv, norm, ReLU, conv, norm, add, ReLU.

    Args:
        in_channels: channels of the features.
        out_channels: channels of the result.
        stride: stride of the first convolution.
        padded: where the shape changes, thin out the shortcut and pad its channels with zeros (the
            option A of He 2016a) instead of convolving it.
    """

    def __init__(
        self, in_channels: int, out_channels: int, stride: int = 1, *, padded: bool = False
    ) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            conv3x3(in_channels, out_channels, stride),
            nn.BatchNorm2d(out_channels),
            nn.ReLU(),
            conv3x3(out_channels, out_channels),
            nn.BatchNorm2d(out_channels),
        )
        self.shortcut: nn.Module = nn.Identity()
        changes = stride != 1 or in_channels != out_channels
        if changes and padded:
            self.shortcut = PaddedShortcut(out_channels - in_channels, stride)
        elif changes:
            self.shortcut = nn.Sequential(
                nn.Conv2d(in_channels, out_channels, 1, stride, bias=False),
                nn.BatchNorm2d(out_channels),
            )

    def forward(self, features: Tensor) -> Tensor:
        """Add the residual."""
        total: Tensor = self.residual(features) + self.shortcut(features)
        return total.relu()
