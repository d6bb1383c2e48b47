"""Attention routing: couplings are read off the votes by a learned kernel, in one pass.

Choi, Seo, Im and Kang, 2019, https://arxiv.org/abs/1907.01750, section 3 and Algorithm 1.

    b_mn = sum_m',d w_n[m', d, m] s_m'n[d]             (7)  logits: all votes for n judge child m
    c_mn = exp(b_mn) / sum_m' exp(b_m'n)               (8)  coupling, over children
    s_n  = sum_m c_mn s_mn                             (6)  weighted votes
    u_n  = tanh(A_n s_n + a_n)                         (4, 9)  capsule activation

The paper's capsule channels m and n are our child i and parent j at one position; its convolutional
transform (5), which makes the votes, is the layer :class:`ConvTransformCapsules`.

Deviations: none but the initial values, which are not those of Keras. The paper leaves the kernel
of (7) open; as in the authors' code, parent j has one kernel of i e weights for every child and no
bias.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import lengths, normalized_lengths
from torchcaps.routing.activation import CapsuleActivation
from torchcaps.routing.base import Axis, Implementation, Primary, Routing, Sizes, filled
from torchcaps.tensors import parent_major
from torchcaps.votes import Votes

MAX_SPREAD_PARENTS = 16


def attention_routing(votes: Tensor, weight: Tensor, mask: Tensor | None = None) -> Routed:
    """Route votes ``[b i j e]`` by Eq. 6 to 8.

    Args:
        votes: what child i predicts for the pose of parent j.
        weight: ``[j i e i]``: entry ``[j, i, e, o]`` says how the vote of child i for parent j
            bears on the logit of child o.
        mask: ``[b i]``, False for absent children, whose votes must be zero; their couplings are
            zero too. None means that all are present.

    Returns:
        poses ``[b j e]`` before the capsule activation, activations ``[b j]`` (their lengths) and
        couplings ``[b i j]``, summing to 1 over children.

    Cost: O(b i^2 j e) time, ``[b i j]`` memory beside the votes.
    """
    votes = parent_major(votes)
    _, i, j, e = votes.shape
    if weight.shape != (j, i, e, i):
        raise ValueError(
            f"the attention kernel {list(weight.shape)} must be {[j, i, e, i]} for votes "
            f"{list(votes.shape)}"
        )
    logits = _logits(votes.transpose(1, 2).flatten(2), weight.flatten(1, 2))  # (7)
    if mask is not None:
        logits = logits.masked_fill(~mask[..., None], torch.finfo(logits.dtype).min)
    couplings = logits.softmax(dim=1)  # (8)
    if mask is not None:  # a sample without any child
        couplings = couplings * mask[..., None]
    poses = torch.einsum("bij,bije->bje", couplings, votes)  # (6)
    return Routed(poses, lengths(poses), couplings)


def _logits(concatenated: Tensor, weight: Tensor) -> Tensor:
    """Return logits ``[b i j]`` from the votes ``[b j (i e)]`` and the weights ``[j (i e) i]``.

    On a GPU few parents are faster in one matrix product, with zeros between them, than in a
    product each: products with few columns leave it idle.
    """
    if not concatenated.is_cuda or concatenated.shape[1] > MAX_SPREAD_PARENTS:
        return torch.einsum("bjk,jko->boj", concatenated, weight)
    return _spread_product(concatenated, weight)


def _spread_product(concatenated: Tensor, weight: Tensor) -> Tensor:
    j, k, i = weight.shape
    apart = torch.eye(j, dtype=weight.dtype, device=weight.device)
    spread = weight[:, :, None, :] * apart[:, None, :, None]  # [j k j i]
    logits: Tensor = concatenated.flatten(1) @ spread.reshape(j * k, j * i)
    return logits.reshape(concatenated.shape[0], j, i).transpose(1, 2)


@final
class AttentionRouting(Routing):
    """Attention routing (Choi 2019) with its kernel and the capsule activation.

    The activations it returns are normalized lengths, ``|u| / sqrt(e)`` (Eq. 10).

    Args:
        sizes: see :class:`Routing`.
        bounded: False leaves out the tanh of the capsule activation, for residual connections.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "children"
    primary: ClassVar[Primary] = "rectify"
    long_poses: ClassVar[bool] = True
    per_child: bool = True

    def __init__(
        self,
        sizes: Sizes,
        *,
        bounded: bool = True,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        n_children, n_parents, _, d_parent = sizes
        fan = n_children * d_parent
        limit = (6 / (fan + fan * n_parents)) ** 0.5
        weight = torch.empty(n_parents, n_children, d_parent, n_children)
        self.weight = nn.Parameter(weight.uniform_(-limit, limit))
        self.activation = CapsuleActivation(n_parents, d_parent, bounded=bounded)

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route votes in one pass and activate the parents."""
        self.refuse_parents(parents)
        return self._activated(attention_routing(self.cast(votes), self.weight))

    def route_present(
        self,
        children: Capsules,
        votes: Votes | Tensor,
        mask: Tensor,
        parents: Tensor | None = None,
    ) -> Routed:
        """Let the children that are present compete, and no others."""
        self.refuse_parents(parents)
        return self._activated(attention_routing(self.cast(votes), self.weight, mask))

    def _activated(self, routed: Routed) -> Routed:
        poses = self.activation(routed.poses)
        return Routed(poses, normalized_lengths(poses), routed.couplings)

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Couple all children alike inside this context: every logit is zero."""
        with filled([self.weight], 0.0):
            yield True
