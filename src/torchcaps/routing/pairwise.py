"""Pairwise agreement: a parent is as active as the votes for it agree, two by two.

Zhao, Wang and Huang, "An efficient agreement mechanism in CapsNets by pairwise product", ECAI 2020,
https://arxiv.org/abs/2004.00272, Algorithm 1.

    u_ij = u_ij / |u_ij|                                         line 1
    s_j  = 1/(2n) ((sum_i u_ij)^2 - sum_i u_ij^2)                line 2, (8), element by element
    p_j  = s_j / |s_j|                                           line 3
    a_j  = sum_f s_jf                                            line 4, (6)

n is the number of children, and s_j the sum of the products of any two different votes, over n.

Deviations: none by default. ``half=False`` leaves out the 1/2 of Eq. 8, as the authors' code does;
``normalise=False`` leaves out line 1, as their code for section 4.1 does; ``unit=False`` returns
s_j as the pose, which section 3.3 hands to a next capsule layer. A vote or a sum shorter than 1e-6
has no direction and counts as zero. Computed in float32 at least.
"""

from typing import ClassVar, final

import torch
from torch import Tensor

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import unit as to_unit
from torchcaps.routing.base import Axis, Implementation, Kernel, Routing, Score, Sizes
from torchcaps.tensors import full_precision, parent_major
from torchcaps.votes import Votes


def pairwise_agreement(
    votes: Tensor, *, normalise: bool = True, half: bool = True, unit: bool = True
) -> Routed:
    """Return the agreement of votes ``[b i j e]`` by Algorithm 1.

    Args:
        votes: what child i predicts for the pose of parent j.
        normalise: line 1: only the direction of a vote counts.
        half: the factor 1/2 of Eq. 8.
        unit: line 3: return p_j; otherwise s_j.

    Returns:
        poses ``[b j e]``, activations ``[b j]`` (a_j) and couplings ``[b i j]``. A coupling
        is half of the agreement of the pairs that child i is in. Over children they sum to a_j.

    Cost: O(b i j e) time; one tensor of the votes' size beside them if votes are normalized.

    Example:
        >>> votes = torch.tensor([[[[1.0, 0], [0, 1]], [[1, 0], [0, -1]]]])  # [b i j e]
        >>> tc.pairwise_agreement(votes).activations
        tensor([[ 0.5000, -0.5000]])
    """
    votes = parent_major(votes)
    dtype = votes.dtype
    with full_precision(votes.device):
        votes = votes.to(torch.promote_types(dtype, torch.float32))
        if normalise:
            votes = to_unit(votes)  # line 1
        factor = (0.5 if half else 1.0) / votes.shape[1]
        total = votes.sum(dim=1)
        squares = torch.linalg.vector_norm(votes, dim=1).square()
        squared = torch.linalg.vector_norm(votes, dim=-1).square()
        couplings = factor * (torch.einsum("bije,bje->bij", votes, total) - squared)
        routed = _agreed(total, squares, couplings, factor=factor, unit=unit)
    return Routed(*(tensor.to(dtype) for tensor in routed))


def _agreed(
    total: Tensor, squares: Tensor, couplings: Tensor, *, factor: float, unit: bool
) -> Routed:
    s = factor * (total.square() - squares)  # line 2
    return Routed(to_unit(s) if unit else s, s.sum(dim=-1), couplings)  # lines 3 and 4


@final
class PairwiseRouting(Routing):
    """Pairwise agreement (Zhao 2020); see :func:`pairwise_agreement`. Learns nothing.

    Args:
        sizes: see :class:`Routing`.
        normalise: normalize votes before they are compared.
        half: the factor 1/2 of Eq. 8.
        unit: return unit poses; False for a layer below another capsule layer.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "none"
    scores_by: ClassVar[Score] = "activation"
    kernel: ClassVar[Kernel | None] = Kernel(scaled=True)

    def __init__(
        self,
        sizes: Sizes,
        *,
        normalise: bool = True,
        half: bool = True,
        unit: bool = True,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        self.normalized = normalise
        self.halved = half
        self.unit = unit

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Compare all votes for a parent with one another."""
        self.refuse_parents(parents)
        if self.path(votes) == "fused":
            return self._agree(self.uncast(votes, "fused"))
        return pairwise_agreement(
            self.cast(votes), normalise=self.normalized, half=self.halved, unit=self.unit
        )

    def route_present(
        self,
        children: Capsules,
        votes: Votes | Tensor,
        mask: Tensor,
        parents: Tensor | None = None,
    ) -> Routed:
        """Compare the votes of the children that are present; n of Eq. 8 counts these alone."""
        routed = super().route_present(children, votes, mask, parents)
        n_present = mask.sum(dim=1, keepdim=True).clamp_min(1)  # [b 1]
        factor = (mask.shape[1] / n_present).to(routed.activations.dtype)
        poses = routed.poses if self.unit else routed.poses * factor[..., None]
        return Routed(poses, routed.activations * factor, routed.couplings * factor[..., None])

    def contributions(self, children: Capsules, votes: Votes | Tensor, routed: Routed) -> Tensor:
        """Return the couplings, which are each child's part of the agreement already."""
        return routed.couplings.clamp_min(0)

    def _agree(self, votes: Votes) -> Routed:
        """Run Algorithm 1 on votes that are not cast."""
        factor = (0.5 if self.halved else 1.0) / votes.shape[1]
        with full_precision(votes.poses.device):
            total, squares = kernels.pairwise_sums(votes, normalize=self.normalized)
            couplings = kernels.pairwise_links(
                votes, total, normalize=self.normalized, factor=factor
            )
            routed = _agreed(total, squares, couplings, factor=factor, unit=self.unit)
        return Routed(*(tensor.to(votes.poses.dtype) for tensor in routed))

    def options(self) -> str:
        """Return what departs from Algorithm 1."""
        flags = (("normalise", self.normalized), ("half", self.halved), ("unit", self.unit))
        return ", ".join(f"{name}=False" for name, on in flags if not on)
