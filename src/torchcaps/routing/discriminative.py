"""Discriminative routing: one table of coefficients for all images, with an objective of its own.

Haoyu Yang, Shuhe Li and Bei Yu, "Routing towards discriminative power of class capsules", 2021,
https://arxiv.org/abs/2103.04278.

    v_j = sum_i b_ij u_ij                                                  (6)   no softmax
    max_b  sum_k delta_jk |v_jk|^2 - lambda |b_j|_2^2                      (10)  l2
    max_b  sum_k delta_jk |v_jk|^2 - lambda |b_j|_1                        (14)  l1

k runs over the batch; delta is 1 for a class that image k shows and -1 for one it does not.
Training alternates (Algorithm 1): a step down the loss on the weights with b fixed, a step up this
objective on b with the weights fixed. At test time b is used as it is.

Deviations: none in the forward pass, which squashes v_j as the paper's Eq. 3 does; the objective is
on the unsquashed v_j. Its gradient is that of Eq. 10 and 14; the paper's Eq. 15 doubles lambda on
the way from 14, so ``strength`` = 2 lambda reproduces its step. With several classes in one image,
which the paper leaves open, delta is 1 for each of them.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import ClassVar, Literal, final

import torch
from torch import Tensor, nn

from torchcaps.capsules import Capsules, Routed
from torchcaps.functional import lengths, multi_hot, squash
from torchcaps.routing.base import Axis, Implementation, Routing, Sizes, filled
from torchcaps.tensors import full_precision, parent_major
from torchcaps.votes import Votes


def discriminative_routing(votes: Votes | Tensor, coefficients: Tensor) -> Routed:
    """Sum votes ``[b i j e]`` with coefficients ``[i j]`` and squash (Eq. 6).

    Votes that have not been cast never are: coefficients that are the same for every image can
    multiply the weights, and the sum is one matrix product, of the weights' precision.

    Returns:
        poses ``[b j e]``, activations ``[b j]`` (their lengths) and couplings ``[b i j]``: the
        coefficients, the same for every image, competing over nothing.

    Cost: O(b i j e) time on dense votes, no memory beside them.
    """
    inputs, couplings = _weighted_sum(votes, coefficients)
    poses = squash(inputs)
    return Routed(poses, lengths(poses), couplings)


def discriminative_objective(
    votes: Votes | Tensor,
    coefficients: Tensor,
    targets: Tensor,
    *,
    penalty: Literal["l1", "l2"] = "l2",
    strength: float,
    squashed: bool = False,
) -> Tensor:
    """Return what the coefficients maximize: Eq. 10 or 14, summed over parents.

    Args:
        votes: ``[b i j e]``, cast or not.
        coefficients: b, ``[i j]``.
        targets: class numbers ``[b]``, or zeros and ones ``[b j]`` for several classes at once.
        penalty: "l2" is Eq. 10, "l1" Eq. 14.
        strength: lambda.
        squashed: take the squashed v_j, as the authors' code does.
    """
    inputs, _ = _weighted_sum(votes, coefficients)
    quality = (squash(inputs) if squashed else inputs).square().sum(dim=-1)  # [b j]
    delta = 2 * multi_hot(targets, quality) - 1  # (5)
    if penalty == "l2":
        return (delta * quality).sum() - strength * coefficients.square().sum()
    if penalty == "l1":
        return (delta * quality).sum() - strength * coefficients.abs().sum()
    raise ValueError(f'penalty must be "l1" or "l2", not {penalty!r}')


def _weighted_sum(votes: Votes | Tensor, coefficients: Tensor) -> tuple[Tensor, Tensor]:
    if isinstance(votes, Votes):
        with full_precision(coefficients.device):
            total = votes.weighed(coefficients).total()  # (6)
        return total, _couplings(coefficients, votes.shape[0])
    votes = parent_major(votes)
    if coefficients.shape != votes.shape[1:3]:
        raise ValueError(
            f"coefficients {list(coefficients.shape)} must be {list(votes.shape[1:3])} for votes "
            f"{list(votes.shape)}"
        )
    couplings = _couplings(coefficients, votes.shape[0])
    return torch.einsum("bij,bije->bje", couplings, votes), couplings  # (6)


def _couplings(coefficients: Tensor, batch: int) -> Tensor:
    """Return the coefficients for each image, without gradient where gradients are off."""
    # a view of a parameter would require a gradient even then
    used = coefficients if torch.is_grad_enabled() else coefficients.detach()
    return used.expand(batch, -1, -1)


@final
class DiscriminativeRouting(Routing):
    """Discriminative routing (Yang 2021); owns the coefficients ``[i j]``.

    The coefficients want an optimizer of their own, which climbs :meth:`objective`; leave them out
    of the one that trains the weights.

    Args:
        sizes: see :class:`Routing`.
        penalty: "l1" or "l2".
        strength: lambda; 1e-3 is the one value the paper names. The authors' code has 1e-5 with
            means over the batch of p and the n children where the paper has sums, which amounts
            to 1e-5 p / n here.
        initial: value of every coefficient at the start.
        squashed: see :func:`discriminative_objective`.
        implementation: see :class:`Routing`.
    """

    competes_over: ClassVar[Axis] = "none"
    objective_parameters: ClassVar[tuple[str, ...]] = ("coefficients",)
    per_child: bool = True

    def __init__(
        self,
        sizes: Sizes,
        *,
        penalty: Literal["l1", "l2"] = "l2",
        strength: float = 1e-3,
        initial: float = 1.0,
        squashed: bool = False,
        implementation: Implementation = "auto",
    ) -> None:
        super().__init__(sizes, implementation=implementation)
        if penalty not in ("l1", "l2"):
            raise ValueError(f'penalty must be "l1" or "l2", not {penalty!r}')
        self.penalty: Literal["l1", "l2"] = penalty
        self.strength = strength
        self.squashed = squashed
        self.coefficients = nn.Parameter(torch.full((sizes.n_children, sizes.n_parents), initial))

    def forward(
        self, children: Capsules, votes: Votes | Tensor, parents: Tensor | None = None
    ) -> Routed:
        """Sum the votes by the coefficients."""
        self.refuse_parents(parents)
        return discriminative_routing(self._checked(votes), self.coefficients)

    def objective(
        self,
        votes: Votes | Tensor,
        targets: Tensor,
        *,
        share: float = 1.0,
        strength: float | None = None,
    ) -> Tensor:
        """Return what the coefficients maximize.

        Detach the votes unless coefficients of layers below climb the objective too.
        """
        votes = self._checked(votes)
        return discriminative_objective(
            votes.float() if isinstance(votes, Tensor) else votes,
            self.coefficients,
            targets,
            penalty=self.penalty,
            strength=(self.strength if strength is None else strength) * share,
            squashed=self.squashed,
        )

    def _checked(self, votes: Votes | Tensor) -> Votes | Tensor:
        """Return the votes as they are, cast or not, if they fit."""
        if isinstance(votes, Tensor):
            return self.cast(votes)
        self.check(votes)
        return votes

    @contextmanager
    def uniform_couplings(self) -> Iterator[bool]:
        """Give every coefficient the mean of all inside this context."""
        with filled([self.coefficients], float(self.coefficients.detach().mean())):
            yield True

    def options(self) -> str:
        """Return the penalty and its strength."""
        return f"penalty={self.penalty}, strength={self.strength:g}"
