"""Metrics of a classifier beside its accuracy: per class, confusion, top 2 and calibration."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

BINS = 15
"""Bins of the calibration error, as in Guo 2017."""


class Bin(NamedTuple):
    """Images of about one confidence: mean confidence and accuracy in percent, and their number."""

    confidence: float
    accuracy: float
    images: int


class Metrics(NamedTuple):
    """The classification metrics of a network on images of one object each, in percent.

    Attributes:
        per_class: accuracy on the images of each class (recall), by name; None without images.
        balanced: mean of ``per_class``, in which every class counts the same.
        top2: share of images whose class is among the two best.
        ece: expected calibration error: how far confidence and accuracy differ, averaged over
            images in 15 bins of confidence. See :func:`confidences`.
        confusion: number of images by true class (rows) and predicted class (columns).
        reliability: the bins of the calibration error that hold images.
    """

    per_class: dict[str, float | None]
    balanced: float
    top2: float
    ece: float
    confusion: list[list[int]]
    reliability: list[Bin]

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {**self._asdict(), "reliability": [one._asdict() for one in self.reliability]}


class Tally:
    """The scores and labels of the images that were scored, one object in each.

    Args:
        summed: number of networks whose scores are summed; the confidence is that of their mean.
    """

    def __init__(self, summed: int = 1) -> None:
        self.summed = summed
        self.scores: list[Tensor] = []
        self.labels: list[Tensor] = []

    def add(self, scores: Tensor, labels: Tensor) -> None:
        """Add a batch; images of several objects and those with numbers are left out."""
        if labels.dim() == 1:
            self.scores.append(scores.float().cpu() / self.summed)
            self.labels.append(labels.cpu())

    def metrics(self, classes: Sequence[str]) -> Metrics | None:
        """Return the metrics; None if no image was added."""
        if not self.labels:
            return None
        return compute_metrics(torch.cat(self.scores), torch.cat(self.labels), classes)


def compute_metrics(scores: Tensor, labels: Tensor, classes: Sequence[str]) -> Metrics:
    """Return the metrics of scores ``[b n]`` for class numbers ``[b]``."""
    n, predicted = len(classes), scores.argmax(dim=1)
    confusion = torch.bincount(labels * n + predicted, minlength=n * n).view(n, n)
    counts = confusion.sum(dim=1)
    recalls = (100 * confusion.diagonal() / counts).tolist()
    present = [recall for recall, count in zip(recalls, counts, strict=True) if count]
    best = scores.topk(min(2, n), dim=1).indices
    ece, bins = calibration(confidences(scores), predicted == labels)
    return Metrics(
        per_class={
            name: recall if count else None
            for name, recall, count in zip(classes, recalls, counts, strict=True)
        },
        balanced=sum(present) / len(present),
        top2=100 * float((best == labels[:, None]).any(dim=1).float().mean()),
        ece=ece,
        confusion=confusion.tolist(),
        reliability=bins,
    )


def confidences(scores: Tensor) -> Tensor:
    """Return the confidence in the best class of each image, 0 to 1.

    Scores between 0 and 1, such as lengths and activations, are probabilities as they are. Others
    are logits, and go through a softmax.
    """
    low, high = scores.aminmax()
    # lengths may exceed 1 by rounding
    if low < 0 or high > 1 + 1e-4:
        scores = scores.softmax(dim=1)
    return scores.amax(dim=1).clamp(max=1)


def calibration(confidence: Tensor, right: Tensor) -> tuple[float, list[Bin]]:
    """Return the expected calibration error in percent (Guo 2017, Eq. 5) and its bins."""
    bin_index = (confidence * BINS).long().clamp(max=BINS - 1)
    bins, error = [], 0.0
    for number in range(BINS):
        in_bin = bin_index == number
        if count := int(in_bin.sum()):
            mean = 100 * float(confidence[in_bin].mean())
            accuracy = 100 * float(right[in_bin].float().mean())
            bins.append(Bin(mean, accuracy, count))
            error += count * abs(mean - accuracy)
    return error / len(confidence), bins
