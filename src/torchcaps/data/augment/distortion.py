"""Transforms that deform or cover parts of an image, and one that applies another at random."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.checks import check_range, check_share, check_whole
from torchcaps.data.augment.transform import Transform
from torchcaps.data.random import Draws
from torchcaps.preprocessing.steps import as_float


@dataclass(frozen=True)
class Cutout:
    """A filled square around a random pixel of each image (https://arxiv.org/abs/1708.04552).

    ``fill`` has the scale of the pixels: 0..255 for bytes; after `Normalize` 0 is the mean.
    """

    size: int
    fill: float = 0

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        if images.dtype == torch.uint8 and self.fill not in range(256):
            raise ValueError(f"fill must be a whole number in 0..255 for bytes, not {self.fill}")
        inside = []
        for side in images.shape[-2:]:
            first = draws.integers(side)[0][:, None] - self.size // 2
            positions = torch.arange(side, device=images.device)
            inside.append((positions >= first) & (positions < first + self.size))
        rows, columns = inside
        return images.masked_fill((rows[:, :, None] & columns[:, None])[:, None], self.fill)


@dataclass(frozen=True)
class Elastic:
    """A smooth random distortion: the points of a coarse grid move, and pixels between follow.

    Args:
        distance: largest move of a point in pixels, horizontally and vertically.
        points: number of grid points per side.
    """

    distance: float = 1.5
    points: int = 5

    def __post_init__(self) -> None:
        check_range("distance", (0.0, self.distance))
        check_whole("points", self.points, least=2)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch; pixels from outside the image are zero."""
        images = as_float(images)
        count, (height, width) = len(images), images.shape[-2:]
        if not count:
            return images
        moves = draws.uniform(-self.distance, self.distance, 2 * self.points**2).t()
        across, down = functional.interpolate(
            moves.reshape(count, 2, self.points, self.points),
            (height, width),
            mode="bicubic",
            align_corners=True,
        ).unbind(1)
        x = torch.arange(width, device=images.device) + 0.5
        y = torch.arange(height, device=images.device)[:, None] + 0.5
        grid = torch.stack([(x + across) * (2 / width) - 1, (y + down) * (2 / height) - 1], -1)
        return functional.grid_sample(images, grid, align_corners=False)


@dataclass(frozen=True)
class Sometimes:
    """A transform applied to a random share of the images.

    Interpolation blurs, and test images are not interpolated. Some training images should
    therefore stay sharp.

    Args:
        transform: the transform; it must not change the image size.
        share: probability of applying it to an image.
    """

    transform: Transform
    share: float = 0.5

    def __post_init__(self) -> None:
        check_share("share", self.share)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        images = as_float(images)
        chosen = draws.uniform()[0] < self.share
        return torch.where(chosen[:, None, None, None], self.transform(images, draws), images)
