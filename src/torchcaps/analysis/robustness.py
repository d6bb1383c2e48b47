"""Accuracy on corrupted images: rotated, shifted, scaled, sheared, occluded, overlaid or noisy.

Random corruptions depend on the image's number only, so every network sees the same images. Half
of the images are rotated or sheared each way, and shifts go to the four sides in turn.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import in_parts
from torchcaps.data.augment import linear_map, warp
from torchcaps.models import Network, predict
from torchcaps.recipes import Measure


@dataclass(frozen=True)
class AccuracyCurve:
    """Share of images classified correctly at each level of one corruption."""

    what: str
    unit: str
    levels: tuple[float, ...]
    accuracy: tuple[float, ...]
    count: int


@dataclass(frozen=True)
class Corruption:
    """One way to make an image harder.

    Attributes:
        unit: unit of the levels.
        levels: default levels, with one that changes nothing.
        apply: function of images in 0..1, labels and a level that returns images.
    """

    unit: str
    levels: tuple[float, ...]
    apply: Callable[[Tensor, Tensor, float], Tensor]


def correct(scores: Tensor, labels: Tensor, *, measure: Measure | None = None) -> Tensor:
    """Return which images are classified correctly, ``[b]``.

    Without a measure the shape of the labels decides. With ``[b]`` the best class must be the
    label, with ``[b 2]`` the two best classes must be the two labels. Where some second label is -1
    (DiverseMultiMNIST), the classes with a positive logit must be those that are there.
    """
    if labels.dim() == 1 and measure in (None, "top1"):
        return predict(scores) == labels
    labels = labels.reshape(len(labels), -1)
    classes = torch.arange(scores.shape[1], device=labels.device)
    present = (labels[:, :, None] == classes).any(dim=1).long()
    if measure is None:
        measure = "threshold" if bool((labels < 0).any()) else "top2"
    guess = predict(scores, threshold=0.5) if measure == "threshold" else predict(scores, top=2)
    return (guess == present).all(dim=1)


def robustness(
    network: Network,
    images: Tensor,
    labels: Tensor,
    corruption: str,
    *,
    levels: Sequence[float] | None = None,
    measure: Measure | None = None,
) -> AccuracyCurve:
    """Measure the accuracy at every level of one corruption.

    Args:
        network: any network.
        images: ``[b c h w]`` in 0..1, as the data set has them.
        labels: ``[b]`` or ``[b 2]``.
        corruption: a name of `CORRUPTIONS`.
        levels: levels to measure; None takes the default ones.
        measure: when an image counts as right; see :func:`correct`.
    """
    if corruption not in CORRUPTIONS:
        raise ValueError(f"corruption must be one of {', '.join(CORRUPTIONS)}, not {corruption!r}")
    kind = CORRUPTIONS[corruption]
    levels = tuple(kind.levels if levels is None else levels)
    right = []
    for level in levels:
        scores = in_parts(network, kind.apply(images, labels, level)).scores
        right.append(float(correct(scores, labels, measure=measure).float().mean()))
    return AccuracyCurve(corruption, kind.unit, levels, tuple(right), len(images))


def _affine(
    images: Tensor,
    *,
    angle: float = 0.0,
    scale: float = 1.0,
    shear: float = 0.0,
    x: float = 0.0,
    y: float = 0.0,
) -> Tensor:
    """Apply an affine map to half of the images and its mirror image to the other half."""
    side = torch.where(torch.arange(len(images), device=images.device) % 2 == 0, 1.0, -1.0)
    ones = torch.ones_like(side)
    matrix = linear_map(side * (angle * torch.pi / 180), ones * scale, ones * scale, side * shear)
    h, w = images.shape[-2:]
    return warp(images, matrix, torch.stack([side * (x / w), side * (y / h)], dim=-1))


def _rotated(images: Tensor, labels: Tensor, level: float) -> Tensor:
    return _affine(images, angle=level)


def _shifted(images: Tensor, labels: Tensor, level: float) -> Tensor:
    across = torch.arange(len(images), device=images.device) % 4 < 2
    sideways, downwards = _affine(images, x=level), _affine(images, y=level)
    return torch.where(across[:, None, None, None], sideways, downwards)


def _scaled(images: Tensor, labels: Tensor, level: float) -> Tensor:
    return _affine(images, scale=level)


def _sheared(images: Tensor, labels: Tensor, level: float) -> Tensor:
    return _affine(images, shear=level)


def _random(shape: tuple[int, ...], like: Tensor, *, normal: bool) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn if normal else torch.rand
    return draw(shape, generator=generator).to(like)


def _occluded(images: Tensor, labels: Tensor, level: float) -> Tensor:
    """Put a black square of this share of the image's side at a random position."""
    b, _, h, w = images.shape
    top, left = _random((b, 2), images, normal=False).unbind(dim=1)
    tall, wide = round(h * level), round(w * level)
    rows = torch.arange(h, device=images.device) - (top * (h - tall + 1)).floor()[:, None]
    columns = torch.arange(w, device=images.device) - (left * (w - wide + 1)).floor()[:, None]
    inside_y = (rows >= 0) & (rows < tall)
    inside_x = (columns >= 0) & (columns < wide)
    return images.masked_fill((inside_y[:, :, None] & inside_x[:, None, :])[:, None], 0)


def _overlaid(images: Tensor, labels: Tensor, level: float) -> Tensor:
    """Add the next image of another class at this brightness."""
    flat = labels.reshape(len(labels), -1)
    partner = torch.arange(len(images), device=images.device)
    same = torch.ones_like(partner, dtype=torch.bool)
    for _ in range(min(64, len(images))):
        partner = torch.where(same, (partner + 1) % len(images), partner)
        same = (flat[partner][:, :, None] == flat[:, None, :]).any(dim=(1, 2))
    return (images + level * images[partner]).clamp(0, 1)


def _noisy(images: Tensor, labels: Tensor, level: float) -> Tensor:
    return (images + level * _random(tuple(images.shape), images, normal=True)).clamp(0, 1)


CORRUPTIONS: dict[str, Corruption] = {
    "rotation": Corruption("degrees", (0.0, 15.0, 30.0, 45.0, 60.0, 75.0, 90.0), _rotated),
    "translation": Corruption("pixels", (0.0, 1.0, 2.0, 3.0, 4.0, 6.0, 8.0), _shifted),
    "scale": Corruption("factor", (0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.4), _scaled),
    "shear": Corruption("x per y", (0.0, 0.1, 0.2, 0.3, 0.45, 0.6, 0.8), _sheared),
    "occlusion": Corruption("share of the side", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6), _occluded),
    "overlap": Corruption("brightness of another", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0), _overlaid),
    "noise": Corruption("standard deviation", (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.7), _noisy),
}
