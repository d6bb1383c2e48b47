"""Attention routing: couplings are read off the votes by a learned kernel, in one pass.

Choi, Seo, Im and Kang, 2019, https://arxiv.org/abs/1907.01750, section 3 and Algorithm 1.

    b_mn = sum_m',d w_n[m', d, m] s_m'n[d]             (7)  logits: all votes for n judge child m
    c_mn = exp(b_mn) / sum_m' exp(b_m'n)               (8)  coupling, over children
    s_n  = sum_m c_mn s_mn                             (6)  weighted votes
    u_n  = tanh(A_n s_n + a_n)                         (4, 9)  capsule activation

The paper's capsule channels m and n are our child i and parent j at one position; its convolutional
transform (5), which makes the votes, is the layer :class:`ConvTransformCapsules`.

Deviations: none. The paper leaves the kernel of (7) open; as in the authors' code, parent j has one
kernel of i e weights for every child and no bias.
"""

from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Routed, Votes
from torchcaps.functional import lengths, normalized_lengths, parent_major
from torchcaps.routing.base import Implementation, Routing

__all__ = ["AttentionRouting", "CapsuleActivation", "attention_routing"]


def attention_routing(votes: Tensor, weight: Tensor) -> Routed:
    """Route votes ``[b i j e]`` by Eq. 6 to 8.

    Args:
        votes: what child i predicts for the pose of parent j.
        weight: ``[j i e i]``: entry ``[j, i, e, o]`` says how the vote of child i for parent j
            bears on the logit of child o.

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
    concatenated = votes.transpose(1, 2).flatten(2)  # [b j (i e)]
    logits = torch.einsum("bjk,jko->boj", concatenated, weight.flatten(1, 2))  # (7)
    couplings = logits.softmax(dim=1)  # (8)
    poses = torch.einsum("bij,bije->bje", couplings, votes)  # (6)
    return Routed(poses, lengths(poses), couplings)


@final
class CapsuleActivation(nn.Module):
    """An affine map per capsule type, then tanh: ``[... j e] -> [... j e]`` (Eq. 4 and 9).

    Args:
        n_types: capsule types j; each has its own map.
        d: size of a pose.
        bounded: False leaves the tanh to the caller, as residual connections need it.
    """

    def __init__(self, n_types: int, d: int, *, bounded: bool = True) -> None:
        super().__init__()
        self.bounded = bounded
        limit = (6 / (2 * d)) ** 0.5
        self.weight = nn.Parameter(torch.empty(n_types, d, d).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.zeros(n_types, d))

    def forward(self, poses: Tensor) -> Tensor:
        """Map every pose by the weights of its type."""
        poses = torch.einsum("...je,jef->...jf", poses, self.weight) + self.bias
        return poses.tanh() if self.bounded else poses


@final
class AttentionRouting(Routing):
    """Attention routing (Choi 2019) with its kernel and the capsule activation.

    The activations it returns are normalized lengths, ``|u| / sqrt(e)`` (Eq. 10).

    Args:
        n_children: child capsules that one parent sees.
        n_parents: parent capsules that one child sees.
        d_parent: size of a parent's pose.
        bounded: False leaves out the tanh of the capsule activation, for residual connections.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Literal["parents", "children", "none"]] = "children"
    per_child = True

    def __init__(
        self,
        n_children: int,
        n_parents: int,
        d_parent: int,
        *,
        bounded: bool = True,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(n_children, n_parents, d_parent, implementation=implementation)
        fan = n_children * d_parent
        limit = (6 / (fan + fan * n_parents)) ** 0.5
        weight = torch.empty(n_parents, n_children, d_parent, n_children)
        self.weight = nn.Parameter(weight.uniform_(-limit, limit))
        self.activation = CapsuleActivation(n_parents, d_parent, bounded=bounded)

    def forward(
        self,
        votes: Votes | Tensor,
        activations: Tensor | None = None,
        parents: Tensor | None = None,
    ) -> Routed:
        """Route votes in one pass and activate the parents."""
        self.refuse(parents)
        routed = attention_routing(self.cast(votes), self.weight)
        poses = self.activation(routed.poses)
        return Routed(poses, normalized_lengths(poses), routed.couplings)
