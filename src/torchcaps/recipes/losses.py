"""The papers' losses in one form: scores, targets, the step so far, label smoothing."""

from typing import Protocol

import torch
from torch import Tensor

from torchcaps import functional
from torchcaps.errors import UsageError

__all__ = ["Loss", "binary_cross_entropy", "cross_entropy", "margin", "spread"]


class Loss(Protocol):
    """What a recipe trains with, beside the reconstruction."""

    def __call__(
        self, scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float
    ) -> Tensor:
        """The loss of a batch.

        Args:
            scores: of the network, ``[b n]``.
            targets: class numbers ``[b]``, or zeros and ones ``[b n]`` for several objects.
            step: optimizer steps taken so far, a float tensor without axes.
            smoothing: share of the target spread over all classes.
        """
        ...


def margin(scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float) -> Tensor:
    """Margin loss of lengths (Sabour 2017, Eq. 4)."""
    _no_smoothing(smoothing, "margin")
    return functional.margin_loss(scores, targets)


def spread(
    scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float, rise: int = 50_000
) -> Tensor:
    """Spread loss of activations (Hinton 2018, Eq. 3), its margin rising with the steps.

    Args:
        scores: see :class:`Loss`.
        targets: likewise.
        step: likewise.
        smoothing: likewise.
        rise: the margin is half-way up after 4 times so many steps; 50,000 is the authors' code.
    """
    _no_smoothing(smoothing, "spread")
    up = torch.sigmoid((step / rise - 4).clamp(max=10))
    return functional.spread_loss(scores, targets, margin=0.2 + 0.79 * up)


def cross_entropy(scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float) -> Tensor:
    """Softmax cross-entropy."""
    return functional.cross_entropy_loss(scores, targets, label_smoothing=smoothing)


def binary_cross_entropy(
    scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float, mean: bool = False
) -> Tensor:
    """Sigmoid cross-entropy, each class for itself; smoothing draws targets towards one half.

    Args:
        scores: see :class:`Loss`.
        targets: likewise.
        step: likewise.
        smoothing: likewise.
        mean: over the classes; otherwise they are summed.
    """
    soft = functional.multi_hot(targets, scores) * (1 - smoothing) + smoothing / 2
    loss = functional.binary_cross_entropy_loss(scores, soft)
    return loss / scores.shape[1] if mean else loss


def _no_smoothing(smoothing: float, name: str) -> None:
    if smoothing:
        raise UsageError(f"label_smoothing is for cross-entropy; the {name} loss takes 0")
