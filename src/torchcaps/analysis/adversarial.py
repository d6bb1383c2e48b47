"""Accuracy under small changes of the pixels: the FGSM and PGD attacks.

Goodfellow, Shlens and Szegedy 2015, https://arxiv.org/abs/1412.6572 (one step along the sign of the
gradient), and Madry and others 2018, https://arxiv.org/abs/1706.06083 (many steps from a random
start, each pixel within epsilon of the image).

The attack maximizes a margin: the best score of an absent class minus the worst of a present one.
The margin means the same for lengths, activations and logits. Cross-entropy on lengths between 0
and 1 would be nearly flat. A vanishing gradient also looks like robustness, so the share of images
with a gradient of exactly zero is reported beside the accuracy.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import in_parts
from torchcaps.analysis.robustness import correct
from torchcaps.models import Network
from torchcaps.recipes import Measure

EPSILONS = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3)


@dataclass(frozen=True)
class AdversarialCurve:
    """Accuracy under attack.

    Attributes:
        epsilons: largest change of a pixel, in 0..1.
        fgsm: accuracy after one step.
        pgd: accuracy after ``steps`` steps.
        masked: share of the images whose gradient is zero, which no gradient attack can change.
        steps: steps of PGD.
        count: number of images.
    """

    epsilons: tuple[float, ...]
    fgsm: tuple[float, ...]
    pgd: tuple[float, ...]
    masked: float
    steps: int
    count: int


def fgsm(network: Network, images: Tensor, labels: Tensor, *, epsilon: float) -> Tensor:
    """Return images moved by epsilon along the sign of the gradient, clamped to 0..1."""
    return (images + epsilon * _gradient(network, images, labels).sign()).clamp(0, 1)


def pgd(
    network: Network,
    images: Tensor,
    labels: Tensor,
    *,
    epsilon: float,
    steps: int = 10,
    seed: int = 0,
) -> Tensor:
    """Return images within epsilon after ``steps`` steps of 2.5 epsilon / steps."""
    generator = torch.Generator().manual_seed(seed)
    start = torch.rand(images.shape, generator=generator).to(images)
    moved = (images + epsilon * (2 * start - 1)).clamp(0, 1)
    for _ in range(steps):
        moved = moved + 2.5 * epsilon / steps * _gradient(network, moved, labels).sign()
        moved = moved.clamp(images - epsilon, images + epsilon).clamp(0, 1)
    return moved


def adversarial(
    network: Network,
    images: Tensor,
    labels: Tensor,
    *,
    epsilons: Sequence[float] = EPSILONS,
    steps: int = 10,
    measure: Measure | None = None,
) -> AdversarialCurve:
    """Measure the accuracy under both attacks at every epsilon.

    Args:
        network: any network.
        images: ``[b c h w]`` in 0..1, as the data set has them.
        labels: ``[b]`` or ``[b 2]``.
        epsilons: largest changes of a pixel.
        steps: steps of PGD.
        measure: when an image counts as right; see :func:`correct`.
    """
    one, many = [], []
    for epsilon in epsilons:
        if epsilon == 0:
            clean = _accuracy(network, images, labels, measure)
            one.append(clean)
            many.append(clean)
            continue
        changed = fgsm(network, images, labels, epsilon=epsilon)
        one.append(_accuracy(network, changed, labels, measure))
        changed = pgd(network, images, labels, epsilon=epsilon, steps=steps)
        many.append(_accuracy(network, changed, labels, measure))
    gradient = _gradient(network, images, labels).flatten(1)
    masked = float((gradient == 0).all(dim=1).float().mean())
    return AdversarialCurve(tuple(epsilons), tuple(one), tuple(many), masked, steps, len(images))


def _accuracy(network: Network, images: Tensor, labels: Tensor, measure: Measure | None) -> float:
    scores = in_parts(network, images).scores
    return float(correct(scores, labels, measure=measure).float().mean())


def _gradient(network: Network, images: Tensor, labels: Tensor, *, part: int = 250) -> Tensor:
    """Return the gradient of the margin with respect to the pixels."""
    training = network.training
    network.eval()
    parts = []
    try:
        for some, classes in zip(images.split(part), labels.split(part), strict=True):
            pixels = some.detach().clone().requires_grad_()
            with torch.enable_grad():
                margin = _margin(network(pixels).scores, classes).sum()
            parts.append(torch.autograd.grad(margin, pixels)[0])
    finally:
        network.train(training)
    return torch.cat(parts)


def _margin(scores: Tensor, labels: Tensor) -> Tensor:
    """Return the best score of an absent class minus the worst of a present one, ``[b]``."""
    classes = torch.arange(scores.shape[1], device=labels.device)
    present = (labels.reshape(len(labels), -1)[:, :, None] == classes).any(dim=1)
    absent = scores.masked_fill(present, -torch.inf).amax(dim=1)
    return absent - scores.masked_fill(~present, torch.inf).amin(dim=1)
