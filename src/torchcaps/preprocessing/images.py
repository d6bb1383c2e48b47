"""Images in the forms that users have them, as one batch of the same size and channels."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.errors import FileFormatError, InputError, MissingFileError, UsageError
from torchcaps.preprocessing.picture import convert_image, decode_image
from torchcaps.preprocessing.steps import as_float, resize

if TYPE_CHECKING:
    from PIL import Image as Pillow

Image: TypeAlias = "Tensor | NDArray[Any] | Pillow.Image | str | Path"
"""One image, or a batch of images as one tensor or array."""

ROUNDING = 1e-4
"""Tolerance for float pixels outside 0..1, as interpolation leaves them."""

LUMA = (0.299, 0.587, 0.114)
"""Weights of red, green and blue in a gray image (ITU-R BT.601), as in Pillow."""


def as_batch(images: "Image | Sequence[Image]", channels: int, size: tuple[int, int]) -> Tensor:
    """Return images as one batch ``[b c h w]`` of this size: uint8 if all are, else float in 0..1.

    Args:
        images: one image, a batch, or a list of them.
        channels: number of channels of the result.
        size: height and width of the result.
    """
    parts = list(images) if isinstance(images, list | tuple) else [images]
    if not parts:
        raise UsageError("there are no images: the list is empty")
    batches = [
        cover_and_crop(with_channels(_tensor(part, channels), channels), size) for part in parts
    ]
    if any(batch.dtype != torch.uint8 for batch in batches):
        batches = [as_float(batch) for batch in batches]
    return batches[0] if len(batches) == 1 else torch.cat(batches)


def read_image(path: str | Path) -> Tensor:
    """Read an image file as uint8 ``[c h w]``, upright, transparent pixels on black."""
    path = Path(path).expanduser()
    if path.is_dir():
        raise InputError(f"{path} is a folder: give the image files in it")
    try:
        with path.open("rb") as file:
            return channels_first(decode_image(file))
    except FileNotFoundError:
        raise MissingFileError(f"there is no image {path}") from None
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}") from None
    except FileFormatError as error:
        raise FileFormatError(
            f"{path} cannot be used: {error}; convert it to a usual 8-bit image"
        ) from None


def looks_inverted(images: Tensor, background: float | None) -> bool:
    """Return whether gray images look like negatives of those that a network was trained on.

    Their border is bright and brighter than their center, and the training images had a dark
    border; or the other way round. Half of the images or more must look so.

    Args:
        images: ``[b 1 h w]`` before the steps, uint8 or float in 0..1.
        background: mean brightness of the border of the training images.
    """
    if background is None or 0.2 < background < 0.8 or images.shape[1] != 1:
        return False
    values = as_float(images)
    border = border_brightness(values)
    height, width = values.shape[-2:]
    top, left = height // 4, width // 4
    center = values[..., top : height - top, left : width - left].mean((1, 2, 3))
    if background > 0.5:
        border, center = 1 - border, 1 - center
    return bool(((border > 0.6) & (border > center + 0.02)).float().mean() >= 0.5)


def border_brightness(values: Tensor) -> Tensor:
    """Return the mean brightness of the outermost pixels of each float image, ``[b]``."""
    edges = (values[..., 0, :], values[..., -1, :], values[..., :, 0], values[..., :, -1])
    return torch.cat([edge.flatten(1) for edge in edges], dim=1).mean(dim=1)


def _tensor(image: object, channels: int) -> Tensor:
    """Return one image or a batch as ``[b c h w]``, uint8 or float in 0..1."""
    if isinstance(image, str | Path):
        return read_image(image)[None]
    if isinstance(image, Tensor):
        return _checked(_arranged(image, channels))
    if isinstance(image, np.ndarray):
        # a copy: the array may be read-only or have negative strides
        return _checked(_arranged(_from_numpy(image), channels))
    if hasattr(image, "getexif") and hasattr(image, "mode"):
        return channels_first(convert_image(cast("Pillow.Image", image)))[None]
    raise UsageError(
        "an image is a tensor, an array, a Pillow image or the path of a file, not "
        f"{type(image).__name__}"
    )


def _from_numpy(array: NDArray[Any]) -> Tensor:
    try:
        return torch.from_numpy(np.array(array, order="C"))
    except TypeError:
        raise UsageError(
            f"images must be uint8, or floats between 0 and 1, not {array.dtype}"
        ) from None


def channels_first(pixels: NDArray[np.uint8]) -> Tensor:
    """Return decoded pixels ``[h w]`` or ``[h w c]`` as ``[c h w]``."""
    tensor = torch.from_numpy(pixels)
    return tensor[None] if tensor.dim() == 2 else tensor.permute(2, 0, 1)


def _arranged(images: Tensor, channels: int) -> Tensor:
    """Return a tensor of one of the usual layouts as ``[b c h w]``."""
    known = {1, 3, channels}
    if images.dim() == 2:
        images = images[None]
    if images.dim() in (3, 4):
        if images.shape[-3] not in known and images.shape[-1] in known:
            images = images.movedim(-1, -3)
        if images.shape[-3] in known and images.numel():
            return images if images.dim() == 4 else images[None]
    counts = " or ".join(str(count) for count in sorted(known))
    raise UsageError(
        f"images {list(images.shape)} must be [b c h w], [b h w c] or one image [c h w], [h w c] "
        f"or [h w], with {counts} channels"
    )


def _checked(images: Tensor) -> Tensor:
    """Return pixels as uint8 or float32; refuse values that are no pixels."""
    if images.dtype == torch.uint8:
        return images
    if not images.is_floating_point():
        raise UsageError(f"images must be uint8, or floats between 0 and 1, not {images.dtype}")
    low, high = (float(value) for value in images.detach().aminmax())
    if not (low >= -ROUNDING and high <= 1 + ROUNDING):
        raise UsageError(
            f"the pixels are between {low:.4g} and {high:.4g}: give uint8, or floats between 0 and "
            "1 that are not normalized yet"
        )
    return images.float()


def with_channels(images: Tensor, channels: int) -> Tensor:
    """Return the images in gray or color."""
    count = images.shape[1]
    if count == channels:
        return images
    if (count, channels) == (1, 3):
        return images.expand(-1, 3, -1, -1)
    if (count, channels) == (3, 1):
        weight = torch.tensor(LUMA, device=images.device)[:, None, None]
        gray = (images * weight).sum(dim=1, keepdim=True)
        return gray.round().byte() if images.dtype == torch.uint8 else gray
    raise UsageError(f"the network takes images of {channels} channels, not {count}")


def cover_and_crop(images: Tensor, size: tuple[int, int]) -> Tensor:
    """Return the images resized until they cover this size, their center cut out."""
    height, width = images.shape[-2:]
    if (height, width) == size:
        return images
    scale = max(size[0] / height, size[1] / width)
    covering = max(size[0], round(height * scale)), max(size[1], round(width * scale))
    if covering != (height, width):
        images = resize(images, *covering)
    top, left = (covering[0] - size[0]) // 2, (covering[1] - size[1]) // 2
    return images[..., top : top + size[0], left : left + size[1]]
