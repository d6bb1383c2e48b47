"""Weights that were stored in fewer bytes, kept so in an exported graph."""

from typing import final

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from torchcaps.models.weights.packed import SCALE, pack

ROUNDING = 1e-6
"""Relative error of a scale that is computed again from the weights."""

MIN_ELEMENTS = 10_000
"""Exporters turn smaller weights into float32 again."""


@final
class Unpack(nn.Module):
    """Int8 values times their scales, or float16 values, in place of a float32 weight."""

    def __init__(self, *stored: Tensor) -> None:
        super().__init__()
        self.stored = stored

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, ...]:
        """Return the stored tensors that stand for the weight."""
        return self.stored

    def forward(self, values: Tensor, scale: Tensor | None = None) -> Tensor:
        """Return the weight."""
        weight = values.to(torch.float32)
        return weight if scale is None else weight * scale


def keep_packed(module: nn.Module, *, but: tuple[type[nn.Module], ...] = ()) -> None:
    """Replace weights by the int8 values and scales, or float16 values, that they came from.

    Weights that ship with the package were stored so, and no number changes. A network that was
    trained in float32 has no such weights.

    Args:
        module: a module in float32 whose parameters need no gradient.
        but: kinds of modules whose weights stay float32.
    """
    packed = pack(module, "int8")
    for name, weight in list(module.named_parameters()):
        owner, _, attribute = name.rpartition(".")
        parent, scale = module.get_submodule(owner), packed.get(name + SCALE)
        stored = (packed[name],) if scale is None else (packed[name], scale)
        unpack = Unpack(*stored)
        rounding = 0.0 if scale is None else ROUNDING
        same = torch.allclose(unpack(*stored), weight, rtol=rounding, atol=0.0)
        if weight.numel() >= MIN_ELEMENTS and same and not isinstance(parent, but):
            parametrize.register_parametrization(parent, attribute, unpack, unsafe=True)
