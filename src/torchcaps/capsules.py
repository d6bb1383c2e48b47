"""Capsules, routed capsules and the output of a network.

Axes: b batch (and folded positions), i child, j parent, d child pose, e parent pose, h w image,
p q rows and columns of a matrix pose.
"""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.utils._pytree import _register_namedtuple


class Capsules(NamedTuple):
    """Capsules of one layer: in a row ``[b i d]`` or on a grid ``[b h w i d]``.

    On a grid, i counts the capsule types at one position. ``activations`` has the shape of
    ``poses`` without the last axis, or is None where a capsule is its pose alone.
    """

    poses: Tensor
    activations: Tensor | None = None

    def flat(self) -> "Capsules":
        """Return the same capsules in a row, ``[b (h w i) d]``: the type is the fastest index."""
        if self.poses.dim() == 3:
            return self
        activations = None if self.activations is None else self.activations.flatten(1)
        return Capsules(self.poses.flatten(1, -2), activations)


class Routed(NamedTuple):
    """The result of a routing, always whole.

    ``poses`` are ``[b j e]``. ``activations`` ``[b j]`` say how present each parent is; where the
    paper has none they are lengths. ``couplings`` ``[b i j]`` say what child i gave to parent j.
    Couplings may be a view of fewer numbers: copy them before changing them in place. A
    convolutional layer unfolds b into ``b h w``.
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor


class Output(NamedTuple):
    """The result of a network, always whole.

    ``scores`` ``[b n]`` are what the paper classifies by: lengths, activations or logits.
    ``capsules`` are the class capsules, None for a network without capsules. ``couplings`` has one
    tensor per capsule layer if they were asked for, and is empty otherwise. ``reconstruction`` is
    ``[b c h w]``, ``[b k c h w]`` for k objects in one image, or None.
    """

    scores: Tensor
    capsules: Capsules | None = None
    couplings: tuple[Tensor, ...] = ()
    reconstruction: Tensor | None = None


# the names under which torch.export.save writes what a network returns
for _kind in (Capsules, Routed, Output):
    _register_namedtuple(_kind, serialized_type_name=f"torchcaps.{_kind.__name__}")


def check_alike(name: str, tensor: Tensor, other_name: str, other: Tensor) -> None:
    """Refuse tensors of two devices, or one of float64, which autocast does not convert."""
    if tensor.device != other.device:
        raise ValueError(
            f"{name} are on {tensor.device} and {other_name} on {other.device}: move one with .to()"
        )
    if tensor.dtype != other.dtype and torch.float64 in (tensor.dtype, other.dtype):
        raise ValueError(
            f"{name} are {tensor.dtype} and {other_name} {other.dtype}: convert one with .to()"
        )
