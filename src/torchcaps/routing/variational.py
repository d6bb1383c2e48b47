"""Variational Bayes routing: parents are Gaussians with a distribution over their parameters.

Ribeiro, Leontidis and Kollias, "Capsule routing via variational Bayes", AAAI 2020,
https://arxiv.org/abs/1905.11455. Algorithm 1 fits a mixture of Gaussians with a Dirichlet prior on
the mixing shares and a normal-Wishart prior on means and diagonal precisions. psi is the digamma
function and D the size of a pose. The steps are lettered here:

    r_ij = 1 / (number of parents)                                                        start
    M-step  r_ij = r_ij a_i,  R_j = sum_i r_ij                                            (a)
            alpha_j = alpha_0 + R_j,  kappa_j = kappa_0 + R_j,  nu_j = nu_0 + R_j         (b)
            mu_j = sum_i r_ij v_ij / R_j,  m_j = R_j mu_j / kappa_j                       (c)
            1 / Psi_j = 1 / Psi_0 + sum_i r_ij (v_ij - mu_j)^2
                        + kappa_0 R_j mu_j^2 / kappa_j                                    (d)
    E-step  E ln pi_j = psi(alpha_j) - psi(sum_k alpha_k)                                 (e)
            E ln|Lambda_j| = sum_{d < D} psi((nu_j - d) / 2) + D ln 2 + ln|Psi_j|         (f)
            E (v_ij - mu_j)^T Lambda_j (v_ij - mu_j)
                        = D / kappa_j + nu_j sum_e Psi_je (v_ije - m_je)^2                (g)
            r_ij = softmax_j(E ln pi_j + (f) / 2 - D ln(2 pi) / 2 - (g) / 2)              (h)
    end     H_j = D ln(2 pi e) / 2 - E ln|Lambda_j| / 2                                   (i)
            a_j = logistic(beta_a - beta_u - exp(E ln pi_j) H_j)                          (j)

The prior mean m_0 is zero. The authors' code (https://github.com/fabio-deep/
Variational-Capsule-Routing) fixes kappa_0 = 1 and Psi_0 = 1 in (d), and it normalizes poses and the
argument of (j) over the batch: ``batch_norm`` does so. Its (h) leaves E ln pi_j out of the
numerator, so that its couplings do not sum to one; ours keep it.

Deviations: 1e-7 is added to R_j where it divides, so that no active child gives a mean of zero. The
last E-step, whose result nothing uses, is left out. All is computed in float32 at least.
"""

import math
from typing import ClassVar, NamedTuple, final

import torch
from torch import Tensor, nn

from torchcaps import kernels
from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import digamma, fit_gaussians
from torchcaps.routing.base import (
    Axis,
    ChildActivations,
    Implementation,
    Kernel,
    Primary,
    Routing,
    Score,
    Sizes,
    check_activations,
    check_iterations,
)
from torchcaps.tensors import full_precision, parent_major
from torchcaps.votes import Votes


class VariationalPriors(NamedTuple):
    """Parameters of the priors; None for nu_0 is the size of a pose plus one."""

    alpha_0: float = 1.0
    kappa_0: float = 1.0
    psi_0: float = 1.0
    nu_0: float | None = None


PRIORS = VariationalPriors()
"""The priors of the authors' code: of one observation, at zero and with unit precision."""


class Posterior(NamedTuple):
    """Distribution of the parents' parameters, and its expectations."""

    m: Tensor
    """Means of the means, ``[b j e]``."""
    log_pi: Tensor
    """E ln pi, ``[b j]``."""
    log_det: Tensor
    """E ln|Lambda|, ``[b j]``."""
    constant: Tensor
    """The part of (h) without votes, ``[b j]``."""
    precision: Tensor
    """nu Psi, the mean of Lambda, ``[b j e]``."""


def variational_routing(
    votes: Tensor,
    activations: Tensor,
    *,
    beta_a: Tensor | float = 0.0,
    beta_u: Tensor | float = 0.0,
    iterations: int = 3,
    priors: VariationalPriors = PRIORS,
) -> Routed:
    """Route votes ``[b i j e]`` of children with activations ``[b i]`` by Algorithm 1.

    Args:
        votes: the prediction of child i for the pose of parent j.
        activations: how present each child is, between 0 and 1.
        beta_a: benefit of activating a parent, one number or ``[j]``.
        beta_u: cost of activating a parent, one number or ``[j]``.
        iterations: M-steps, with an E-step between each two.
        priors: parameters of the prior distributions.

    Returns:
        poses ``[b j e]`` (the means m), activations ``[b j]`` and couplings ``[b i j]``: r_ij of
        the last E-step, without the children's activations, summing to 1 over parents.

    Cost: O(r b i j e) time; beside the votes one tensor of their size, for the gradient 2 r.
    """
    posterior, couplings = _fit(votes, activations, iterations, priors)
    present = activation_logits(posterior, beta_a, beta_u).sigmoid()  # (j)
    outputs = (tensor.to(votes.dtype) for tensor in (posterior.m, present, couplings))
    return Routed(*outputs)


def _fit(
    votes: Tensor, activations: Tensor, iterations: int, priors: VariationalPriors
) -> tuple[Posterior, Tensor]:
    """Return the posterior and the couplings after all iterations, in float32 at least."""
    check_iterations(iterations)
    votes = parent_major(votes)
    check_activations(activations, votes)
    dtype = torch.promote_types(votes.dtype, torch.float32)
    with full_precision(votes.device):
        votes, activations = votes.to(dtype), activations.to(dtype)
        couplings = votes.new_full(votes.shape[:-1], 1 / votes.shape[2])
        for step in range(iterations):
            r = couplings * activations[..., None]  # (a)
            mean, _, variance, mass = fit_gaussians(votes, r, min_variance=0.0)
            posterior = fit_posterior(mean, variance, mass, priors)
            if step < iterations - 1:
                apart = (votes - posterior.m[:, None]).square()
                distance = torch.einsum("bije,bje->bij", apart, posterior.precision)  # (g)
                couplings = (posterior.constant[:, None] - 0.5 * distance).softmax(dim=-1)  # (h)
    return posterior, couplings


