"""Weights that turn child poses into votes, and batch normalization of votes."""

import math
from collections.abc import Callable
from typing import Literal, final

import torch
from torch import Tensor, nn

from torchcaps.checks import check_sizes
from torchcaps.tensors import full_precision
from torchcaps.votes import Votes


def keras_std(n_children: int, n_parents: int, rows: int, columns: int) -> float:
    """Return the standard deviation by Keras' Glorot rule, which counts i and j as well."""
    return math.sqrt(2 / (n_children * n_parents * (rows + columns)))


def vote_weight(
    n_children: int,
    n_parents: int,
    d_child: int,
    d_parent: int,
    *,
    matrix: bool,
    std: float | None = None,
) -> nn.Parameter:
    """Return normally distributed vote weights ``[i j q r]``.

    Args:
        n_children: children i with weights of their own.
        n_parents: parents j.
        d_child: size of a child's pose.
        d_parent: size of a parent's pose.
        matrix: read the child's pose as a square matrix, whose rows the weight multiplies;
            otherwise as a vector.
        std: None takes sqrt(n_parents / (q n_children)), as Tsai 2020 starts from.
    """
    check_sizes(n_children=n_children, n_parents=n_parents, d_child=d_child, d_parent=d_parent)
    rows = math.isqrt(d_child) if matrix else 1
    if matrix and rows * rows != d_child:
        raise ValueError(f"a matrix pose is square, and a child's pose of {d_child} numbers is not")
    if d_parent % rows:
        raise ValueError(
            f"a {rows}x{rows} child pose votes for matrices of {rows} rows, and a parent's pose "
            f"of {d_parent} numbers does not divide into them"
        )
    q, r = d_child // rows, d_parent // rows
    if std is None:
        std = math.sqrt(n_parents / (q * n_children))
    return nn.Parameter(std * torch.randn(n_children, n_parents, q, r))


@final
class VoteNorm(nn.Module):
    """Batch normalization of votes (Zhao 2020, Algorithm 2, line 4), without casting them.

    A vote is linear in the child's pose, so the mean and variance of the votes follow from those
    of the poses: ``mean(x W) = mean(x) W`` and ``var(x W) = W' cov(x) W``. Votes come back not yet
    cast, with a scale and a bias. Values and running statistics are those of ``nn.BatchNorm1d``
    over the dense votes. A single vote has no variance: it is normalized by the running statistics,
    in training too.

    Args:
        n_children: children i.
        n_parents: parents j.
        d_parent: size e of a vote.
        per: "entry" has one mean and variance for each of the e entries (the authors' code for
            sections 4.2 and 4.3), "capsule" for each of the i j e (for section 4.4).
        eps: added to the variance.
        momentum: share of the new batch in the running statistics.
    """

    running_mean: Tensor
    running_var: Tensor

    def __init__(
        self,
        n_children: int,
        n_parents: int,
        d_parent: int,
        *,
        per: Literal["entry", "capsule"] = "entry",
        eps: float = 1e-3,
        momentum: float = 0.01,
    ) -> None:
        super().__init__()
        if per not in ("entry", "capsule"):
            raise ValueError(f'per must be "entry" or "capsule", not {per!r}')
        shape = (d_parent,) if per == "entry" else (n_children, n_parents, d_parent)
        self.per = per
        self.eps = eps
        self.momentum = momentum
        self.weight = nn.Parameter(torch.ones(shape))
        self.bias = nn.Parameter(torch.zeros(shape))
        self.register_buffer("running_mean", torch.zeros(shape))
        self.register_buffer("running_var", torch.ones(shape))

    def forward(self, votes: Votes) -> Votes:
        """Return the votes with the scale and bias that normalize them."""
        if votes.scale is not None or votes.bias is not None:
            raise ValueError("votes that already have a scale or a bias cannot be normalized")
        count = self._count(votes)
        if self.training and count > 1:
            mean, variance = self._statistics(votes)
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
                unbiased = variance * (count / (count - 1))
                self.running_var.lerp_(unbiased.to(self.running_var.dtype), self.momentum)
        else:
            mean, variance = self.running_mean, self.running_var
        scale = self.weight * (variance + self.eps).rsqrt()
        bias = self.bias - mean * scale
        dtype = votes.poses.dtype
        return Votes(
            votes.poses, votes.weight, scale.to(dtype), bias.to(dtype), votes.child, votes.window
        )

    def _count(self, votes: Votes) -> int:
        """Return the number of votes behind one mean and variance."""
        b, i, j, _ = votes.shape
        return b if self.per == "capsule" else b * i * j

    def _statistics(self, votes: Votes) -> tuple[Tensor, Tensor]:
        """Return the mean and the variance of the votes."""
        b, i, j, e = votes.shape
        with full_precision(votes.poses.device):
            dtype = torch.promote_types(votes.poses.dtype, torch.float32)
            t = votes.weight.shape[0]
            weight = votes.weight.to(dtype)
            poses = votes.children().to(dtype).reshape(b, i // t, t, votes.rows, weight.shape[2])
            center = poses.mean(dim=0)  # [k t p q]
            off = poses - center
            covariance = torch.einsum("bktpq,bktps->ktpqs", off, off) / b
            mean = torch.einsum("ktpq,tjqr->ktjpr", center, weight).reshape(i, j, e)
            half = torch.einsum("ktpqs,tjsr->ktjpqr", covariance, weight)
            variance = torch.einsum("ktjpqr,tjqr->ktjpr", half, weight).reshape(i, j, e)
            variance = variance.clamp_min(0)  # rounding can take a variance of zero below
            if self.per == "capsule":
                return mean, variance
            spread, overall = torch.var_mean(mean, dim=(0, 1), correction=0)
            return overall, variance.mean(dim=(0, 1)) + spread

    def extra_repr(self) -> str:
        """Return the options of the normalization."""
        return f"per={self.per}, eps={self.eps:g}, momentum={self.momentum:g}"


VoteNormFactory = Callable[[int, int, int], VoteNorm]
"""VoteNorm, or a partial of it: called with n_children, n_parents and d_parent."""
