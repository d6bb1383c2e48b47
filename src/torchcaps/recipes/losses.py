"""The papers' losses as functions of scores, targets, progress of the run and label smoothing."""

from collections.abc import Sequence
from functools import partial
from typing import Protocol

import torch
from torch import Tensor

from torchcaps import functional, kernels
from torchcaps.errors import UsageError


class Loss(Protocol):
    """The loss of a recipe, without the reconstruction."""

    def __call__(
        self, scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        """Return the loss of a batch.

        Args:
            scores: scores ``[b n]`` of the network.
            targets: class numbers ``[b]``, or zeros and ones ``[b n]`` for several objects.
            step: number of optimizer steps so far, a float tensor without axes.
            share: share of the run that is done, 0 to 1, a float tensor without axes.
            smoothing: share of the target that is spread over all classes.
        """
        ...


def margin(
    scores: Tensor,
    targets: Tensor,
    *,
    step: Tensor,
    share: Tensor,
    smoothing: float,
    scale: float = 1.0,
) -> Tensor:
    """Return the margin loss of lengths (Sabour 2017, Eq. 4).

    Args:
        scores: see :class:`Loss`.
        targets: see :class:`Loss`.
        step: see :class:`Loss`.
        share: see :class:`Loss`.
        smoothing: must be 0.
        scale: factor on the loss; the authors' code has 1/20 for ten classes.
    """
    _no_smoothing(smoothing, "margin")
    loss = kernels.margin_loss(scores, targets)
    return loss if scale == 1 else scale * loss


def spread(
    scores: Tensor,
    targets: Tensor,
    *,
    step: Tensor,
    share: Tensor,
    smoothing: float,
    sigmoid_steps: int | None = None,
) -> Tensor:
    """Return the spread loss of activations (Hinton 2018, Eq. 3); its margin grows over the run.

    Args:
        scores: see :class:`Loss`.
        targets: see :class:`Loss`.
        step: see :class:`Loss`.
        share: see :class:`Loss`.
        smoothing: must be 0.
        sigmoid_steps: None raises the margin linearly from 0.2 to 0.9, as the paper says. A number
            raises it to 0.99 as the authors' code does over so many steps; see
            :func:`torchcaps.spread_margin`. The code takes 2,000,000.
    """
    _no_smoothing(smoothing, "spread")
    if sigmoid_steps is None:
        margin = 0.2 + 0.7 * share.clamp(max=1)
    else:
        margin = 0.2 + 0.79 * torch.sigmoid((share * sigmoid_steps / 50_000 - 4).clamp(max=10))
    return functional.spread_loss(scores, targets, margin=margin)


def cross_entropy(
    scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
) -> Tensor:
    """Return the softmax cross-entropy."""
    if targets.dim() != 1:
        raise UsageError("cross-entropy is for one object in an image: take binary_cross_entropy")
    return functional.cross_entropy_loss(scores, targets, label_smoothing=smoothing)


def shared_cross_entropy(
    scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
) -> Tensor:
    """Return the softmax cross-entropy; several objects of an image share the target evenly."""
    present = functional.multi_hot(targets, scores)
    soft = present / present.sum(dim=1, keepdim=True).clamp_min(1)
    soft = soft * (1 - smoothing) + smoothing / scores.shape[1]
    return -(soft * scores.log_softmax(dim=1)).sum(dim=1).mean()


def log_likelihood(
    scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
) -> Tensor:
    """Return the negative log-likelihood of activations that sum to one over classes."""
    return cross_entropy(
        scores.clamp_min(1e-7).log(), targets, step=step, share=share, smoothing=smoothing
    )


def proportional_cross_entropy(
    scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
) -> Tensor:
    """Return the cross-entropy of scores of at least 0, scaled to sum to one over classes.

    It is Keras' cross-entropy of outputs that are no logits. Lengths and activations lie between 0
    and 1, where a softmax could not tell classes apart.
    """
    total = scores.sum(dim=1, keepdim=True).clamp_min(1e-7)
    return log_likelihood(scores / total, targets, step=step, share=share, smoothing=smoothing)


def binary_cross_entropy(
    scores: Tensor,
    targets: Tensor,
    *,
    step: Tensor,
    share: Tensor,
    smoothing: float,
    mean: bool = False,
) -> Tensor:
    """Return the sigmoid cross-entropy of each class; smoothing moves targets towards one half.

    Args:
        scores: see :class:`Loss`.
        targets: see :class:`Loss`.
        step: see :class:`Loss`.
        share: see :class:`Loss`.
        smoothing: see :class:`Loss`.
        mean: average over the classes instead of summing.
    """
    soft = functional.multi_hot(targets, scores) * (1 - smoothing) + smoothing / 2
    loss = functional.binary_cross_entropy_loss(scores, soft)
    return loss / scores.shape[1] if mean else loss


def squared_error(
    scores: Tensor,
    targets: Tensor,
    *,
    step: Tensor,
    share: Tensor,
    smoothing: float,
    std: Sequence[float] | None = None,
) -> Tensor:
    """Return the mean squared error of predicted numbers.

    Args:
        scores: predicted numbers ``[b n]``.
        targets: true numbers ``[b n]``.
        step: see :class:`Loss`.
        share: see :class:`Loss`.
        smoothing: must be 0.
        std: unit of each number's error, such as its standard deviation; None for ones.
    """
    _no_smoothing(smoothing, "squared error")
    if targets.shape != scores.shape:
        raise UsageError(
            f"the squared error compares numbers {list(scores.shape)} with as many, not with "
            f"{list(targets.shape)}"
        )
    errors = (scores - targets).unbind(dim=1)
    units = std or [1.0] * len(errors)
    return torch.stack([(e / s).square().mean() for e, s in zip(errors, units, strict=True)]).mean()


def is_for_classes(loss: Loss) -> bool:
    """Return whether a loss of this module takes classes and no numbers."""
    function = loss.func if isinstance(loss, partial) else loss
    return function is not squared_error and getattr(function, "__module__", None) == __name__


def _no_smoothing(smoothing: float, name: str) -> None:
    if smoothing:
        raise UsageError(f"label_smoothing is for cross-entropy; the {name} loss takes 0")
