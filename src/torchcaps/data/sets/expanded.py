"""Single digits on a larger canvas: expanded MNIST and a set in the style of affNIST."""

import torch
from torch import Tensor

from torchcaps.checks import check_range, check_whole
from torchcaps.data.augment.transforms import SMALLEST_SCALE, linear_map, warp
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits, place
from torchcaps.data.random import Draws


class ExpandedMNIST(FromDigits):
    """A digit in a random place of a black 40x40 canvas (Sabour et al. 2017, section 5.1).

    Args:
        digits: the set to draw digits from.
        size: of the canvas.
    """

    name = "expanded_mnist"

    def __init__(self, digits: ImageSet, *, size: int = 40) -> None:
        check_whole("size", size, least=1)
        super().__init__(digits, size)
        if size < max(digits.images.shape[-2:]):
            raise ValueError(f"a canvas of {size}x{size} is smaller than the digits")

    def to(self, device: torch.device | str) -> "ExpandedMNIST":
        """The same set on another device."""
        return ExpandedMNIST(self.digits.to(device), size=self.size)

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices."""
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


class AffnistStyle(FromDigits):
    """Digits under a random affine map on a 40x40 canvas, by affNIST's published ranges.

    Not affNIST: the same ranges, other draws. Rotation within 20 degrees, shear within 0.2, scale
    0.8 to 1.2 in x and y independently, then a translation that keeps the digit's ink inside.

    Args:
        digits: the set to draw digits from.
        size: of the canvas.
        rotation: in degrees, either way.
        shear: x per y, either way.
        scale: range of the factors.
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
        check_whole("size", size, least=1)
        check_range("scale", scale, least=SMALLEST_SCALE)
        super().__init__(digits, size)
        self.rotation = rotation
        self.shear = shear
        self.scale = scale
        self._corners = _ink_corners(digits.images)

    def to(self, device: torch.device | str) -> "AffnistStyle":
        """The same set on another device."""
        return AffnistStyle(
            self.digits.to(device),
            size=self.size,
            rotation=self.rotation,
            shear=self.shear,
            scale=self.scale,
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices; ``annotations["affine"]`` ``[b 2 3]`` is the map.

        The map takes (x, y) from the digit's center, in pixels, to the canvas's center.
        """
        angle, shear = draws.uniform(-1, 1, 2)
        scale_x, scale_y = draws.uniform(*self.scale, 2)
        where = draws.uniform(0, 1, 2).T
        matrix = linear_map(
            angle * (self.rotation * torch.pi / 180), scale_x, scale_y, shear * self.shear
        )
        # a sum, not matmul: no reduced precision under autocast or TF32
        corners = (self._corners[samples][:, :, None] * matrix[:, None]).sum(-1)
        low = -self.size / 2 - corners.amin(1)
        high = self.size / 2 - corners.amax(1)
        shift = torch.where(low < high, low + (high - low) * where, (low + high) / 2)
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
    """Corners ``[n 4 2]`` of the box that holds each image's ink, (x, y) from its center."""
    height, width = images.shape[-2:]
    ink = images[:, 0] > 0
    left, right = _extent(ink.any(1))
    top, bottom = _extent(ink.any(2))
    left, right = left - width / 2, right - width / 2
    top, bottom = top - height / 2, bottom - height / 2
    corners = [left, top, right, top, left, bottom, right, bottom]
    return torch.stack(corners, -1).view(-1, 4, 2)


def _extent(present: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last true position of each row of ``[n k]``, as floats.

    One pixel of margin: bilinear interpolation spreads ink by less than that.
    """
    count = present.shape[1]
    present = present.float()
    first = present.argmax(1)
    last = count - present.flip(1).argmax(1)
    return first.float() - 0.5, last.float() + 0.5
