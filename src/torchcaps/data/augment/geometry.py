"""Transforms that move pixels: shifts, crops, flips and affine maps."""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.checks import check_range, check_share, check_whole
from torchcaps.data.random import Draws
from torchcaps.preprocessing.steps import as_float, check_fits

SMALLEST_SCALE = 1e-3


def windows(images: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """Cut one window of ``height x width`` from each image.

    A strided view holds every window of every image, one per row, so one `index_select` copies the
    batch.

    Args:
        images: ``[b c h w]``.
        top: long ``[b]``, first row of each window; the window must fit.
        left: long ``[b]``, first column.
        height: height of the windows.
        width: width of the windows.
    """
    images = images.contiguous()
    count, channels, rows, columns = images.shape
    if not count:
        return images.new_empty(0, channels, height, width)
    across, plane, row, _ = images.stride()
    first = torch.arange(count, device=images.device) * across + top * row + left
    starts = (count - 1) * across + (rows - height) * row + (columns - width) + 1
    view = images.as_strided((starts, channels, height, width), (1, plane, row, 1))
    return view.index_select(0, first)


@dataclass(frozen=True)
class Shift:
    """A random shift by up to ``pixels`` in each direction, filled with zeros."""

    pixels: int

    def __post_init__(self) -> None:
        check_whole("pixels", self.pixels, least=0)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        top, left = draws.integers(2 * self.pixels + 1, 2)
        padded = functional.pad(images, (self.pixels,) * 4)
        return windows(padded, top, left, *images.shape[-2:])


@dataclass(frozen=True)
class PadCrop:
    """A random window of the original size from the image padded with ``fill``."""

    padding: int = 4
    fill: int = 0

    def __post_init__(self) -> None:
        check_whole("padding", self.padding, least=0)
        check_whole("fill", self.fill)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        top, left = draws.integers(2 * self.padding + 1, 2)
        padded = functional.pad(images, (self.padding,) * 4, value=self.fill)
        return windows(padded, top, left, *images.shape[-2:])


@dataclass(frozen=True)
class Crop:
    """A random square window."""

    size: int

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        height, width = images.shape[-2:]
        check_fits(self.size, height, width)
        top = draws.integers(height - self.size + 1)[0]
        left = draws.integers(width - self.size + 1)[0]
        return windows(images, top, left, self.size, self.size)


@dataclass(frozen=True)
class Flip:
    """A horizontal mirror image with the given probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_share("probability", self.probability)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        flipped = draws.uniform()[0] < self.probability
        both = torch.cat([images, images.flip(-1)])
        chosen = torch.arange(len(images), device=images.device) + flipped * len(images)
        return both.index_select(0, chosen)


@dataclass(frozen=True)
class Affine:
    """A random rotation, scale, shear and translation about the center, bilinear.

    Args:
        rotation: largest rotation in degrees, in either direction.
        translation: largest shift as a fraction of height and width, in either direction.
        scale: range of the scale factor, drawn for x and y independently.
        shear: largest shear (x per y), in either direction.
        fill: ``"zeros"`` outside the image, or ``"nearest"`` for the nearest edge pixel.
    """

    rotation: float = 0.0
    translation: float = 0.0
    scale: tuple[float, float] = (1.0, 1.0)
    shear: float = 0.0
    fill: str = "zeros"

    def __post_init__(self) -> None:
        if self.fill not in ("zeros", "nearest"):
            raise ValueError(f"fill must be 'zeros' or 'nearest', not {self.fill!r}")
        check_range("scale", self.scale, least=SMALLEST_SCALE)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Transform a batch."""
        angle, across, down, shear = draws.uniform(-1, 1, 4)
        scale_x, scale_y = draws.uniform(*self.scale, 2)
        matrix = linear_map(
            angle * (self.rotation * torch.pi / 180), scale_x, scale_y, shear * self.shear
        )
        shift = torch.stack([across, down], -1) * self.translation
        return warp(as_float(images), matrix, shift, fill=self.fill)


def linear_map(angle: Tensor, scale_x: Tensor, scale_y: Tensor, shear: Tensor) -> Tensor:
    """Return matrices ``[b 2 2]`` that scale, shear x by y, then rotate anticlockwise on screen."""
    cos, sin = angle.cos(), angle.sin()
    return torch.stack(
        [
            torch.stack([cos * scale_x, (cos * shear + sin) * scale_y], -1),
            torch.stack([-sin * scale_x, (cos - sin * shear) * scale_y], -1),
        ],
        -2,
    )


def warp(
    images: Tensor,
    matrix: Tensor,
    shift: Tensor,
    *,
    size: tuple[int, int] | None = None,
    fill: str = "zeros",
) -> Tensor:
    """Map float images by ``matrix`` about the center, then shift them.

    Args:
        images: ``[b c h w]``.
        matrix: ``[b 2 2]`` on (x, y) in pixels, y down.
        shift: ``[b 2]``, fractions of the result's width and height.
        size: height and width of the result; by default those of the images. The centers of image
            and result coincide.
        fill: see `Affine`.
    """
    height, width = images.shape[-2:]
    rows, columns = size or (height, width)
    a, b, c, d = matrix.reshape(-1, 4).unbind(-1)
    over = 2 / (a * d - b * c)
    # result pixels to image pixels, in the -1..1 of grid_sample
    from_x = torch.stack([d * over / width, -c * over / height], -1)[:, None, None]
    from_y = torch.stack([-b * over / width, a * over / height], -1)[:, None, None]
    x = torch.arange(columns, device=images.device) - (columns - 1) / 2
    y = torch.arange(rows, device=images.device) - (rows - 1) / 2
    x = x - (shift[:, :1] * columns)  # [b w]
    y = y - (shift[:, 1:] * rows)  # [b h]
    grid = x[:, None, :, None] * from_x + y[:, :, None, None] * from_y
    return functional.grid_sample(
        images,
        grid,
        mode="bilinear",
        padding_mode="zeros" if fill == "zeros" else "border",
        align_corners=False,
    )
