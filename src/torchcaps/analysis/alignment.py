"""Alignment of capsule changes when the image moves (Choi 2019, Table 3 and Fig. 4).

    v_i = u(T_i(x)) - u(x)                          (12)  difference vectors of five transformations
    w   = first right-singular vector of V          (13, 14)
    r_i = |v_i . w| / |v_i|                         (15)  alignment ratio

The paper gives 0.311 +- 0.262 for five standard normal vectors and does not name their dimension.
Its equations give 0.497 +- 0.279 in 16 dimensions and 0.463 +- 0.268 in 32.
:func:`random_alignment` computes that baseline; `PAPER_RANDOM` is the printed one.

Deviations: capsules are taken as the network returns them; the authors' notebook takes them before
the last tanh. Images are moved with bilinear interpolation and zeros outside.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import features
from torchcaps.data.augment import linear_map, warp
from torchcaps.models import Network

PAPER_RANDOM = (0.311, 0.262)
"""Mean and standard deviation that the paper prints for random vectors."""

DIRECTIONS = ("rotation", "x", "y")
AMOUNTS = {"rotation": (5.0, 10.0, 15.0, 20.0, 25.0), "x": (1.0, 2.0, 3.0, 4.0, 5.0)}
AMOUNTS["y"] = AMOUNTS["x"]


@dataclass(frozen=True, eq=False)
class Alignment:
    """Alignment ratios of many images.

    Attributes:
        directions: names of the six rows: rotation+, x+, y+, rotation-, x-, y-.
        mean: ``[6]`` over images and transformations.
        std: ``[6]``.
        by_class: ``[6 n]``; NaN for a class without images.
        cosines: ``[3 b]``, between the align vectors of positive and negative transformations, each
            oriented along its differences; NaN for an image that nothing changes.
        random: computed mean and standard deviation for random vectors of the same dimension.
        paper_random: the ones that the paper prints.
        dimension: dimension of the vectors.
    """

    directions: tuple[str, ...]
    mean: Tensor
    std: Tensor
    by_class: Tensor
    cosines: Tensor
    random: tuple[float, float]
    paper_random: tuple[float, float]
    dimension: int


def alignment_ratio(differences: Tensor) -> tuple[Tensor, Tensor]:
    """Return ratios r ``[... n]`` and align vectors w ``[... d]`` of differences ``[... n d]``.

    A difference of length zero has the ratio NaN; if all are zero, w is NaN too. The sign of w
    makes the sum of all v_i . w at least zero.
    """
    _, _, right = torch.linalg.svd(differences, full_matrices=False)
    w = right[..., 0, :]
    along = torch.einsum("...nd,...d->...n", differences, w)
    sign = torch.where(along.sum(dim=-1, keepdim=True) < 0, -1.0, 1.0)
    norms = differences.norm(dim=-1)
    ratios = torch.where(norms > 0, along.abs() / norms, torch.nan)
    # the decomposition of zeros gives an arbitrary unit vector
    return ratios, torch.where((norms > 0).any(dim=-1, keepdim=True), w * sign, torch.nan)


def random_alignment(
    dimension: int, *, vectors: int = 5, trials: int = 1000, seed: int = 0
) -> tuple[float, float]:
    """Return mean and standard deviation of the ratios of standard normal vectors."""
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randn(trials, vectors, dimension, generator=generator)
    ratios, _ = alignment_ratio(drawn)
    return float(ratios.mean()), float(ratios.std())


def moved(images: Tensor, direction: str, amount: float) -> Tensor:
    """Rotate images anticlockwise by degrees, or shift them right ("x") or down ("y") by pixels."""
    b, (h, w) = len(images), images.shape[-2:]
    zero, one = images.new_zeros(b), images.new_ones(b)
    if direction not in DIRECTIONS:
        raise ValueError(f"direction must be one of {', '.join(DIRECTIONS)}, not {direction!r}")
    angle = torch.full_like(zero, amount * torch.pi / 180) if direction == "rotation" else zero
    across = zero + amount / w if direction == "x" else zero
    down = zero + amount / h if direction == "y" else zero
    return warp(images, linear_map(angle, one, one, zero), torch.stack([across, down], -1))


def alignment(
    network: Network,
    images: Tensor,
    labels: Tensor,
    *,
    amounts: Mapping[str, Sequence[float]] | None = None,
) -> Alignment:
    """Measure Table 3 and Fig. 4 for the class capsule of each image's label.

    A network without capsules is measured by the input of its last linear layer.

    Args:
        network: any network.
        images: ``[b c h w]``; the paper takes 10,000 images.
        labels: ``[b]``.
        amounts: degrees or pixels of each direction; None takes the paper's five.
    """
    still = features(network, images, labels)
    steps = amounts or AMOUNTS
    ratios, vectors = [], []
    for sign in (1, -1):
        for direction in DIRECTIONS:
            differences = torch.stack(
                [
                    features(network, moved(images, direction, sign * amount), labels) - still
                    for amount in steps[direction]
                ],
                dim=1,
            )
            ratio, w = alignment_ratio(differences)
            ratios.append(ratio)
            vectors.append(w)
    r = torch.stack(ratios)  # [6 b 5]
    w = torch.stack(vectors)  # [6 b d]
    known = torch.isfinite(r)
    spread = torch.stack([row[ok].std() for row, ok in zip(r, known, strict=True)])
    classes = [r[:, labels == kind].nanmean(dim=(1, 2)) for kind in range(network.n_classes)]
    d = still.shape[1]
    return Alignment(
        directions=tuple(f"{name}{sign}" for sign in "+-" for name in DIRECTIONS),
        mean=r.nanmean(dim=(1, 2)),
        std=spread,
        by_class=torch.stack(classes, dim=1),
        # rounding may exceed one, and a histogram from -1 to 1 would drop that
        cosines=torch.einsum("sbd,sbd->sb", w[:3], w[3:]).clamp(-1, 1),
        random=random_alignment(d, vectors=r.shape[2]),
        paper_random=PAPER_RANDOM,
        dimension=d,
    )
