"""Transforms that change brightness and contrast at random."""

from dataclasses import dataclass

from torch import Tensor

from torchcaps.checks import check_range
from torchcaps.data.random import Draws
from torchcaps.preprocessing.steps import as_float


@dataclass(frozen=True)
class Brightness:
    """A random offset of up to ``delta`` in either direction, one per image.

    `Standardize` after it cancels it exactly, and the contrast nearly so, as in Sabour's CIFAR-10.
    """

    delta: float = 63 / 255

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        return as_float(images) + draws.uniform(-self.delta, self.delta)[0][:, None, None, None]


@dataclass(frozen=True)
class Contrast:
    """A random factor from ``low`` to ``high`` on each pixel's distance from its channel's mean."""

    low: float = 0.2
    high: float = 1.8

    def __post_init__(self) -> None:
        check_range("low and high", (self.low, self.high))

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        images = as_float(images)
        factor = draws.uniform(self.low, self.high)[0][:, None, None, None]
        mean = images.mean((-2, -1), keepdim=True)
        return (images * factor).add_(mean * (1 - factor))
