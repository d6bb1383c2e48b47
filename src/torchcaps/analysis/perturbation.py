"""Meaning of each dimension of a class capsule (Sabour 2017, Fig. 4; Choi 2019, Fig. 3).

Each dimension is moved from -0.25 to 0.25 in steps of 0.05 and decoded. Steps are multiplied by
sqrt(d) for poses that are up to sqrt(d) long (attention and inverted attention routing). The effect
is measured on the drawings and, if known, on the true poses.
"""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.analysis.outputs import evaluating
from torchcaps.analysis.reconstruction import class_poses, decoder_of
from torchcaps.data import POSE
from torchcaps.layers import CapsuleLayer, Decoder
from torchcaps.models import Network

SHAPE = ("x", "y", "rotation", "width", "height", "skew", "thickness")
"""Quantities that :func:`shape_of` measures on a drawing."""

STEPS = 0.05 * torch.arange(-5, 6)


@dataclass(frozen=True, eq=False)
class Perturbation:
    """Drawings from moved capsules.

    Attributes:
        classes: ``[b]``, the capsule moved in each image.
        steps: ``[s]``, the changes.
        drawings: ``[b d s c h w]``.
    """

    classes: Tensor
    steps: Tensor
    drawings: Tensor


@dataclass(frozen=True, eq=False)
class DimensionEffects:
    """Correlation of how far a dimension is moved with what changes in the drawing.

    Attributes:
        factors: names of the columns.
        correlation: ``[d f]``, over the steps of all images, without each image's mean; 0 where
            nothing changes.
        slope: ``[d f]``, change of the factor from the smallest step to the largest, in pixels,
            degrees, or x per y.
    """

    factors: tuple[str, ...]
    correlation: Tensor
    slope: Tensor


@dataclass(frozen=True, eq=False)
class PoseCorrelation:
    """Correlation of the dimensions of each class's capsule with the true pose, over its images.

    Attributes:
        factors: names of the columns: `torchcaps.data.POSE`.
        correlation: ``[n d f]``; NaN for a class with fewer than three images.
    """

    factors: tuple[str, ...]
    correlation: Tensor


def perturb_poses(poses: Tensor, classes: Tensor, steps: Tensor) -> Tensor:
    """Move each dimension of the chosen class of poses ``[b n d]``; return ``[b d s n d]``."""
    n, d = poses.shape[1:]
    chosen = torch.eye(n, device=poses.device, dtype=poses.dtype)[classes]  # [b n]
    moves = torch.eye(d, device=poses.device, dtype=poses.dtype)[:, None] * steps[:, None]
    moved: Tensor = poses[:, None, None] + torch.einsum("bn,dse->bdsne", chosen, moves)
    return moved


def perturbation(
    network: Network, images: Tensor, classes: Tensor, *, steps: Tensor | None = None
) -> Perturbation:
    """Move every dimension of the capsules of ``classes`` ``[b]`` and decode the results.

    Args:
        network: a network with a decoder.
        images: a few images; each gives d times 11 drawings.
        classes: classes of the capsules to move.
        steps: the changes; None takes the paper's.
    """
    decoder = decoder_of(network)
    poses, _ = class_poses(network, images)
    if steps is None:
        steps = STEPS.to(poses) * step_scale(network, poses.shape[-1])
    with evaluating(network):
        return Perturbation(classes, steps, _draw(decoder, poses, classes, steps))


def _draw(decoder: Decoder, poses: Tensor, classes: Tensor, steps: Tensor) -> Tensor:
    drawings = []
    for one, label in zip(poses.split(1), classes.split(1), strict=True):
        moved = perturb_poses(one, label, steps)[0]
        flat = moved.flatten(0, 1)
        drawn = decoder.decode(flat, label.expand(len(flat)))
        drawings.append(drawn.unflatten(0, moved.shape[:2]))
    return torch.stack(drawings)


def step_scale(network: Network, d: int) -> float:
    """Return sqrt(d) for networks whose class poses are up to sqrt(d) long, else 1."""
    layers = [module for module in network.modules() if isinstance(module, CapsuleLayer)]
    return math.sqrt(d) if layers and layers[-1].routing.long_poses else 1.0


