"""Expanded MNIST: a digit at a random position of a larger canvas (Sabour et al. 2017)."""

from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits, place
from torchcaps.data.random import Draws
from torchcaps.data.sets.mnist import made_from_mnist
from torchcaps.preprocessing.description import MAX_SIDE


class ExpandedMNIST(FromDigits):
    """A digit at a random position of a black 40x40 canvas (Sabour et al. 2017, section 5.2).

    Args:
        digits: the set that the digits come from.
        size: height and width of the canvas.
        shift: largest distance in pixels from the middle, in rows and in columns; None places the
            digit anywhere on the canvas. A larger shift than that cuts digits off.
    """

    name = "expanded_mnist"

    def __init__(self, digits: ImageSet, *, size: int = 40, shift: int | None = None) -> None:
        check_whole("size", size, least=1, most=MAX_SIDE)
        super().__init__(digits, size)
        if size < max(digits.images.shape[-2:]):
            raise ValueError(f"a canvas of {size}x{size} is smaller than the digits")
        if shift is not None:
            check_whole("shift", shift, least=0)
        self.shift = shift

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices."""
        (first_row, last_row), (first_column, last_column) = (
            self._corners(side) for side in self.digits.images.shape[-2:]
        )
        images = place(
            self.digits.images.index_select(0, samples),
            draws.integers(last_row - first_row + 1)[0] + first_row,
            draws.integers(last_column - first_column + 1)[0] + first_column,
            self.size,
            first=min(first_row, first_column),
            last=max(last_row, last_column),
        )
        return Batch(images, self.digits.labels[samples], samples)

    def _corners(self, side: int) -> tuple[int, int]:
        """Return the first and the last place of a digit's corner along one side."""
        margin = self.size - side
        if self.shift is None:
            return 0, margin
        return margin // 2 - self.shift, margin // 2 + self.shift


EXPANDED_MNIST = made_from_mnist(
    ExpandedMNIST,
    name="expanded_mnist",
    about="a digit anywhere on 40x40",
    size=40,
    mean=0.0640,
    std=0.2253,
)
