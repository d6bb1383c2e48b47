"""Augmentation as batched tensor code: every sample of a batch gets its own draw.

A transform takes images ``[b c h w]`` and the batch's `Draws` and returns images. Pixels are uint8
until a transform needs fractions; from there on they are floats in 0..1. Draws are the same on
every device. Crops, flips and shifts are therefore equal to the bit on CPU and CUDA; transforms
that interpolate or average agree to rounding.

The papers augment their training images as follows:

| paper, set | transforms |
|---|---|
| Sabour 2017, MNIST | Shift(2) |
| Sabour 2017, CIFAR-10 | Crop(24), Flip(), Brightness(), Contrast(), Standardize() |
| Sabour 2017, smallNORB (resized to 48) | Crop(32) |
| Hinton 2018, smallNORB (resized to 48) | Standardize(), Crop(32), Brightness(), Contrast() |
| Choi 2019, MNIST | Affine(translation=0.1, fill="nearest") |
| Choi 2019, CIFAR-10 | Affine(rotation=20, translation=0.1, fill="nearest"), Flip() |
| Tsai 2020, CIFAR | PadCrop(4), Flip(), Normalize(mean, std) |
| Tsai 2020, DiverseMultiMNIST | Channels(3) |
| Zhao 2020, CIFAR-10 | Standardize(), Flip(), PadCrop(4) |
| Zhao 2020, smallNORB (resized to 48) | Crop(32), Contrast(0.5, 1.5) |

Test images get `CenterCrop` in place of `Crop` and every transform that draws nothing.
"""

from torchcaps.data.augment.color import (
    Brightness as Brightness,
    Contrast as Contrast,
)
from torchcaps.data.augment.distortion import (
    Cutout as Cutout,
    Elastic as Elastic,
    Sometimes as Sometimes,
)
from torchcaps.data.augment.geometry import (
    Affine as Affine,
    Crop as Crop,
    Flip as Flip,
    PadCrop as PadCrop,
    Shift as Shift,
    linear_map as linear_map,
    warp as warp,
)
from torchcaps.data.augment.transform import Transform as Transform
from torchcaps.preprocessing.steps import (
    CenterCrop as CenterCrop,
    Channels as Channels,
    Mono as Mono,
    Normalize as Normalize,
    Standardize as Standardize,
    as_float as as_float,
)
