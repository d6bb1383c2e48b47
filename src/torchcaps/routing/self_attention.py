"""Self-attention routing: a child attends to parents for which it votes as the other children do.

Mazzia, Salvetti and Chiaberge, "Efficient-CapsNet: capsule network with self-attention routing",
Scientific Reports 2021, https://arxiv.org/abs/2101.12491. With u_ij the vote of child i for parent
j and e the size of a pose:

    A_ikj = u_ij . u_kj / sqrt(e)                     agreement of children i and k
    c_ij  = softmax(sum_k A_ikj) over parents j       coupling
    s_j   = sum_i (c_ij + b_ij) u_ij                  weighted sum, b is learned
    v_j   = (1 - exp(-|s_j|)) s_j / |s_j|             squash

The sum over k needs no matrix of children by children: it is u_ij . sum_k u_kj / sqrt(e), one step
of inverted attention from the sum of the votes. The bias b acts as a learned prior that survives
where the agreement says nothing.

Deviations: none. Activations are the lengths of the poses, by which the paper classifies.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import exponential_squash, lengths
from torchcaps.routing.base import Axis, Implementation, Kernel, Routing, Sizes
from torchcaps.tensors import parent_major
from torchcaps.votes import Votes


def self_attention_routing(
    votes: Tensor, bias: Tensor | None = None, *, scale: float | None = None
) -> Routed:
    """Route votes ``[b i j e]`` by their agreement with the votes of all children.

    Args:
        votes: the prediction of child i for the pose of parent j.
        bias: ``[i j]``, added to the couplings; None is zero.
        scale: factor on the agreement; None is the paper's 1 / sqrt(e), 0 couples uniformly.

    Returns:
        poses ``[b j e]``, activations ``[b j]`` (their lengths), and couplings ``[b i j]`` before
        the bias, summing to 1 over parents.

    Cost: O(b i j e) time, ``[b i j]`` memory beside the votes.
    """
    votes = parent_major(votes)
    _, i, j, e = votes.shape
    if bias is not None and bias.shape != (i, j):
        raise ValueError(f"bias {list(bias.shape)} must be {[i, j]} for votes {list(votes.shape)}")
    scale = 1 / math.sqrt(e) if scale is None else scale
    agreement = scale * torch.einsum("bije,bje->bij", votes, votes.sum(dim=1))
    couplings = agreement.softmax(dim=-1)
    weights = couplings if bias is None else couplings + bias.to(couplings.dtype)
    poses = exponential_squash(torch.einsum("bij,bije->bje", weights, votes))
    return Routed(poses, lengths(poses), couplings)


@final
class SelfAttentionRouting(Routing):
    """Self-attention routing (Mazzia 2021) with its bias ``[i j]``, zero at the start.

    Args:
        sizes: see :class:`Routing`.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    kernel: ClassVar[Kernel | None] = Kernel()
    can_chunk: bool = True
    per_child: bool = True

    def __init__(self, sizes: Sizes, *, implementation: Implementation = "auto") -> None:
        super().__init__(sizes, implementation=implementation)
        self.bias = nn.Parameter(torch.zeros(sizes.n_children, sizes.n_parents))
        self.scale = 1 / math.sqrt(sizes.d_parent)

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route the votes in one step of attention."""
        self.refuse_parents(parents)
        path = self.path(votes)
        if path == "plain":
            return self_attention_routing(self.cast(votes), self.bias, scale=self.scale)
        uncast = self.uncast(votes, path)
        attend = kernels.attend if path == "fused" else kernels.attend_in_chunks
        sums, couplings = attend(uncast, uncast.total(), scale=self.scale)
        poses = exponential_squash(sums + uncast.weighed(self.bias).total().to(sums.dtype))
        return Routed(poses, lengths(poses), couplings)

    def contributions(self, children: Capsules, votes: Votes | Tensor, routed: Routed) -> Tensor:
        """Return the length of each vote times the size of its weight, bias included."""
        return (routed.couplings + self.bias).abs() * lengths(self.cast(votes))

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Couple every child to all parents alike inside this context; the bias stays."""
        scale, self.scale = self.scale, 0.0
        try:
            yield True
        finally:
            self.scale = scale
