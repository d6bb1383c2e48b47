"""Dynamic routing between capsules: coupling by agreement.

Sabour, Frosst and Hinton, 2017, https://arxiv.org/abs/1710.09829, Procedure 1.

    v_j  = |s_j|^2 / (1 + |s_j|^2) * s_j / |s_j|       (1)  squash
    s_j  = sum_i c_ij u_ij                             (2)  weighted votes
    c_ij = exp(b_ij) / sum_k exp(b_ik)                 (3)  coupling, over parents
    b_ij = b_ij + u_ij . v_j                           line 7, agreement

The paper's u-hat_{j|i} is our ``votes[b, i, j]``; its r is ``iterations``.

Deviations: none in the forward pass; gradients flow through every iteration, which the paper leaves
open. ``leaky`` is the none-of-the-above category of section 7, as the authors' code has it: one
more logit, always zero, that takes its share of the softmax and leads nowhere. ``priors`` are the
learned log priors of section 2 (all equal in the paper's experiments). ``bias`` is not in the
paper: the authors' code adds one to s_j in every iteration.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import lengths, squash
from torchcaps.routing.base import (
    Axis,
    Implementation,
    Kernel,
    Routing,
    Sizes,
    check_iterations,
    filled,
)
from torchcaps.tensors import parent_major
from torchcaps.votes import Votes


def dynamic_routing(
    votes: Tensor,
    *,
    iterations: int = 3,
    leaky: bool = False,
    priors: Tensor | None = None,
    bias: Tensor | None = None,
) -> Routed:
    """Route votes ``[b i j e]`` to parents by Procedure 1.

    Args:
        votes: what child i predicts for the pose of parent j.
        iterations: r in the paper; with 1 the couplings stay as the priors have them.
        leaky: let a child couple to none of the parents; its couplings then sum to less than 1.
        priors: logits ``[i j]`` to start from; None starts from zero.
        bias: ``[j e]``, added to s_j in every iteration.

    Returns:
        poses ``[b j e]``, activations ``[b j]`` (their lengths) and couplings ``[b i j]``, summing
        to 1 over parents.

    Cost: O(r b i j e) time; ``[b i j]`` memory beside the votes, r times that for the gradient.

    Example:
        The children agree about parent 0, and their votes for parent 1 cancel:

        >>> votes = torch.tensor([[[[1.0, 0], [0, 1]], [[1, 0], [0, -1]]]])  # [b i j e]
        >>> tc.dynamic_routing(votes).couplings
        tensor([[[0.7517, 0.2483],
                 [0.7517, 0.2483]]])
    """
    check_iterations(iterations)
    votes = parent_major(votes)
    if priors is not None and priors.shape != votes.shape[1:3]:
        raise ValueError(f"priors {list(priors.shape)} must be {list(votes.shape[1:3])}")
    if bias is not None and bias.shape != votes.shape[2:]:
        raise ValueError(f"bias {list(bias.shape)} must be {list(votes.shape[2:])}")
    logits = votes.new_zeros(votes.shape[:-1])  # line 2
    if priors is not None:
        logits = logits + priors
    for step in range(iterations):
        couplings = _leaky_softmax(logits) if leaky else logits.softmax(dim=-1)  # (3)
        inputs = torch.einsum("bij,bije->bje", couplings, votes)  # (2)
        poses = squash(inputs if bias is None else inputs + bias)  # (1)
        if step < iterations - 1:
            logits = logits + torch.einsum("bije,bje->bij", votes, poses)  # line 7
    return Routed(poses, lengths(poses), couplings)


def _leaky_softmax(logits: Tensor) -> Tensor:
    return F.pad(logits, (1, 0)).softmax(dim=-1)[..., 1:]


@final
class DynamicRouting(Routing):
    """Dynamic routing (Sabour 2017); see :func:`dynamic_routing`.

    Args:
        sizes: see :class:`Routing`.
        iterations: r in the paper.
        leaky: add the none-of-the-above category.
        learned_priors: learn the logits ``[i j]`` to start from.
        bias: learn a bias ``[j e]``, as the authors' code does; it starts at 0.1.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    weight_std: ClassVar[float | None] = 0.1  # the authors' code; larger votes saturate the lengths
    adds_coordinates: ClassVar[bool] = False  # votes are summed: positions would saturate them too
    kernel: ClassVar[Kernel | None] = Kernel()

    def __init__(
        self,
        sizes: Sizes,
        *,
        iterations: int = 3,
        leaky: bool = False,
        learned_priors: bool = False,
        bias: bool = False,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        check_iterations(iterations)
        self.iterations: int = iterations
        self.leaky = leaky
        self.per_child = learned_priors
        self.can_chunk = not learned_priors
        self.priors = (
            nn.Parameter(torch.zeros(sizes.n_children, sizes.n_parents)) if learned_priors else None
        )
        self.bias = (
            nn.Parameter(torch.full((sizes.n_parents, sizes.d_parent), 0.1)) if bias else None
        )

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route votes. The length of a child's pose is its activation and part of its votes."""
        self.refuse_parents(parents)
        path = self.path(votes)
        if path == "plain":
            return dynamic_routing(
                self.cast(votes),
                iterations=self.iterations,
                leaky=self.leaky,
                priors=self.priors,
                bias=self.bias,
            )
        attend = kernels.attend if path == "fused" else kernels.attend_in_chunks
        return self._agree(self.uncast(votes, path), attend)

    def obstacle(self) -> str | None:
        """Return why the kernel cannot run; it does not know learned priors."""
        return "its priors are learned" if self.priors is not None else super().obstacle()

    def logits(self, votes: Votes | Tensor, steps: Sequence[Routed]) -> list[Tensor]:
        """Return b_ij of each iteration: the priors, and one agreement more per iteration."""
        dense = self.cast(votes)
        logits = [dense.new_zeros(dense.shape[:-1])]
        if self.priors is not None:
            logits[0] = logits[0] + self.priors
        for step in steps[:-1]:
            logits.append(logits[-1] + torch.einsum("bije,bje->bij", dense, step.poses))
        return logits

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Take one iteration from equal priors in every call inside this context."""
        with filled([self.priors], 0.0), super().uniform_couplings() as able:
            yield able

    def _agree(self, votes: Votes, attend: Callable[..., tuple[Tensor, Tensor]]) -> Routed:
        """Run Procedure 1 without logits: b_ij = u_ij . (sum of all v_j so far)."""
        b, i, j, _ = votes.shape
        share = 1 / (j + self.leaky)
        inputs = votes.total() * share
        couplings: Tensor | None = None
        past: Tensor | None = None
        for step in range(self.iterations):
            if past is not None:
                inputs, couplings = attend(votes, past, leaky=self.leaky)  # (3), (2)
            poses = kernels.squash(inputs if self.bias is None else inputs + self.bias)  # (1)
            if step < self.iterations - 1:
                past = poses if past is None else past + poses  # line 7
        if couplings is None:
            couplings = inputs.new_full((1, 1, 1), share).expand(b, i, j)
        return Routed(poses, kernels.lengths(poses), couplings)

    def options(self) -> str:
        """Return the iterations, and what departs from Procedure 1."""
        return f"iterations={self.iterations}" + (", leaky" if self.leaky else "")
