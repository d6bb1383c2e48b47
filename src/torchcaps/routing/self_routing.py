"""Self-routing: every child decides from its own pose which parents it belongs to.

Hahn, Pyeon and Kim, "Self-routing capsule networks", NeurIPS 2019. Section 3 reads, with the
paper's W^route and W^pose as the logits' map and the votes' weight:

    c_ij = softmax(W_i^route u_i)_j                     coupling, over parents
    a_j  = sum_i c_ij a_i / sum_i a_i                   activation
    u_j  = sum_i c_ij a_i u_ij / sum_i c_ij a_i         pose

The paper's u_i is the pose of child i, and u_ij its vote W_ij^pose u_i for parent j.

Deviations: children without activations count alike. Sums of activations below 1e-7 count as 1e-7,
so that absent children give poses of zero. The paper leaves open how W^route starts; zeros, as in
the authors' code, couple every child to all parents alike. ``bias`` adds one number per child and
parent to the logits, as that code does.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.routing.base import (
    Axis,
    ChildActivations,
    Implementation,
    Primary,
    Routing,
    Score,
    Sizes,
    check_activations,
    filled,
)
from torchcaps.tensors import parent_major
from torchcaps.votes import Votes


def self_routing(votes: Tensor, logits: Tensor, activations: Tensor | None = None) -> Routed:
    """Route votes ``[b i j e]`` by the children's own logits ``[b i j]``.

    Args:
        votes: the prediction of child i for the pose of parent j.
        logits: how strongly child i belongs to parent j, from the child's pose alone.
        activations: ``[b i]``, how present each child is; None counts all of them alike.

    Returns:
        poses ``[b j e]``, activations ``[b j]``, summing to 1 over parents, and couplings
        ``[b i j]``, summing to 1 over parents.

    Cost: O(b i j e) time, ``[b i j]`` memory beside the votes.
    """
    votes = parent_major(votes)
    if logits.shape != votes.shape[:3]:
        raise ValueError(
            f"logits {list(logits.shape)} must be {list(votes.shape[:3])} for votes "
            f"{list(votes.shape)}"
        )
    couplings = logits.softmax(dim=-1)
    if activations is None:
        activations = couplings.new_ones(couplings.shape[:2])
    check_activations(activations, votes)
    weights = couplings * activations[..., None]
    mass = weights.sum(dim=1)  # [b j]
    present = mass / activations.sum(dim=1, keepdim=True).clamp_min(1e-7)
    poses = torch.einsum("bij,bije->bje", weights, votes) / mass.clamp_min(1e-7)[..., None]
    return Routed(poses, present, couplings)


@final
class SelfRouting(Routing):
    """Self-routing (Hahn 2019) with its map from a child's pose to logits.

    Args:
        sizes: see :class:`Routing`.
        bias: add a learned number per child and parent to the logits.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    scores_by: ClassVar[Score] = "activation"
    primary: ClassVar[Primary] = "norm"
    reads_poses: ClassVar[bool] = True
    child_activations: ChildActivations = "used"
    per_child: bool = True

    def __init__(
        self, sizes: Sizes, *, bias: bool = False, implementation: Implementation = "auto"
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        i, j, d, _ = sizes
        self.weight = nn.Parameter(torch.zeros(i, d, j))
        self.bias = nn.Parameter(torch.zeros(i, j)) if bias else None

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route every child by its own pose, in one pass."""
        self.refuse_parents(parents)
        logits = torch.einsum("bid,idj->bij", children.poses, self.weight)
        if self.bias is not None:
            logits = logits + self.bias
        return self_routing(self.cast(votes), logits, children.activations)

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Couple every child to all parents alike inside this context: every logit is zero."""
        with filled([self.weight, self.bias], 0.0):
            yield True

    def options(self) -> str:
        """Return what departs from the paper."""
        return "bias" if self.bias is not None else ""