def fit_posterior(
    mean: Tensor, variance: Tensor, mass: Tensor, priors: VariationalPriors
) -> Posterior:
    """Return the posterior after votes of this mean, variance ``[b j e]`` and mass ``[b j]``."""
    e = mean.shape[-1]
    nu_0 = e + 1 if priors.nu_0 is None else priors.nu_0
    alpha, kappa, nu = mass + priors.alpha_0, mass + priors.kappa_0, mass + nu_0  # (b)
    shrunk = (mass / kappa)[..., None]
    spread = mass[..., None] * variance
    inverse = 1 / priors.psi_0 + spread + priors.kappa_0 * shrunk * mean.square()  # (d)
    log_pi = digamma(alpha) - digamma(alpha.sum(dim=-1, keepdim=True))  # (e)
    halves = 0.5 * (nu[..., None] - torch.arange(e, device=nu.device))
    log_det = digamma(halves).sum(dim=-1) + e * math.log(2) - inverse.log().sum(dim=-1)  # (f)
    constant = log_pi + 0.5 * (log_det - e * math.log(2 * math.pi) - e / kappa)  # (g), (h)
    return Posterior(shrunk * mean, log_pi, log_det, constant, nu[..., None] / inverse)  # (c)


def activation_logits(
    posterior: Posterior, beta_a: Tensor | float, beta_u: Tensor | float
) -> Tensor:
    """Return the argument of the logistic function in (j), ``[b j]``."""
    e = posterior.m.shape[-1]
    entropy = 0.5 * (e * math.log(2 * math.pi * math.e) - posterior.log_det)  # (i)
    return beta_a - beta_u - posterior.log_pi.exp() * entropy


@final
class VariationalRouting(Routing):
    """Variational Bayes routing (Ribeiro 2020). Owns beta_a and beta_u, ``[j]`` each.

    Args:
        sizes: see :class:`Routing`.
        iterations: M-steps.
        priors: parameters of the prior distributions.
        batch_norm: normalize the poses and the logits of the activations over the batch, each
            parent by itself, as the authors' code does.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "parents"
    scores_by: ClassVar[Score] = "activation"
    primary: ClassVar[Primary] = "norm"
    child_activations: ChildActivations = "required"
    kernel: ClassVar[Kernel | None] = Kernel()

    def __init__(
        self,
        sizes: Sizes,
        *,
        iterations: int = 3,
        priors: VariationalPriors = PRIORS,
        batch_norm: bool = False,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        check_iterations(iterations)
        nu_0 = sizes.d_parent + 1 if priors.nu_0 is None else priors.nu_0
        if min(priors.alpha_0, priors.kappa_0, priors.psi_0, nu_0 - sizes.d_parent + 1) <= 0:
            raise ValueError(
                f"alpha_0, kappa_0 and psi_0 must be above 0 and nu_0 above {sizes.d_parent - 1}, "
                f"not {priors}"
            )
        self.iterations: int = iterations
        self.priors = priors
        self.beta_a = nn.Parameter(torch.zeros(sizes.n_parents))
        self.beta_u = nn.Parameter(torch.zeros(sizes.n_parents))
        self.norms = (
            nn.ModuleList(nn.BatchNorm1d(sizes.n_parents, affine=False) for _ in range(2))
            if batch_norm
            else None
        )

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Route votes, each child weighed by its activation."""
        self.refuse_parents(parents)
        activations = self.check_activations(children, votes)
        if self.path(votes) == "fused":
            posterior, couplings = self._fit_fused(self.uncast(votes, "fused"), activations)
        else:
            posterior, couplings = _fit(self.cast(votes), activations, self.iterations, self.priors)
        poses, logits = posterior.m, activation_logits(posterior, self.beta_a, self.beta_u)
        if self.norms is not None:
            poses, logits = self.norms[0](poses), self.norms[1](logits)
        dtype = votes.poses.dtype if isinstance(votes, Votes) else votes.dtype
        outputs = (tensor.to(dtype) for tensor in (poses, logits.sigmoid(), couplings))
        return Routed(*outputs)

    def _fit_fused(self, votes: Votes, activations: Tensor) -> tuple[Posterior, Tensor]:
        """Run Algorithm 1 by kernels: an E-step and the moments for its M-step are one pass."""
        b, i, j, _ = votes.shape
        with torch.no_grad():
            center = votes.total().float() / i
            couplings = center.new_full((b, i, j), 1 / j)
        with full_precision(votes.poses.device):
            mass, first, second, _ = kernels.moments(votes, activations, center)
            for step in range(self.iterations):
                mean, variance = kernels.fitted(center, mass, first, second, min_variance=0.0)
                posterior = fit_posterior(mean, variance, mass, self.priors)
                if step < self.iterations - 1:
                    center, square = posterior.m, -0.5 * posterior.precision
                    mass, first, second, couplings = kernels.moments(
                        votes, activations, center, constant=posterior.constant, square=square
                    )
        return posterior, couplings

    def options(self) -> str:
        """Return the iterations, and what departs from the paper."""
        normal = "" if self.norms is None else ", batch_norm"
        return f"iterations={self.iterations}{normal}"
