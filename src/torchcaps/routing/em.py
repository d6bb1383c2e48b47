"""EM routing: parents are Gaussians fitted to the votes of their children.

Hinton, Sabour and Frosst, "Matrix capsules with EM routing", ICLR 2018, Procedure 1.

    r_ij    = 1 / (number of parents)                                    line 2
    M-step  r_ij      = r_ij a_i                                         line 2
            mu_j      = sum_i r_ij v_ij / sum_i r_ij                     line 3
            sigma_j^2 = sum_i r_ij (v_ij - mu_j)^2 / sum_i r_ij          line 4
            cost_j    = sum_h (beta_u + log sigma_jh) sum_i r_ij         line 5
            a_j       = logistic(lambda (beta_a - cost_j))               line 6
    E-step  p_ij      = prod_h N(v_ijh; mu_jh, sigma_jh^2)               line 2
            r_ij      = a_j p_ij / sum_k a_k p_ik                        line 3

lambda after t of the iterations is 0.01 (1 - 0.95^(t+1)), from the authors' answers and code.

Deviations: ``min_variance`` is added to sigma^2 (the authors' code: 5e-4) and 1e-7 to the sum of
r_ij, so that a parent of one child, of equal votes or of no active child stays finite. The E-step
works on logarithms. ``cost_scale`` multiplies cost_j; 1 is the paper, and
100 n_parents / n_children takes the number of children a parent happens to have out of its cost
(Gritzman, https://arxiv.org/abs/1907.00652, second pitfall). The last E-step, whose result nothing
uses, is left out. The authors' code has a quarter of the inverse temperature in the class layer, of
which the paper says nothing. Gradients flow through every iteration, as the authors do it. They are
finite for votes up to 1e8 over 10 iterations; all is computed in float32 at least.

In a convolution the paper lets all parents of a child compete, at whatever position they are.
Within ``[b i j e]`` only the parents of one window can; ``child`` says which slots of the windows
are the same child, and their parents then compete together.
"""

import math
from typing import ClassVar, final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import fit_gaussians
from torchcaps.routing.base import (
    Axis,
    ChildActivations,
    Competition,
    Implementation,
    Kernel,
    Primary,
    Routing,
    Score,
    Sizes,
    check_activations,
    check_iterations,
)
from torchcaps.tensors import full_precision, logsumexp_over, parent_major
from torchcaps.votes import Votes


def em_routing(
    votes: Tensor,
    activations: Tensor,
    *,
    beta_a: Tensor | float,
    beta_u: Tensor | float,
    iterations: int = 3,
    inverse_temperature: float = 0.01,
    cost_scale: float = 1.0,
    min_variance: float = 5e-4,
    child: Tensor | None = None,
) -> Routed:
    """Route votes ``[b i j e]`` of children with activations ``[b i]`` by Procedure 1.

    Args:
        votes: what child i predicts for the pose of parent j.
        activations: how present each child is, between 0 and 1.
        beta_a: benefit of activating a parent, one number or ``[j]``.
        beta_u: cost of describing a vote by the parent, one number or ``[j]``.
        iterations: M-steps, with an E-step between each two.
        inverse_temperature: lambda rises towards this.
        cost_scale: factor on the cost of a parent.
        min_variance: added to every variance.
        child: integers ``[b i]``; slots with the same number are one child, see :class:`Votes`.

    Returns poses ``[b j e]`` (the means), activations ``[b j]`` and couplings ``[b i j]``: r_ij of
    the last E-step, without the children's activations, summing to 1 over parents.

    Cost: O(r b i j e) time; beside the votes one tensor of their size, for the gradient 2 r.
    """
    votes = _checked(votes, activations, iterations, min_variance)
    votes_dtype, dtype = votes.dtype, torch.promote_types(votes.dtype, torch.float32)
    with full_precision(votes.device):
        votes, activations = votes.to(dtype), activations.to(dtype)
        beta_a, beta_u = _per_parent("beta_a", beta_a, votes), _per_parent("beta_u", beta_u, votes)
        logits = votes.new_zeros(votes.shape[:-1])
        for step in range(iterations):
            couplings = _compete(logits, child)  # E-step, line 3
            r = couplings * activations[..., None]  # M-step, line 2
            poses, spread, variance, mass = fit_gaussians(votes, r, min_variance=min_variance)
            log_sigma = 0.5 * variance.log()
            cost = (beta_u[..., None] + log_sigma).sum(dim=-1) * mass * cost_scale  # line 5
            logit = inverse_temperature * (1 - 0.95 ** (step + 1)) * (beta_a - cost)
            if step < iterations - 1:
                log_p = torch.einsum("bije,bje->bij", spread, -0.5 / variance)  # E-step, line 2
                norm = (log_sigma + 0.5 * math.log(2 * math.pi)).sum(dim=-1)
                logits = F.logsigmoid(logit)[:, None] + (log_p - norm[:, None])
            del spread  # before the next iteration makes its own
        present = logit.sigmoid()  # line 6
    return Routed(*(tensor.to(votes_dtype) for tensor in (poses, present, couplings)))


