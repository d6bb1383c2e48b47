"""Augmentation as batched tensor code: every sample of a batch gets its own draw.

A transform is called with images ``[b c h w]`` and the batch's `Draws` and returns images. Pixels
are uint8 until a transform needs fractions; from there on they are float, 0..1. Draws are the same
on every device; crops, flips and shifts are therefore equal to the bit, and what interpolates or
averages agrees to rounding.

What the papers do to their training images:

| paper, set | transforms |
|---|---|
| Sabour 2017, MNIST | Shift(2) |
| Sabour 2017, CIFAR-10 | Crop(24), Flip(), Brightness(), Contrast(), Standardize() |
| Sabour 2017, smallNORB (resized to 48) | Crop(32) |
| Hinton 2018, smallNORB (resized to 48) | Crop(32), Brightness(), Contrast(), Standardize() |
| Choi 2019, MNIST | Affine(translation=0.1, fill="nearest") |
| Choi 2019, CIFAR-10 | Affine(rotation=20, translation=0.1, fill="nearest"), Flip() |
| Tsai 2020, CIFAR | PadCrop(4), Flip(), Normalize(mean, std) |
| Tsai 2020, DiverseMultiMNIST | Channels(3) |
| Zhao 2020, CIFAR-10 | Standardize(), Flip(), PadCrop(4) |
| Zhao 2020, smallNORB (resized to 48) | Mono(), Crop(32), Contrast(0.5, 1.5) |

Test images get CenterCrop in place of Crop, and what else does not draw where training has it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.checks import check_range, check_share, check_whole
from torchcaps.data.random import Draws
from torchcaps.errors import InputError

Transform = Callable[[Tensor, Draws], Tensor]

SMALLEST_SCALE = 1e-3


def as_float(images: Tensor) -> Tensor:
    """Bytes become 0..1; floats stay.

    By a product: CUDA turns a quotient by a number into one, and CPU and CUDA agree to the bit.
    """
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images


def windows(images: Tensor, top: Tensor, left: Tensor, height: int, width: int) -> Tensor:
    """Cut one window of ``height x width`` from each image.

    All windows of all images are rows of one strided view, numbered by their first pixel, so that
    one `index_select` copies the batch.

    Args:
        images: ``[b c h w]``.
        top: long ``[b]``, first row of each window, in range.
        left: long ``[b]``, first column.
        height: of the windows.
        width: of the windows.
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
    """Move each image by up to ``pixels`` in each direction; zeros come in at the edges."""

    pixels: int

    def __post_init__(self) -> None:
        check_whole("pixels", self.pixels, least=0)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        top, left = draws.integers(2 * self.pixels + 1, 2)
        padded = functional.pad(images, (self.pixels,) * 4)
        return windows(padded, top, left, *images.shape[-2:])


@dataclass(frozen=True)
class PadCrop:
    """Pad with ``fill`` on all sides, then cut a window of the old size at random."""

    padding: int = 4
    fill: int = 0

    def __post_init__(self) -> None:
        check_whole("padding", self.padding, least=0)
        check_whole("fill", self.fill)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        top, left = draws.integers(2 * self.padding + 1, 2)
        padded = functional.pad(images, (self.padding,) * 4, value=self.fill)
        return windows(padded, top, left, *images.shape[-2:])


@dataclass(frozen=True)
class Crop:
    """Cut a smaller square window at random."""

    size: int

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        height, width = images.shape[-2:]
        _fits(self.size, height, width)
        top = draws.integers(height - self.size + 1)[0]
        left = draws.integers(width - self.size + 1)[0]
        return windows(images, top, left, self.size, self.size)


@dataclass(frozen=True)
class CenterCrop:
    """Cut the middle: what a test image gets where training images are cropped at random."""

    size: int

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        height, width = images.shape[-2:]
        _fits(self.size, height, width)
        top, left = (height - self.size) // 2, (width - self.size) // 2
        return images[..., top : top + self.size, left : left + self.size]


def _fits(size: int, height: int, width: int) -> None:
    if not 0 < size <= min(height, width):
        raise InputError(f"cannot cut {size}x{size} from images of {height}x{width}; crop less")


