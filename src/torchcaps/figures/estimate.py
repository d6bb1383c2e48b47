"""Estimates of the time that figures take, from the time of one forward pass."""

import time
from collections.abc import Callable, Mapping, Sequence

import torch

from torchcaps.analysis import Subject
from torchcaps.analysis.outputs import evaluating
from torchcaps.figures.base import Effort

TIMED_IMAGES = 20
DRAWING_S = 1.0
"""Seconds to draw and save one figure, without its measurement."""

PASSES: Mapping[str, Callable[[Effort], int]] = {
    "reconstructions": lambda effort: 2 * effort.samples,
    "true-pose": lambda effort: effort.samples,
    "segmentation": lambda effort: 4 * min(effort.samples, 500),
    "alignment": lambda effort: 31 * effort.samples,
    "equivariance": lambda effort: 2 * effort.pairs,
    "robustness": lambda effort: 50 * effort.samples,
    "adversarial": lambda effort: 250 * effort.attacked,
}
"""Figure name -> forward passes of single images, a gradient as two; others take few."""


def estimate_seconds(
    subjects: Sequence[Subject], names: Sequence[str], effort: Effort
) -> dict[str, float]:
    """Return about how many seconds each figure takes, from a timed pass of every network."""
    per_image = sum(_seconds_per_image(subject) for subject in subjects)
    return {name: DRAWING_S + per_image * PASSES.get(name, _few_passes)(effort) for name in names}


def _few_passes(effort: Effort) -> int:
    return 4 * effort.traced


def _seconds_per_image(subject: Subject) -> float:
    images = subject.batch(TIMED_IMAGES).images
    with evaluating(subject.network):
        subject.network(images[:2])
        _synchronize(images.device)
        start = time.perf_counter()
        subject.network(images)
        _synchronize(images.device)
    return (time.perf_counter() - start) / len(images)


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
