"""Muon: orthogonalized momentum for convolutions and vote weights, Adam for all others.

Jordan 2024, https://kellerjordan.github.io/posts/muon, with scale and weight decay of Liu 2025,
https://arxiv.org/abs/2502.16982, section 2.2:

    m = mu m + (1 - mu) g,  u = mu m + (1 - mu) g       Nesterov's momentum
    o = (u u^T)^(-1/2) u, approximately                 five Newton-Schulz steps
    w = w - lr decay w - 0.2 lr sqrt(n) o               n the longer side: entries move by 0.2 lr

A convolution is a matrix of output channels by the inputs of each. Vote weights are a matrix of the
entries of all parents' poses by those of all children's poses.
"""

import math
from collections.abc import Iterable
from typing import Any, final

import torch
from torch import Tensor
from torch.optim.adamw import adamw


def orthogonal(matrix: Tensor, *, steps: int = 5) -> Tensor:
    """Return approximately the nearest matrix whose singular values are 1.

    Most singular values of the result are between 0.7 and 1.2. On a GPU it computes in bfloat16,
    which is precise enough.
    """
    if matrix.shape[0] > matrix.shape[1]:
        return orthogonal(matrix.T, steps=steps).T
    x: Tensor = matrix / (torch.linalg.vector_norm(matrix) + 1e-7)
    if x.is_cuda:
        x = x.bfloat16()
    for _ in range(steps):
        gram = x @ x.T
        gram = torch.addmm(gram, gram, gram, beta=-4.7750, alpha=2.0315)
        x = torch.addmm(x, gram, x, beta=3.4445)
    return x.to(matrix.dtype)


@final
class Muon(torch.optim.Optimizer):
    """Muon for parameter groups with a ``kind``, Adam with decoupled weight decay for the others.

    A step never waits for the device. If ``lr`` is a tensor, it can be captured in a CUDA graph.

    Args:
        params: parameter groups; ``kind`` is "filters" for weights ``[n ...]`` of n channels and
            "votes" for vote weights ``[i j d e]``.
        lr: learning rate of filters.
        momentum: mu.
        votes: learning rate of votes, divided by ``lr``.
        adam: learning rate of Adam, divided by ``lr``.
        betas: betas of Adam.
        eps: epsilon of Adam.
        weight_decay: weight decay, multiplied by the learning rate of the group.
        capturable: has no effect, since steps are always counted on the device; code that captures
            CUDA graphs reads it.
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float | Tensor = 5e-3,
        *,
        momentum: float = 0.95,
        votes: float = 2.0,
        adam: float = 0.4,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        capturable: bool = False,
    ) -> None:
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "votes": votes,
            "adam": adam,
            "betas": betas,
            "eps": eps,
            "weight_decay": weight_decay,
            "capturable": capturable,
            "kind": None,
        }
        super().__init__(params, defaults)
        for group in self.param_groups:
            if group["kind"] not in (None, "filters", "votes"):
                raise ValueError(f"kind must be 'filters', 'votes' or None, not {group['kind']!r}")

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """Update every parameter with a gradient; a ``closure`` computes the gradients first."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            weights = [p for p in group["params"] if p.grad is not None]
            if group["kind"] is None:
                self._adam(weights, group)
                continue
            lr = group["lr"] * (group["votes"] if group["kind"] == "votes" else 1.0)
            for weight in weights:
                update = self._update(weight, group)
                weight.mul_(1 - lr * group["weight_decay"]).sub_(lr * update)
        return loss

    def _update(self, weight: Tensor, group: dict[str, Any]) -> Tensor:
        """Return the update of a weight at a learning rate of 1."""
        state, mu, gradient = self.state[weight], group["momentum"], weight.grad
        assert gradient is not None
        if not state:
            state["momentum"] = torch.zeros_like(weight)
        state["momentum"].lerp_(gradient, 1 - mu)
        momentum = gradient.lerp(state["momentum"], mu)
        if group["kind"] == "votes":
            i, j, d, e = weight.shape
            matrix = momentum.permute(1, 3, 0, 2).reshape(j * e, i * d)
            update = orthogonal(matrix).reshape(j, e, i, d).permute(2, 0, 3, 1)
        else:  # the order within a row does not matter; this one is free in channels_last
            channels_last = momentum.movedim(1, -1)
            matrix = channels_last.flatten(1)
            update = orthogonal(matrix).reshape(channels_last.shape).movedim(-1, 1)
        return 0.2 * math.sqrt(max(matrix.shape)) * update

    def _adam(self, weights: list[Tensor], group: dict[str, Any]) -> None:
        for weight in weights:
            state = self.state[weight]
            if not state:
                state["step"] = torch.zeros((), device=weight.device)
                state["mean"], state["square"] = torch.zeros_like(weight), torch.zeros_like(weight)
        states = [self.state[weight] for weight in weights]
        if states:
            adamw(
                weights,
                [weight.grad for weight in weights if weight.grad is not None],
                [state["mean"] for state in states],
                [state["square"] for state in states],
                [],
                [state["step"] for state in states],
                fused=True,
                amsgrad=False,
                beta1=group["betas"][0],
                beta2=group["betas"][1],
                lr=group["lr"] * group["adam"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )
