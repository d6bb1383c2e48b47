"""Pose changes predicted from capsule changes: an equivariance score on `strokes`.

Each glyph is drawn in two known poses. For each class a linear map, fitted on half of the pairs,
predicts the difference of the poses from the difference of the class capsules. The score is R^2 on
the other half for each of the seven factors. 1 is a capsule that moves as the glyph does, 0 one
that carries no information, below 0 a prediction worse than the mean.

Networks without capsules are measured by the input of their last linear layer. Differences of more
than ``components`` numbers are reduced to that many principal components, for equal terms.
`pixel_equivariance` scores the bare pixels, which any network should beat.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import features
from torchcaps.data import POSE, Batches, Strokes, render
from torchcaps.errors import InputError
from torchcaps.models import Network

PENALTIES = (1e-6, 1e-3, 1e-2, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 100.0)
"""Penalties of the ridge regression, as shares of the number of samples."""


@dataclass(frozen=True, eq=False)
class Equivariance:
    """R^2 of the predicted pose changes.

    Attributes:
        factors: names of the columns: `torchcaps.data.POSE`.
        r2: ``[7]``, mean over classes.
        by_class: ``[n 7]``.
        dimension: numbers that the prediction uses.
        pairs: number of pairs.
    """

    factors: tuple[str, ...]
    r2: Tensor
    by_class: Tensor
    dimension: int
    pairs: int


def linear_r2(x: Tensor, y: Tensor) -> Tensor:
    """Return R^2 ``[f]`` on the second half of ``[n f]``, predicted linearly from ``[n d]``.

    Ridge regression on inputs scaled to unit variance. Its penalty is the one of `PENALTIES` with
    the smallest leave-one-out error on the first half.
    """
    x, y = x.double(), y.double()
    half = len(x) // 2
    if half < 2:
        raise ValueError(f"a fit needs at least 4 samples, not {len(x)}")
    center, scale = x[:half].mean(dim=0), x[:half].std(dim=0)
    varies = scale > 1e-6 * scale.max()
    x = torch.where(varies, (x - center) / torch.where(varies, scale, 1), 0)
    mean = y[:half].mean(dim=0)
    u, s, right = torch.linalg.svd(x[:half], full_matrices=False)
    along = u.T @ (y[:half] - mean)
    errors, weights = [], []
    for penalty in PENALTIES:
        shrunk = s.square() / (s.square() + penalty * half)
        leverage = (u.square() @ shrunk)[:, None] + 1 / half
        missed = (y[:half] - mean - u @ (shrunk[:, None] * along)) / (1 - leverage).clamp_min(1e-9)
        errors.append(missed.square().sum(dim=0))
        weights.append(right.T @ ((s / (s.square() + penalty * half))[:, None] * along))
    best = torch.stack(errors).argmin(dim=0)  # [f]
    weight = torch.stack(weights)[best, :, torch.arange(len(best), device=best.device)].T
    residual = (y[half:] - mean - x[half:] @ weight).square().sum(dim=0)
    total = (y[half:] - y[half:].mean(dim=0)).square().sum(dim=0)
    r2: Tensor = 1 - residual / total.clamp_min(1e-12)
    return r2.float()


def equivariance(
    network: Network, *, pairs: int = 4000, components: int = 16, seed: int = 0
) -> Equivariance:
    """Score a network that classifies digits.

    Args:
        network: ten classes, square images of any size and number of channels.
        pairs: number of glyphs, each drawn twice.
        components: largest number of inputs of the prediction; 0 takes all.
        seed: seed of the drawings.
    """
    channels, height, width = network.image_shape
    if network.n_classes != 10 or height != width:
        raise InputError("strokes are ten digits on square images: this network classifies others")
    device = next(network.parameters()).device
    first, second, labels, change = _pairs(pairs, height, seed, device)
    before = features(network, first.expand(-1, channels, -1, -1), labels)
    after = features(network, second.expand(-1, channels, -1, -1), labels)
    return _score(after - before, change, labels, components)


def pixel_equivariance(
    *, size: int = 28, pairs: int = 4000, components: int = 16, seed: int = 0
) -> Equivariance:
    """Score the pixels themselves."""
    first, second, labels, change = _pairs(pairs, size, seed, torch.device("cpu"))
    return _score((second - first).flatten(1), change, labels, components)


def _pairs(
    pairs: int, size: int, seed: int, device: torch.device
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw glyphs in two poses; return both, their labels and the change of pose."""
    one = Strokes(pairs, size=size, split="equivariance", seed=seed, device=device)
    other = Strokes(pairs, size=size, split="equivariance", seed=seed + 1, device=device)
    samples = torch.arange(pairs, device=device)
    batch = Batches(one, pairs).batch(samples)
    pose = Batches(other, pairs).batch(samples).annotations["pose"]
    notes = batch.annotations
    again = render(notes["glyph"], pose, size=size, offsets=notes["offsets"]).float() / 255
    return batch.images, again, batch.labels, pose - notes["pose"]


def _score(x: Tensor, y: Tensor, labels: Tensor, components: int) -> Equivariance:
    rows = []
    d = min(components or x.shape[1], x.shape[1])
    fewest = int(labels.bincount(minlength=10).min())
    if fewest < 4 * d:
        raise InputError(
            f"{len(x)} pairs give some class only {fewest}, and a fit from {d} numbers needs "
            f"{4 * d}: take more pairs"
        )
    for kind in range(10):
        inputs = x[labels == kind]
        if x.shape[1] > d:
            fitted = inputs[: len(inputs) // 2]
            _, _, axes = torch.linalg.svd(fitted - fitted.mean(dim=0), full_matrices=False)
            inputs = inputs @ axes[:d].T
        rows.append(linear_r2(inputs, y[labels == kind]))
    by_class = torch.stack(rows)
    return Equivariance(POSE, by_class.mean(dim=0), by_class, d, len(x))
