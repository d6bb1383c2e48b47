"""The type of a transform, and its conversion of bytes to floats."""

from collections.abc import Callable

import torch
from torch import Tensor

from torchcaps.data.random import Draws

Transform = Callable[[Tensor, Draws], Tensor]


def as_float(images: Tensor) -> Tensor:
    """Return bytes as floats in 0..1, and floats unchanged.

    Multiplication, not division, gives the same bits on CPU and CUDA.
    """
    return images.float().mul_(1 / 255) if images.dtype == torch.uint8 else images
