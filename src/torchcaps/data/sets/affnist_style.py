"""A set in the style of affNIST: digits under random affine maps."""

import torch
from torch import Tensor

from torchcaps.checks import check_range, check_whole
from torchcaps.data.augment.geometry import SMALLEST_SCALE, linear_map, warp
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits
from torchcaps.data.random import Draws
from torchcaps.data.sets.mnist import made_from_mnist
from torchcaps.preprocessing.description import MAX_SIDE


class AffnistStyle(FromDigits):
    """Digits under a random affine map on a 40x40 canvas, by affNIST's published ranges.

    The maps have affNIST's ranges but are drawn anew: rotation within 20 degrees, shear within 0.2,
    scale 0.8 to 1.2 in x and y independently. A translation then keeps the ink inside the canvas.

    Args:
        digits: the set that the digits come from.
        size: height and width of the canvas.
        rotation: largest rotation in degrees, in either direction.
        shear: largest shear (x per y), in either direction.
        scale: range of the scale factors.
    """

    name = "affnist_style"

    def __init__(
        self,
        digits: ImageSet,
        *,
        size: int = 40,
        rotation: float = 20.0,
        shear: float = 0.2,
        scale: tuple[float, float] = (0.8, 1.2),
    ) -> None:
        check_whole("size", size, least=1, most=MAX_SIDE)
        check_range("scale", scale, least=SMALLEST_SCALE)
        super().__init__(digits, size)
        self.rotation = rotation
        self.shear = shear
        self.scale = scale
        self._corners = _ink_corners(digits.images)

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices; ``annotations["affine"]`` ``[b 2 3]`` is the map.

        The map takes (x, y) in pixels relative to the digit's center to (x, y) relative to the
        canvas's center.
        """
        angle, shear = draws.uniform(-1, 1, 2)
        scale_x, scale_y = draws.uniform(*self.scale, 2)
        position = draws.uniform(0, 1, 2).T
        matrix = linear_map(
            angle * (self.rotation * torch.pi / 180), scale_x, scale_y, shear * self.shear
        )
        # a sum, not matmul: no reduced precision under autocast or TF32
        corners = (self._corners[samples][:, :, None] * matrix[:, None]).sum(-1)
        low = -self.size / 2 - corners.amin(1)
        high = self.size / 2 - corners.amax(1)
        shift = torch.where(low < high, low + (high - low) * position, (low + high) / 2)
        images = self.digits.images.index_select(0, samples).float()
        drawn = warp(images, matrix, shift / self.size, size=(self.size, self.size))
        affine = torch.cat([matrix, shift[:, :, None]], -1)
        return Batch(
            drawn.round_().byte(),
            self.digits.labels[samples],
            samples,
            annotations={"affine": affine},
        )


def _ink_corners(images: Tensor) -> Tensor:
    """Return corners ``[n 4 2]`` of each image's bounding box of ink, (x, y) from its center."""
    height, width = images.shape[-2:]
    ink = images[:, 0] > 0
    left, right = _extent(ink.any(1))
    top, bottom = _extent(ink.any(2))
    left, right = left - width / 2, right - width / 2
    top, bottom = top - height / 2, bottom - height / 2
    corners = [left, top, right, top, left, bottom, right, bottom]
    return torch.stack(corners, -1).view(-1, 4, 2)


def _extent(present: Tensor) -> tuple[Tensor, Tensor]:
    """Return the first and one past the last true position of each row of ``[n k]``.

    They include half a pixel of margin each, since bilinear interpolation spreads ink.
    """
    count = present.shape[1]
    present = present.float()
    first = present.argmax(1)
    last = count - present.flip(1).argmax(1)
    return first.float() - 0.5, last.float() + 0.5


AFFNIST_STYLE = made_from_mnist(
    AffnistStyle,
    name="affnist_style",
    about="digits under affNIST's ranges of affine maps, 40x40; not affNIST",
    size=40,
    mean=0.0640,
    std=0.2126,
)
