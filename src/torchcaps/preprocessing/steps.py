"""Transforms without randomness, which test images and images of users go through.

A step takes images ``[b c h w]``, uint8 or float in 0..1, and returns images. The second argument
is unused; it makes a step a transform of `torchcaps.data`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.checks import check_whole
from torchcaps.errors import InputError


def as_float(images: Tensor) -> Tensor:
    """Return bytes as floats in 0..1, and floats unchanged.

    Multiplication, not division, gives the same bits on CPU and CUDA.
    """
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images


def resize(images: Tensor, height: int, width: int) -> Tensor:
    """Resize images (bilinear, antialiased); bytes are rounded to bytes."""
    resized = functional.interpolate(
        images.float(), (height, width), mode="bilinear", antialias=True
    )
    if images.dtype == torch.uint8:
        return resized.round_().clamp_(0, 255).byte()
    return resized


@dataclass(frozen=True)
class Channels:
    """Gray images with their channel repeated, for networks that take color.

    Tsai et al. 2020 train networks of three channels on DiverseMultiMNIST: ``Channels(3)``.
    """

    count: int

    def __post_init__(self) -> None:
        check_whole("count", self.count, least=1)

    def __call__(self, images: Tensor, draws: object = None) -> Tensor:
        """Transform a batch."""
        if images.shape[1] != 1:
            raise InputError(f"Channels repeats one channel; the images have {images.shape[1]}")
        return images.repeat(1, self.count, 1, 1)


@dataclass(frozen=True)
class Mono:
    """The first channel only: one of smallNORB's two cameras, as in Zhao et al. 2020."""

    def __call__(self, images: Tensor, draws: object = None) -> Tensor:
        """Transform a batch."""
        return images[:, :1]


@dataclass(frozen=True)
class CenterCrop:
    """The central square window, for test images where training images use `Crop`."""

    size: int

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: object = None) -> Tensor:
        """Transform a batch."""
        height, width = images.shape[-2:]
        check_fits(self.size, height, width)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return images[..., top : top + self.size, left : left + self.size]


def check_fits(size: int, height: int, width: int) -> None:
    """Refuse a crop that is larger than the images."""
    if not 0 < size <= min(height, width):
        raise InputError(
            f"cannot cut {size}x{size} from images of {height}x{width}; choose a smaller crop"
        )


@dataclass(frozen=True)
class Standardize:
    """Images scaled to mean 0 and standard deviation 1, each by itself.

    The standard deviation is at least 1 / sqrt(number of values) on the 0..255 scale, as in the
    papers' TensorFlow code. A blank image therefore stays blank.
    """

    def __call__(self, images: Tensor, draws: object = None) -> Tensor:
        """Transform a batch."""
        images = as_float(images)
        root = prod(images.shape[1:]) ** 0.5
        centered = images - images.mean((-3, -2, -1), keepdim=True)
        # much faster than torch.std on a CPU
        std = torch.linalg.vector_norm(centered.flatten(1), dim=1) / root
        std = std.clamp_min(1 / (255 * root))[:, None, None, None]
        # in place, unless an adversarial attack needs the gradient
        return centered / std if centered.requires_grad else centered.div_(std)


class Normalize:
    """Images minus the data set's mean, divided by its standard deviation, per channel.

    Args:
        mean: mean of each channel, of pixels in 0..1.
        std: standard deviation of each channel, of pixels in 0..1.
    """

    def __init__(self, mean: Sequence[float], std: Sequence[float]) -> None:
        try:
            self.mean = tuple(float(value) for value in mean)
            self.std = tuple(float(value) for value in std)
        except (TypeError, ValueError):
            self.mean = self.std = ()
        if not 0 < len(self.mean) == len(self.std) or not all(value > 0 for value in self.std):
            raise ValueError(
                "mean and std must have one number per channel each, std above 0, "
                f"not {mean} and {std}"
            )
        # cached per device, so that no batch waits for a copy
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"

    def __call__(self, images: Tensor, draws: object = None) -> Tensor:
        """Transform a batch."""
        if images.shape[1] != len(self.mean):
            raise InputError(
                f"Normalize has numbers for {len(self.mean)} channels; the images have "
                f"{images.shape[1]}"
            )
        scale, offset = self._scale_and_offset(images.device)
        if images.dtype == torch.uint8:
            scale = scale / 255
        return (images * scale).add_(offset)

    def _scale_and_offset(self, device: torch.device) -> tuple[Tensor, Tensor]:
        if device in self._constants:
            return self._constants[device]
        std = torch.tensor(self.std, device=device)[:, None, None]
        mean = torch.tensor(self.mean, device=device)[:, None, None]
        constants = 1 / std, -mean / std
        if not torch.compiler.is_compiling():  # tensors of a traced graph have no values
            self._constants[device] = constants
        return constants
