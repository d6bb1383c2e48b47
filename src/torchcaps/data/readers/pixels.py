"""Images in arrays: the order of their axes, and their values as bytes."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.data.readers.npy import ArrayFile, fits_in_memory
from torchcaps.errors import InputError
from torchcaps.preprocessing.description import MAX_CHANNELS, MAX_SIDE
from torchcaps.preprocessing.images import ROUNDING, cover_and_crop, with_channels

AXES = ("nhw", "nchw", "nhwc")
CHUNK = 1024
"""Images converted at a time."""


class Layout(NamedTuple):
    """The axes of an array of images.

    Attributes:
        axes: one letter per axis.
        channels: number of channels.
        size: height and width.
    """

    axes: str
    channels: int
    size: tuple[int, int]


def find_layout(images: ArrayFile, axes: str | None) -> Layout:
    """Return the layout of images; ``axes`` is what the user says, None for nothing."""
    shape = images.shape
    if axes is None:
        axes = _guess_axes(images)
    elif axes not in AXES or len(axes) != len(shape):
        raise InputError(
            f"{images} is {list(shape)}: layout must be one of {', '.join(AXES)}, with a letter "
            "for each axis"
        )
    sides = dict(zip(axes, shape, strict=True))
    channels, height, width = sides.get("c", 1), sides["h"], sides["w"]
    if not (1 <= channels <= MAX_CHANNELS and 1 <= height <= MAX_SIDE and 1 <= width <= MAX_SIDE):
        raise InputError(
            f"{images} has {channels} channels of {height}x{width}: the most are {MAX_CHANNELS} of "
            f"{MAX_SIDE}x{MAX_SIDE}"
        )
    return Layout(axes, channels, (height, width))


def _guess_axes(images: ArrayFile) -> str:
    """Return the axes of an array by its shape; refuse what could be either."""
    if len(images.shape) == 3:
        return "nhw"
    if len(images.shape) != 4:
        raise InputError(
            f"{images} is {list(images.shape)}: give images as [n h w], [n h w c] or [n c h w]"
        )
    _, second, third, last = images.shape
    few, many = sorted((second, last))
    if many > MAX_CHANNELS or (2 * few <= many and 2 * many > third):
        return "nchw" if second == few else "nhwc"
    raise InputError(
        f"{images} is {list(images.shape)}, where the channels may be the second or the last axis: "
        "add an array layout with the word nchw or nhwc"
    )


def read_pixels(
    file: ArrayFile, layout: Layout, rows: NDArray[np.int64], shape: tuple[int, int, int]
) -> Tensor:
    """Return the rows of an array as uint8 ``[n c h w]`` of this shape."""
    if file.dtype != np.uint8 and file.dtype.kind != "f":
        raise InputError(f"{file} has {file.dtype}: give uint8, or floats from 0 to 1")
    if not fits_in_memory(len(rows) * int(np.prod(shape))):
        raise InputError(f"{file} does not fit into memory at {'x'.join(map(str, shape))}")
    array = file.read()
    images = torch.empty((len(rows), *shape), dtype=torch.uint8)
    for start in range(0, len(rows), CHUNK):
        part = _to_bytes(array[rows[start : start + CHUNK]], file)
        if layout.axes == "nhw":
            part = part[:, None]
        elif layout.axes == "nhwc":
            part = part.transpose(0, 3, 1, 2)
        pixels = with_channels(torch.from_numpy(np.ascontiguousarray(part)), shape[0])
        images[start : start + CHUNK] = cover_and_crop(pixels, (shape[1], shape[2]))
    return images


def _to_bytes(part: NDArray[Any], file: ArrayFile) -> NDArray[np.uint8]:
    """Return pixels as bytes; refuse floats outside 0..1."""
    if part.dtype == np.uint8:
        return part
    if not np.isfinite(part).all():
        raise InputError(f"{file} has pixels that are NaN or infinite: replace them")
    low, high = float(part.min()), float(part.max())
    if low < -ROUNDING or high > 1 + ROUNDING:
        raise InputError(
            f"{file} has pixels from {low:.4g} to {high:.4g}: scale them to 0..1, or give uint8"
        )
    return (part.clip(0, 1) * 255).round().astype(np.uint8)
