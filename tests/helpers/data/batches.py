"""Random images, and transforms of every kind."""

import torch
from torch import Tensor

from torchcaps.data import (
    Affine,
    Brightness,
    Contrast,
    Flip,
    ImageSet,
    PadCrop,
    Standardize,
    Transform,
)
from torchcaps.data.random import Draws, stream_key

ALL: tuple[Transform, ...] = (
    PadCrop(2),
    Flip(),
    Affine(rotation=20, translation=0.1, scale=(0.9, 1.1), shear=0.1, fill="nearest"),
    Brightness(),
    Contrast(),
    Standardize(),
)


def random_images(count: int, channels: int = 3, size: int = 12, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    shape = (count, channels, size, size)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator)


def image_set(count: int = 100, channels: int = 3, size: int = 12) -> ImageSet:
    return ImageSet(random_images(count, channels, size), torch.arange(count) % 7, tuple("abcdefg"))


def draws(count: int, seed: int = 0) -> Draws:
    return Draws(stream_key(seed), torch.arange(count))