def shape_of(images: Tensor) -> Tensor:
    """Measure drawings ``[... h w]`` or ``[... 1 h w]`` by their moments: ``[... 7]`` as `SHAPE`.

    x and y are the center of the ink in pixels from the middle (right, down). Width and height are
    four standard deviations of the ink, width without the skew. Skew is x per y, positive if the
    top leans right. Rotation is the angle of the main axis from the vertical in degrees,
    anticlockwise, within 90 either way. It is undefined for a round or empty drawing. Thickness is
    twice the ink over the length of its outline.
    """
    ink = images.squeeze(-3) if images.dim() > 2 and images.shape[-3] == 1 else images
    h, w = ink.shape[-2:]
    y = torch.arange(h, device=ink.device, dtype=ink.dtype)[:, None] - (h - 1) / 2
    x = torch.arange(w, device=ink.device, dtype=ink.dtype) - (w - 1) / 2
    mass = ink.sum(dim=(-2, -1)).clamp_min(1e-6)

    def mean(values: Tensor) -> Tensor:
        return (ink * values).sum(dim=(-2, -1)) / mass

    cx, cy = mean(x), mean(y)
    dx, dy = x - cx[..., None, None], y - cy[..., None, None]
    xx, yy, xy = mean(dx * dx), mean(dy * dy).clamp_min(1e-6), mean(dx * dy)
    skew = -xy / yy
    width = 4 * (xx - xy.square() / yy).clamp_min(0).sqrt()
    rotation = torch.rad2deg(0.5 * torch.atan2(2 * xy, yy - xx))
    right = ink[..., :, 1:] - ink[..., :, :-1]
    down = ink[..., 1:, :] - ink[..., :-1, :]
    slope = (right[..., 1:, :].square() + down[..., :, 1:].square()).sqrt()
    thickness = 2 * mass / slope.sum(dim=(-2, -1)).clamp_min(1e-6)
    return torch.stack([cx, cy, rotation, width, 4 * yy.sqrt(), skew, thickness], dim=-1)


def dimension_effects(moved: Perturbation) -> DimensionEffects:
    """Measure the effect of each dimension on the quantities of `SHAPE`."""
    measured = shape_of(moved.drawings.mean(dim=3))  # [b d s f]
    steps = moved.steps - moved.steps.mean()
    centered = measured - measured.mean(dim=2, keepdim=True)
    both = torch.einsum("s,bdsf->df", steps, centered)
    ours = steps.square().sum() * len(measured)
    theirs = centered.square().sum(dim=(0, 2))
    correlation = torch.where(theirs > 1e-8, both / (ours * theirs).sqrt().clamp_min(1e-12), 0)
    slope = both / ours * (moved.steps.max() - moved.steps.min())
    return DimensionEffects(SHAPE, correlation, slope)


def pose_correlation(
    network: Network, images: Tensor, labels: Tensor, poses: Tensor
) -> PoseCorrelation:
    """Correlate every dimension of the true class's capsule with the true pose ``[b 7]``."""
    capsules, _ = class_poses(network, images)
    true = capsules[torch.arange(len(images), device=images.device), labels]
    rows = []
    for kind in range(capsules.shape[1]):
        chosen = labels == kind
        rows.append(_correlate(true[chosen], poses[chosen].to(true)))
    return PoseCorrelation(POSE, torch.stack(rows))


def _correlate(a: Tensor, b: Tensor) -> Tensor:
    """Return the Pearson correlation ``[d f]`` of the columns of ``[n d]`` and ``[n f]``."""
    if len(a) < 3:
        return a.new_full((a.shape[1], b.shape[1]), torch.nan)
    a, b = a - a.mean(dim=0), b - b.mean(dim=0)
    norms = a.norm(dim=0)[:, None] * b.norm(dim=0)
    return torch.where(norms > 1e-8, a.T @ b / norms.clamp_min(1e-12), 0)