def _checked(votes: Tensor, activations: Tensor, iterations: int, min_variance: float) -> Tensor:
    """Return the votes laid out by parent; refuse arguments that do not fit them."""
    check_iterations(iterations)
    if min_variance < 0:
        raise ValueError(f"min_variance must be at least 0, not {min_variance}")
    votes = parent_major(votes)
    check_activations(activations, votes)
    return votes


def _per_parent(name: str, beta: Tensor | float, votes: Tensor) -> Tensor:
    """Return beta as a tensor like the votes; refuse one that is not per parent."""
    beta = torch.as_tensor(beta, dtype=votes.dtype, device=votes.device)
    if beta.shape not in ((), votes.shape[2:3]):
        raise ValueError(f"{name} {list(beta.shape)} must be one number or one per parent")
    return beta


def _compete(logits: Tensor, child: Tensor | None) -> Tensor:
    """Return the softmax over a child's parents: those of its window, or of all its slots."""
    if child is None:
        return logits.softmax(dim=-1)
    return (logits - logsumexp_over(logits.logsumexp(dim=-1), child)[..., None]).exp()


@final
class EMRouting(Routing):
    """EM routing (Hinton 2018); see :func:`em_routing`. Owns beta_a and beta_u, ``[j]`` each.

    Args:
        sizes: see :class:`Routing`.
        iterations: M-steps.
        inverse_temperature: lambda rises towards this.
        cost_scale: factor on the cost of a parent.
        min_variance: added to every variance.
        beta_scale: beta_a is this times the learned parameter. lambda is about 0.001, so that with
            1 an optimizer hardly moves an activation; the authors' code has 5000.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    scores_by: ClassVar[Score] = "activation"
    primary: ClassVar[Primary] = "norm"
    competition: ClassVar[Competition] = "image"
    child_activations: ChildActivations = "required"
    kernel: ClassVar[Kernel | None] = Kernel(image=True)

    def __init__(
        self,
        sizes: Sizes,
        *,
        iterations: int = 3,
        inverse_temperature: float = 0.01,
        cost_scale: float = 1.0,
        min_variance: float = 5e-4,
        beta_scale: float = 1.0,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        check_iterations(iterations)
        self.iterations: int = iterations
        self.inverse_temperature = inverse_temperature
        self.cost_scale = cost_scale
        self.min_variance = min_variance
        self.beta_scale = beta_scale
        self.beta_a = nn.Parameter(torch.zeros(sizes.n_parents))
        self.beta_u = nn.Parameter(torch.zeros(sizes.n_parents))

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route votes, each child weighed by its activation."""
        self.refuse_parents(parents)
        activations = self.check_activations(children, votes)
        if self.path(votes) == "fused":
            return self._fit(self.uncast(votes, "fused"), activations)
        return em_routing(
            self.cast(votes),
            activations,
            beta_a=self.beta_scale * self.beta_a,
            beta_u=self.beta_u,
            iterations=self.iterations,
            inverse_temperature=self.inverse_temperature,
            cost_scale=self.cost_scale,
            min_variance=self.min_variance,
            child=votes.child if isinstance(votes, Votes) else None,
        )

    def _fit(self, votes: Votes, activations: Tensor) -> Routed:
        """Run Procedure 1 by kernels: an E-step and the moments for its M-step are one pass."""
        b, i, j, _ = votes.shape
        dtype = votes.poses.dtype
        with torch.no_grad():
            center = votes.total().float() / i
            shares = _compete(center.new_zeros(b, i, 1), votes.child)  # 1 / slots of the child
            couplings = (shares / j).expand(b, i, j)
        with full_precision(votes.poses.device):
            mass, first, second, _ = kernels.moments(votes, activations * shares[..., 0], center)
            for step in range(self.iterations):
                poses, variance = kernels.fitted(
                    center, mass, first, second, min_variance=self.min_variance
                )  # lines 3 and 4
                log_sigma = 0.5 * variance.log()
                cost = (self.beta_u[:, None] + log_sigma).sum(dim=-1) * mass * self.cost_scale
                heat = self.inverse_temperature * (1 - 0.95 ** (step + 1))
                logit = heat * (self.beta_scale * self.beta_a - cost)  # line 6
                if step < self.iterations - 1:
                    norm = (log_sigma + 0.5 * math.log(2 * math.pi)).sum(dim=-1)
                    constant, center = F.logsigmoid(logit) - norm, poses
                    mass, first, second, couplings = kernels.moments(
                        votes, activations, center, constant=constant, square=-0.5 / variance
                    )
        return Routed(poses.to(dtype), logit.sigmoid().to(dtype), couplings.to(dtype))

    def options(self) -> str:
        """Return the iterations, and what departs from the paper."""
        scales = {"cost_scale": self.cost_scale, "beta_scale": self.beta_scale}
        scaled = "".join(f", {name}={value:g}" for name, value in scales.items() if value != 1)
        return f"iterations={self.iterations}{scaled}"
