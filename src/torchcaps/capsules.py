"""What travels through a capsule network: capsules, votes not yet cast, routed capsules, output.

Axes: b batch (and folded positions), i child, j parent, d child pose, e parent pose, h w image,
p q rows and columns of a matrix pose.
"""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Capsules", "Output", "Routed", "Votes"]


class Capsules(NamedTuple):
    """Capsules of one layer: in a row ``[b i d]`` or on a grid ``[b h w i d]``.

    On a grid, i counts the capsule types at one position. ``activations`` has the shape of
    ``poses`` without the last axis, or is None where a capsule is its pose alone.
    """

    poses: Tensor
    activations: Tensor | None = None

    def flat(self) -> "Capsules":
        """The same capsules in a row, ``[b (h w i) d]``: the type is the fastest index."""
        if self.poses.dim() == 3:
            return self
        activations = None if self.activations is None else self.activations.flatten(1)
        return Capsules(self.poses.flatten(1, -2), activations)


class Routed(NamedTuple):
    """What a routing returns, always whole.

    ``poses`` are ``[b j e]``; ``activations`` ``[b j]`` say how present each parent is (a length
    where the paper has no activation); ``couplings`` ``[b i j]`` say what child i gave to parent j,
    and may be a view of fewer numbers: copy them before changing them in place. A convolutional
    layer unfolds b into ``b h w``.
    """

    poses: Tensor
    activations: Tensor
    couplings: Tensor


class Output(NamedTuple):
    """What a network returns, always whole.

    ``scores`` ``[b n]`` are what the paper classifies by: lengths, activations or logits.
    ``capsules`` are the class capsules, None for a network without capsules. ``couplings`` has one
    tensor per capsule layer if they were asked for, and is empty otherwise. ``reconstruction`` is
    ``[b c h w]``, ``[b k c h w]`` for k objects in one image, or None.
    """

    scores: Tensor
    capsules: Capsules | None = None
    couplings: tuple[Tensor, ...] = ()
    reconstruction: Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Votes:
    """Votes that have not been cast: child poses and the weights they will be multiplied with.

    The vote of child i for parent j is its pose, read as a matrix of p rows and q columns, times a
    q x r matrix; a vector pose is a matrix of one row, so p follows from the shapes:

        vote[b, i, j, (p r)] = sum_q poses[b, i, (p q)] weight[i, j, q, r] * scale + bias

    Args:
        poses: child poses ``[b i d]`` with d = p q.
        weight: ``[i j q r]``; with fewer than i rows, every t-th child shares one: child i uses
            row i modulo t, which for capsules taken from a grid shares weights over positions.
        scale: factor that broadcasts to ``[i j e]`` (batch normalisation), or None.
        bias: summand that broadcasts to ``[i j e]`` (bias, coordinate addition), or None.
        child: integers ``[b i]`` below b * i, or None. Slots with the same number show one child to
            several windows; routings that let parents of different windows compete need it.
    """

    poses: Tensor
    weight: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None
    child: Tensor | None = None

    def __post_init__(self) -> None:
        if self.poses.dim() != 3:
            raise ValueError(f"child poses must be [b i d], not {list(self.poses.shape)}")
        if self.weight.dim() != 4:
            raise ValueError(f"a vote weight must be [i j q r], not {list(self.weight.shape)}")
        if 0 in self.weight.shape:
            raise ValueError(f"a vote weight {list(self.weight.shape)} needs at least one entry")
        n_children, d_child = self.poses.shape[1:]
        shared, _, q, _ = self.weight.shape
        if n_children % shared:
            raise ValueError(f"{n_children} children cannot share the weights of {shared} evenly")
        if d_child % q:
            raise ValueError(
                f"a pose of {d_child} numbers does not divide into rows of {q}, as the weight "
                f"{list(self.weight.shape)} needs"
            )
        check_alike("child poses", self.poses, "the weights", self.weight)

    @property
    def rows(self) -> int:
        """Rows p of a pose; 1 for vector poses."""
        return self.poses.shape[2] // self.weight.shape[2]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape ``(b, i, j, e)`` of the dense votes."""
        b, i, _ = self.poses.shape
        _, j, _, r = self.weight.shape
        return b, i, j, self.rows * r

    def dense(self) -> Tensor:
        """Cast the votes: ``[b i j e]``, laid out in memory as ``[b j i e]``.

        That order turns the contractions of every routing into batched matrix products that need
        no further copy. Cost: b i j e q multiplications; one more tensor of that size for a moment.
        """
        b, i, j, e = self.shape
        t = self.weight.shape[0]
        poses = self.poses.reshape(b, i // t, t, self.rows, self.weight.shape[2])
        votes = torch.einsum("bktpq,tjqr->bjktpr", poses, self.weight)
        votes = votes.reshape(b, j, i, e).contiguous().transpose(1, 2)
        if self.scale is not None:
            votes = votes * self.scale.to(votes.dtype)
        if self.bias is not None:
            votes = votes + self.bias.to(votes.dtype)
        return votes


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
