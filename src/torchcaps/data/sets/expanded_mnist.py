"""Expanded MNIST: a digit at a random position of a larger canvas (Sabour et al. 2017)."""

from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits, place
from torchcaps.data.random import Draws
from torchcaps.data.sets.mnist import made_from_mnist


class ExpandedMNIST(FromDigits):
    """A digit at a random position of a black 40x40 canvas (Sabour et al. 2017, section 5.2).

    Args:
        digits: the set that the digits come from.
        size: height and width of the canvas.
    """

    name = "expanded_mnist"

    def __init__(self, digits: ImageSet, *, size: int = 40) -> None:
        check_whole("size", size, least=1)
        super().__init__(digits, size)
        if size < max(digits.images.shape[-2:]):
            raise ValueError(f"a canvas of {size}x{size} is smaller than the digits")

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices."""
        height, width = self.digits.images.shape[-2:]
        top = draws.integers(self.size - height + 1)[0]
        left = draws.integers(self.size - width + 1)[0]
        images = place(
            self.digits.images.index_select(0, samples),
            top,
            left,
            self.size,
            first=0,
            last=self.size - min(height, width),
        )
        return Batch(images, self.digits.labels[samples], samples)


EXPANDED_MNIST = made_from_mnist(
    ExpandedMNIST,
    name="expanded_mnist",
    about="a digit anywhere on 40x40",
    size=40,
    mean=0.0640,
    std=0.2253,
)
