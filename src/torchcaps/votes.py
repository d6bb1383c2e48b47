"""Votes that have not been cast: child poses, weights, and how they multiply.

Axes: b batch (and folded positions), i child, j parent, d child pose, e parent pose, h w image,
k window offset. The axis t counts the children with weights of their own, and p q r are rows and
columns of matrix poses.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.capsules import check_alike
from torchcaps.tensors import Pair, output_size, windows


class Window(NamedTuple):
    """Geometry of windows over a grid of capsules: size, step and padding, by rows and columns."""

    kernel_size: Pair
    stride: Pair = (1, 1)
    padding: Pair = (0, 0)


@dataclass(frozen=True, slots=True, eq=False)
class Votes:
    """Votes that have not been cast: child poses and the weights they will be multiplied with.

    To *cast* votes is to compute them. A dense tensor of votes is the largest tensor of a capsule
    network, so kernels cast each vote where they use it and store none.

    The vote of child i for parent j is its pose, read as a matrix of p rows and q columns, times a
    q x r matrix. A vector pose is a matrix of one row, so p follows from the shapes:

        vote[b, i, j, (p r)] = sum_q poses[b, i, (p q)] weight[i, j, q, r] * scale + bias

    Args:
        poses: child poses ``[b i d]`` with d = p q. With ``window`` they are a grid
            ``[b h w t d]``, whose windows ``[(b h' w') (k t) d]`` are cut where they are needed.
        weight: ``[i j q r]``. With only t < i rows, child i uses row i modulo t. For capsules taken
            from a grid this shares weights over positions.
        scale: factor that broadcasts to ``[i j e]`` (batch normalization), or None.
        bias: summand that broadcasts to ``[i j e]`` (bias, coordinate addition), or None.
        child: integers ``[b i]`` below b * i, or None. Slots with the same number show one child to
            several windows; routings that let parents of different windows compete need it.
        window: how windows slide over ``poses``, or None if these are the children of one window
            in a row.
    """

    poses: Tensor
    weight: Tensor
    scale: Tensor | None = None
    bias: Tensor | None = None
    child: Tensor | None = None
    window: Window | None = None

    def __post_init__(self) -> None:
        if self.window is None and self.poses.dim() != 3:
            raise ValueError(f"child poses must be [b i d], not {list(self.poses.shape)}")
        if self.window is not None and self.poses.dim() != 5:
            raise ValueError(f"a grid of poses must be [b h w i d], not {list(self.poses.shape)}")
        if self.weight.dim() != 4:
            raise ValueError(f"a vote weight must be [i j q r], not {list(self.weight.shape)}")
        if 0 in self.weight.shape:
            raise ValueError(f"a vote weight {list(self.weight.shape)} needs at least one entry")
        _, n_children, _, _ = self.shape
        d_child = self.poses.shape[-1]
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
        return self.poses.shape[-1] // self.weight.shape[2]

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Shape ``(b, i, j, e)`` of the dense votes."""
        b, i = self.poses.shape[0], self.poses.shape[-2]
        if self.window is not None:
            i *= self.window.kernel_size[0] * self.window.kernel_size[1]
            height, width = output_size((self.poses.shape[1], self.poses.shape[2]), *self.window)
            b *= height * width
        _, j, _, r = self.weight.shape
        return b, i, j, self.rows * r

    def children(self) -> Tensor:
        """Return child poses by window, ``[b i d]``: a copy for each window that has the child."""
        if self.window is None:
            return self.poses
        return windows(self.poses, *self.window).flatten(3, 4).flatten(0, 2)

    def dense(self) -> Tensor:
        """Cast the votes: return ``[b i j e]``, laid out in memory as ``[b j i e]``.

        That order turns the contractions of every routing into batched matrix products that need
        no further copy. Cost: b i j e q multiplications; one more tensor of that size for a moment.
        """
        b, i, j, e = self.shape
        t = self.weight.shape[0]
        poses = self.children().reshape(b, i // t, t, self.rows, self.weight.shape[2])
        votes = torch.einsum("bktpq,tjqr->bjktpr", poses, self.weight)
        votes = votes.reshape(b, j, i, e).contiguous().transpose(1, 2)
        if self.scale is not None:
            votes = votes * self.scale.to(votes.dtype)
        if self.bias is not None:
            votes = votes + self.bias.to(votes.dtype)
        return votes

    def total(self) -> Tensor:
        """Sum of the votes over children, ``[b j e]``, without casting them.

        What uniform couplings need is one matrix product, or one convolution of the grid.
        """
        b, i, j, e = self.shape
        if self.scale is not None:
            return self.dense().sum(dim=1)
        q, r = self.weight.shape[2:]
        if self.window is None:
            t = self.weight.shape[0]
            poses = self.poses.unflatten(1, (i // t, t)).sum(dim=1) if t < i else self.poses
            rows = poses.reshape(b, t, self.rows, q).transpose(1, 2).reshape(b, self.rows, t * q)
            weight = self.weight.permute(0, 2, 1, 3).reshape(t * q, j * r)
            total = (rows @ weight).reshape(b, self.rows, j, r).transpose(1, 2).reshape(b, j, e)
        else:
            total = self._convolved()
        if self.bias is not None:
            total = total + self.bias.expand(i, j, e).sum(dim=0).to(total.dtype)
        return total

    def weighed(self, coefficients: Tensor) -> "Votes":
        """Return the votes times coefficients ``[i j]``, still not cast."""
        _, i, j, e = self.shape
        if coefficients.shape != (i, j):
            raise ValueError(
                f"coefficients {list(coefficients.shape)} must be {[i, j]} for votes "
                f"{list(self.shape)}"
            )
        weight = self._repeated_weight() * coefficients[..., None, None]
        bias = self.bias
        if bias is not None:
            bias = bias.expand(i, j, e) * coefficients[..., None]
        return replace(self, poses=self.poses.to(weight.dtype), weight=weight, bias=bias)

    def detach(self) -> "Votes":
        """Return the same votes, cut off from the gradient."""
        tensors = (self.poses, self.weight, self.scale, self.bias)
        poses, weight, scale, bias = (None if t is None else t.detach() for t in tensors)
        assert poses is not None
        assert weight is not None
        return replace(self, poses=poses, weight=weight, scale=scale, bias=bias)

    def _repeated_weight(self) -> Tensor:
        """Return the weights of all children, ``[i j q r]``."""
        times = self.shape[1] // self.weight.shape[0]
        return self.weight if times == 1 else self.weight.repeat(times, 1, 1, 1)

    def _convolved(self) -> Tensor:
        """Sum by a convolution: rows of poses join the batch, columns the channels."""
        assert self.window is not None
        n, height, width, t, _ = self.poses.shape
        _, j, q, r = self.weight.shape
        grid = self.poses.reshape(n, height, width, t, self.rows, q).permute(0, 4, 1, 2, 3, 5)
        grid = grid.reshape(n * self.rows, height, width, t * q).permute(0, 3, 1, 2)
        kernel = (
            self._repeated_weight()
            .unflatten(0, (*self.window.kernel_size, t))
            .permute(3, 5, 2, 4, 0, 1)
        )
        kernel = kernel.reshape(j * r, t * q, *self.window.kernel_size)
        out = F.conv2d(grid, kernel, None, self.window.stride, self.window.padding)
        out = out.permute(0, 2, 3, 1).reshape(n, self.rows, *out.shape[2:], j, r)
        return out.permute(0, 2, 3, 4, 1, 5).reshape(-1, j, self.rows * r)
