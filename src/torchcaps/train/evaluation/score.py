"""The accuracy of a network on a set of images, or the R² of the numbers that it predicts."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.data import Batch, Batches, Source, Transform
from torchcaps.models.network import choose_classes
from torchcaps.recipes import Measure
from torchcaps.tensors import widest_float
from torchcaps.train.process import Process


class Score(NamedTuple):
    """The number of images classified right, and of all images scored.

    Of predicted numbers, ``right`` is None and ``r2`` holds the R² of each.
    """

    right: int | None
    images: int
    r2: tuple[float, ...] = ()

    @property
    def percent(self) -> float:
        """Accuracy in percent, or the mean R² in percent, at least 0."""
        if self.right is None:
            return 100 * max(0.0, sum(self.r2) / max(1, len(self.r2)))
        return 100 * self.right / max(1, self.images)


def targets_of(batch: Batch, n_classes: int) -> Tensor:
    """Return a loss's targets: class numbers ``[b]``, zeros and ones ``[b n]``, or numbers."""
    if batch.labels.dim() == 1 or batch.labels.is_floating_point():
        return batch.labels
    return batch.multi_hot(n_classes)


def predictions(scores: Tensor, measure: Measure) -> Tensor:
    """Return the best class ``[b]``, or zeros and ones ``[b n]`` where images show several."""
    if measure == "top1":
        return choose_classes(scores)
    if measure == "top2":
        return choose_classes(scores, top=2)
    return choose_classes(scores, threshold=0.5)


def right(scores: Tensor, targets: Tensor, measure: Measure) -> Tensor:
    """Return which images are right as bool ``[b]``; every object of an image must be."""
    predicted = predictions(scores, measure)
    if measure == "top1":
        return predicted == targets
    if targets.dim() == 1:
        targets = nn.functional.one_hot(targets, scores.shape[1])
    return (predicted == targets).all(dim=-1)


def n_sums(measure: Measure, n_classes: int) -> int:
    """Return how many sums :func:`sums_of` returns."""
    return 3 * n_classes if measure == "r2" else 1


def sums_of(scores: Tensor, targets: Tensor, measure: Measure) -> Tensor:
    """Return what a batch adds to a score: right answers ``[1]``, or ``[3n]`` for R².

    R² needs the sums of squared errors, of targets and of squared targets of each number.
    """
    kind = widest_float(scores.device)
    if measure != "r2":
        return right(scores, targets, measure).sum(dtype=kind)[None]
    errors, numbers = (scores - targets).to(kind), targets.to(kind)
    return torch.stack([errors.square(), numbers, numbers.square()]).sum(dim=1).flatten()


def score_of(sums: Sequence[float], images: float, measure: Measure) -> Score:
    """Return the score of these sums over so many images.

    R² is 1 - squared error / variance, and 0 for a number that never varies.
    """
    if measure != "r2":
        return Score(round(sums[0]), int(images))
    n = len(sums) // 3
    r2 = []
    for error, total, squares in zip(sums[:n], sums[n : 2 * n], sums[2 * n :], strict=True):
        variation = squares - total**2 / max(1, images)
        varies = variation > 1e-9 * squares
        r2.append(1 - error / variation if varies else 0.0)
    return Score(None, int(images), tuple(r2))


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return autocast to bfloat16 where the recipe's precision asks for it."""
    on = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=on and device.type != "mps")


@contextmanager
def tensor_float(device: torch.device, precision: str) -> Iterator[None]:
    """Use TensorFloat-32 in matmuls and convolutions on a GPU, unless the precision is float32.

    PyTorch's default is float32 for matmuls and TensorFloat-32 for convolutions.
    """
    if device.type != "cuda":
        yield
        return
    matmuls, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(matmuls)
        torch.backends.cudnn.allow_tf32 = convolutions


def score(
    network: Callable[[Tensor], Output],
    source: Source,
    *,
    measure: Measure,
    n_classes: int,
    process: Process,
    transforms: Sequence[Transform] = (),
    precision: str = "float32",
    batch_size: int | None = None,
    draws: int = 1,
    on_batch: Callable[[Tensor, Tensor], None] = lambda scores, labels: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Score:
    """Score a network in evaluation mode; each process takes its share, every image counts once.

    A stopped call counts fewer images, the same number in every process.

    Args:
        network: maps images to an output with ``scores``.
        source: a data set on the process's device.
        measure: when an image counts as right, or "r2" for numbers.
        n_classes: number of classes or of numbers.
        process: this process.
        transforms: transforms of the images.
        precision: precision of the forward pass, as in a recipe.
        batch_size: batch size; None for 500 on a GPU and 100 elsewhere.
        draws: number of draws from a source that draws its images.
        on_batch: called with the scores ``[b n]`` and the labels of each batch.
        stopping: called after every batch; True leaves out the rest.
    """
    batches = Batches(
        source,
        batch_size or (500 if process.device.type == "cuda" else 100),
        transforms=transforms,
        shuffled=False,
        shard=(process.rank, process.world),
    )
    device = process.device
    total = torch.zeros(n_sums(measure, n_classes) + 1, dtype=widest_float(device), device=device)
    with torch.no_grad(), autocast(device, precision), tensor_float(device, precision):
        for batch in chain.from_iterable(map(batches.epoch, range(draws))):
            scores = network(batch.images).scores
            total[:-1] += sums_of(scores.float(), targets_of(batch, n_classes), measure)
            total[-1] += len(scores)
            on_batch(scores, batch.labels)
            if stopping():
                break
    *sums, images = process.sum(total).tolist()
    return score_of(sums, images, measure)