@dataclass(frozen=True)
class Channels:
    """Repeat the one channel of gray images, for networks that take color.

    Tsai et al. 2020 show DiverseMultiMNIST to networks of three channels: ``Channels(3)``.
    """

    count: int

    def __post_init__(self) -> None:
        check_whole("count", self.count, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        if images.shape[1] != 1:
            raise InputError(f"Channels repeats one channel; the images have {images.shape[1]}")
        return images.repeat(1, self.count, 1, 1)


@dataclass(frozen=True)
class Mono:
    """Keep the first channel: one of smallNORB's two cameras, as Zhao et al. 2020 use it."""

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        return images[:, :1]


@dataclass(frozen=True)
class Flip:
    """Mirror left and right with a probability."""

    probability: float = 0.5

    def __post_init__(self) -> None:
        check_share("probability", self.probability)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        flipped = draws.uniform()[0] < self.probability
        both = torch.cat([images, images.flip(-1)])
        chosen = torch.arange(len(images), device=images.device) + flipped * len(images)
        return both.index_select(0, chosen)


@dataclass(frozen=True)
class Cutout:
    """Fill a square of each image, its middle anywhere in it (https://arxiv.org/abs/1708.04552).

    ``fill`` counts as the pixels do there: 0..255 in bytes, 0 is the mean after `Normalize`.
    """

    size: int
    fill: float = 0

    def __post_init__(self) -> None:
        check_whole("size", self.size, least=1)

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        if images.dtype == torch.uint8 and self.fill not in range(256):
            raise ValueError(f"fill must be a whole number in 0..255 for bytes, not {self.fill}")
        inside = []
        for side in images.shape[-2:]:
            first = draws.integers(side)[0][:, None] - self.size // 2
            place = torch.arange(side, device=images.device)
            inside.append((place >= first) & (place < first + self.size))
        rows, columns = inside
        return images.masked_fill((rows[:, :, None] & columns[:, None])[:, None], self.fill)


@dataclass(frozen=True)
class Affine:
    """Rotate, scale, shear and translate about the center, bilinear.

    Args:
        rotation: up to so many degrees either way.
        translation: up to this fraction of height and width either way.
        scale: range of the factor, drawn for x and y independently.
        shear: up to this much x per y either way.
        fill: ``"zeros"`` outside the image, or ``"nearest"``, its nearest edge pixel.
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
        """Apply to a batch."""
        angle, across, down, shear = draws.uniform(-1, 1, 4)
        scale_x, scale_y = draws.uniform(*self.scale, 2)
        matrix = linear_map(
            angle * (self.rotation * torch.pi / 180), scale_x, scale_y, shear * self.shear
        )
        shift = torch.stack([across, down], -1) * self.translation
        return warp(as_float(images), matrix, shift, fill=self.fill)


def linear_map(angle: Tensor, scale_x: Tensor, scale_y: Tensor, shear: Tensor) -> Tensor:
    """``[b 2 2]``: scale, then shear x by y, then rotate anticlockwise as seen on the screen."""
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
    """Map float images ``[b c h w]`` by ``matrix`` about the center, then move them.

    Args:
        images: what to map.
        matrix: ``[b 2 2]`` on (x, y) in pixels, y down.
        shift: ``[b 2]``, fractions of the result's width and height.
        size: height and width of the result; by default those of the images. Its center is the
            images' center.
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


@dataclass(frozen=True)
class Brightness:
    """Add a number of up to ``delta`` either way to all pixels of an image."""

    delta: float = 63 / 255

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        return as_float(images) + draws.uniform(-self.delta, self.delta)[0][:, None, None, None]


@dataclass(frozen=True)
class Contrast:
    """Multiply the distance of each pixel from its channel's mean by a factor of the range."""

    low: float = 0.2
    high: float = 1.8

    def __post_init__(self) -> None:
        check_range("low and high", (self.low, self.high))

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        images = as_float(images)
        factor = draws.uniform(self.low, self.high)[0][:, None, None, None]
        mean = images.mean((-2, -1), keepdim=True)
        return (images * factor).add_(mean * (1 - factor))


@dataclass(frozen=True)
class Standardize:
    """Give each image mean 0 and standard deviation 1.

    The deviation counts as at least 1 / sqrt(number of values) on the 0..255 scale, as in the
    papers' TensorFlow code, so that a blank image stays blank.
    """

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        images = as_float(images)
        root = prod(images.shape[1:]) ** 0.5
        centered = images - images.mean((-3, -2, -1), keepdim=True)
        # much faster than torch.std on a CPU
        std = torch.linalg.vector_norm(centered.flatten(1), dim=1) / root
        std = std.clamp_min(1 / (255 * root))[:, None, None, None]
        # in place unless an adversarial attack needs the gradient
        return centered / std if centered.requires_grad else centered.div_(std)


class Normalize:
    """Subtract the data set's mean and divide by its standard deviation, per channel.

    Args:
        mean: of each channel, of pixels in 0..1.
        std: likewise.
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
        # constants by device, so that no batch waits for a copy
        self._constants: dict[torch.device, tuple[Tensor, Tensor]] = {}

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"

    def __call__(self, images: Tensor, draws: Draws) -> Tensor:
        """Apply to a batch."""
        if images.shape[1] != len(self.mean):
            raise InputError(
                f"Normalize has numbers for {len(self.mean)} channels; the images have "
                f"{images.shape[1]}"
            )
        device = images.device
        if device not in self._constants:
            std = torch.tensor(self.std, device=device)[:, None, None]
            mean = torch.tensor(self.mean, device=device)[:, None, None]
            self._constants[device] = 1 / std, -mean / std
        scale, offset = self._constants[device]
        if images.dtype == torch.uint8:
            scale = scale / 255
        return (images * scale).add_(offset)
