"""The accuracy of a network on a set of images."""

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
from torchcaps.train.process import Process


class Score(NamedTuple):
    """The number of images classified right, and of all images scored."""

    right: int
    images: int

    @property
    def percent(self) -> float:
        """Accuracy in percent."""
        return 100 * self.right / max(1, self.images)


def targets_of(batch: Batch, n_classes: int) -> Tensor:
    """Return a loss's targets: class numbers ``[b]``, or zeros and ones ``[b n]``."""
    return batch.labels if batch.labels.dim() == 1 else batch.multi_hot(n_classes)


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


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Return autocast to bfloat16 where the recipe's precision asks for it."""
    on = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=on)


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
        measure: when an image counts as right.
        n_classes: number of classes.
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
    total = torch.zeros(2, dtype=torch.long, device=device)
    with torch.no_grad(), autocast(device, precision), tensor_float(device, precision):
        for batch in chain.from_iterable(map(batches.epoch, range(draws))):
            scores = network(batch.images).scores
            hits = right(scores.float(), targets_of(batch, n_classes), measure)
            total[0] += hits.sum()
            total[1] += len(hits)
            on_batch(scores, batch.labels)
            if stopping():
                break
    return Score(*process.sum(total).tolist())
