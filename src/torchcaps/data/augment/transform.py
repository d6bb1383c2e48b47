"""The type of a transform."""

from collections.abc import Callable

from torch import Tensor

from torchcaps.data.random import Draws

Transform = Callable[[Tensor, Draws], Tensor]
