"""Inverted dot-product attention routing: parents compete for the attention of children.

Tsai, Srivastava, Goh and Salakhutdinov, ICLR 2020, https://arxiv.org/abs/2002.04764, Procedure 1.

    v_ij = W_ij p_i                                    (1)  vote
    a_ij = p_j . v_ij                                  (2)  agreement
    r_ij = exp(a_ij) / sum_j' exp(a_ij')               (3)  coupling, over parents
    p_j  = LayerNorm(sum_i r_ij v_ij)                  (4)  pose

p_j on the right of (2) is the parent's pose of the previous iteration, zero at first: the first
step couples every child to all parents alike.

Deviations: the agreement is scaled by 1/sqrt(e), as in the authors' code and as published; the
paper's Eq. 2 without it is ``scale=1.0``. LayerNorm is left out of poses of one number, which it
would turn into a constant, as in the authors' code.

``activated`` is ablation C, capsules with "the same kind of activations as EM routing", which the
paper says no more about. Here child i weighs in with a_i, p_j = LayerNorm(sum_i r_ij a_i v_ij), and
the parent's activation is that of an M-step of EM routing with the couplings r_ij.

One call is one step. Concurrent routing (Procedure 2) belongs to the network: it calls every layer
once per iteration with the parents of the iteration before. ``iterations`` of the class repeats the
step in one layer instead: the sequential routing of ablation B.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar, final

import torch
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import fit_gaussians, lengths
from torchcaps.routing.base import (
    Axis,
    Implementation,
    Kernel,
    Primary,
    Routing,
    Score,
    Sizes,
    check_iterations,
)
from torchcaps.tensors import full_precision, parent_major
from torchcaps.votes import Votes

MIN_VARIANCE = 5e-4
"""Added to variances in ablation C, as EM routing does."""


def inverted_attention_routing(
    votes: Tensor, parents: Tensor | None = None, *, scale: float | None = None
) -> Routed:
    """Take one step of Procedure 1 on votes ``[b i j e]``, without the LayerNorm of line 6.

    Args:
        votes: what child i predicts for the pose of parent j.
        parents: poses ``[b j e]`` of the previous iteration; None is the first, uniform step.
        scale: factor on the agreement; None is 1/sqrt(e).

    Returns:
        poses ``[b j e]`` before LayerNorm, activations ``[b j]`` (their lengths: the paper has no
        activations) and couplings ``[b i j]``, summing to 1 over parents.

    Cost: O(b i j e) time, ``[b i j]`` memory beside the votes.
    """
    votes = parent_major(votes)
    b, i, j, e = votes.shape
    if parents is None:
        couplings = votes.new_full((1, 1, 1), 1 / j).expand(b, i, j)
    else:
        _check_parents(parents, b, i, j, e)
        agreement = torch.einsum("bije,bje->bij", votes, parents)  # (2)
        scale = e**-0.5 if scale is None else scale
        couplings = (scale * agreement).softmax(dim=-1)  # (3)
    poses = torch.einsum("bij,bije->bje", couplings, votes)  # (4)
    return Routed(poses, lengths(poses), couplings)


def _check_parents(parents: object, b: int, i: int, j: int, e: int) -> None:
    if not isinstance(parents, Tensor):
        raise ValueError(f"parents must be a tensor of poses, not {type(parents).__name__}")
    if parents.shape != (b, j, e):
        raise ValueError(
            f"parents {list(parents.shape)} must be {[b, j, e]} for votes {[b, i, j, e]}"
        )


def _activate(
    votes: Tensor,
    couplings: Tensor,
    activations: Tensor,
    beta_a: Tensor,
    beta_u: Tensor,
) -> Routed:
    """Weigh the children by their activations and give the parents some (ablation C)."""
    dtype = torch.promote_types(votes.dtype, torch.float32)
    with full_precision(votes.device):
        r = couplings.to(dtype) * activations.to(dtype)[..., None]
        mean, _, variance, mass = fit_gaussians(votes.to(dtype), r, min_variance=MIN_VARIANCE)
        poses, present = mean * mass[..., None], _presence(variance, mass, beta_a, beta_u)
    return Routed(poses.to(votes.dtype), present.to(votes.dtype), couplings)


def _presence(variance: Tensor, mass: Tensor, beta_a: Tensor, beta_u: Tensor) -> Tensor:
    """Return activations ``[b j]`` by lines 5 and 6 of EM routing's M-step."""
    cost = (beta_u[:, None] + 0.5 * variance.log()).sum(dim=-1) * mass
    return (0.01 * (beta_a - cost)).sigmoid()


