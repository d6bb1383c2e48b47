"""A transform that bends images, and one that leaves some of them as they are."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.checks import check_range, check_share, check_whole
from torchcaps.data.augment.transforms import Transform, as_float
from torchcaps.data.random import Draws

__all__ = ["Elastic", "Sometimes"]


@dataclass(frozen=True)
class Elastic:
    """Bend images: points of a coarse grid move at random, what is between follows smoothly.

    Args:
        distance: pixels a point moves at most, across and down.
        points: of the grid, to a side.
    """

    distance: float = 1.5
    points: int = 5

    def __post_init__(self) -> None:
        check_range("distance", (0.0, self.distance))
        check_whole("points", self.points, least=2)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch; zeros come in at the edges."""
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
    """A transform for a share of the images; the others keep their pixels.

    A test image is as sharp as it was scanned, one that was rotated or bent is not: some training
    images should be sharp too.

    Args:
        transform: what some images go through; must not change their size.
        share: of the images, drawn anew every time.
    """

    transform: Transform
    share: float = 0.5

    def __post_init__(self) -> None:
        check_share("share", self.share)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        images = as_float(images)
        chosen = draws.uniform()[0] < self.share
        return torch.where(chosen[:, None, None, None], self.transform(images, draws), images)