@final
class InvertedAttentionRouting(Routing):
    """Inverted attention routing (Tsai 2020) with its LayerNorm, shared by all parents.

    The activations it returns are the lengths of the poses before LayerNorm, which the paper does
    not use; after it all poses are about equally long.

    Args:
        sizes: see :class:`Routing`.
        iterations: steps per call, each from the poses of the one before.
        scale: factor on the agreement; None is 1/sqrt(d_parent).
        layer_norm: False is ablation A.
        activated: children and parents have activations: ablation C. One more tensor of the votes'
            size, unless the kernel runs.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    scores_by: ClassVar[Score] = "logit"
    primary: ClassVar[Primary] = "norm"
    long_poses: ClassVar[bool] = True
    takes_parents: ClassVar[bool] = True
    kernel: ClassVar[Kernel | None] = Kernel()

    def __init__(
        self,
        sizes: Sizes,
        *,
        iterations: int = 1,
        scale: float | None = None,
        layer_norm: bool = True,
        activated: bool = False,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        check_iterations(iterations)
        self.iterations: int = iterations
        self.forgets_parents = False
        """True within :meth:`uniform_couplings`: every call ignores the parents it is given."""
        self.scale = scale
        _, n_parents, _, d_parent = sizes
        self.norm = nn.LayerNorm(d_parent) if layer_norm and d_parent > 1 else nn.Identity()
        self.beta_a = nn.Parameter(torch.zeros(n_parents)) if activated else None
        self.beta_u = nn.Parameter(torch.zeros(n_parents)) if activated else None
        self.child_activations = "required" if activated else "ignored"
        self.can_chunk = not activated

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Take ``iterations`` steps from the given parents, or from none."""
        path = self.path(votes)
        if self.forgets_parents:
            parents = None
        if self.child_activations == "required":
            activations = self.check_activations(children, votes)
            if path == "fused":
                return self._fit(self.uncast(votes, path), activations, parents)
            return self._activated(self.cast(votes), activations, parents)
        if path == "fused":
            return self._attend(self.uncast(votes, path), parents, kernels.attend)
        if path == "chunked" or self._total_suffices(votes, parents):
            return self._attend(self.uncast(votes, path), parents, kernels.attend_in_chunks)
        dense = self.cast(votes)
        for _ in range(self.iterations):
            routed = inverted_attention_routing(dense, parents, scale=self.scale)
            parents = self.norm(routed.poses)
            routed = Routed(parents, routed.activations, routed.couplings)
        return routed

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Take the first, uniform step in every call inside this context."""
        self.forgets_parents = True
        try:
            with super().uniform_couplings() as able:
                yield able
        finally:
            self.forgets_parents = False

    def _total_suffices(self, votes: Votes | Tensor, parents: Tensor | None) -> bool:
        """Return whether the uniform step is the only one: it needs the sum of the votes alone."""
        is_single = parents is None and self.iterations == 1 and self.implementation == "auto"
        return is_single and isinstance(votes, Votes)

    def _attend(
        self,
        votes: Votes,
        parents: Tensor | None,
        attend: Callable[..., tuple[Tensor, Tensor]],
    ) -> Routed:
        """Take the steps on votes that are not cast; the uniform one is a matmul."""
        b, i, j, e = votes.shape
        scale = e**-0.5 if self.scale is None else self.scale
        for _ in range(self.iterations):
            if parents is None:
                poses = votes.total() / j
                couplings = poses.new_full((1, 1, 1), 1 / j).expand(b, i, j)
            else:
                _check_parents(parents, b, i, j, e)
                poses, couplings = attend(votes, parents, scale=scale)
            parents = kernels.pose_norm(self.norm, poses)
            routed = Routed(parents, kernels.lengths(poses), couplings)
        return routed

    def _activated(self, votes: Tensor, activations: Tensor, parents: Tensor | None) -> Routed:
        """Take the steps of ablation C."""
        assert self.beta_a is not None
        assert self.beta_u is not None
        for _ in range(self.iterations):
            couplings = inverted_attention_routing(votes, parents, scale=self.scale).couplings
            routed = _activate(votes, couplings, activations, self.beta_a, self.beta_u)
            parents = self.norm(routed.poses)
            routed = Routed(parents, routed.activations, couplings)
        return routed

    def _fit(self, votes: Votes, activations: Tensor, parents: Tensor | None) -> Routed:
        """Run ablation C by the kernels of EM routing; logits are linear in the vote here."""
        assert self.beta_a is not None
        assert self.beta_u is not None
        b, i, j, e = votes.shape
        scale = e**-0.5 if self.scale is None else self.scale
        dtype = votes.poses.dtype
        with torch.no_grad():
            center = votes.total().float() / i
        for _ in range(self.iterations):
            with full_precision(votes.poses.device):
                if parents is None:
                    *moments, _ = kernels.moments(votes, activations, center)
                    couplings = center.new_full((1, 1, 1), 1 / j).expand(b, i, j)
                else:
                    _check_parents(parents, b, i, j, e)
                    slope = scale * parents.float()
                    constant = (slope * center).sum(dim=-1)  # (2) of a vote at the center
                    *moments, couplings = kernels.moments(
                        votes, activations, center, constant=constant, linear=slope
                    )
                mean, variance = kernels.fitted(center, *moments, min_variance=MIN_VARIANCE)
                mass = moments[0]
                present = _presence(variance, mass, self.beta_a, self.beta_u)
                poses = (mean * mass[..., None]).to(dtype)
            parents = kernels.pose_norm(self.norm, poses)
            routed = Routed(parents, present.to(dtype), couplings.to(dtype))
        return routed

    def options(self) -> str:
        """Return the steps per call."""
        return f"iterations={self.iterations}"
