"""How many images a network gets right."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from typing import NamedTuple

import torch
from torch import Tensor, nn

from torchcaps.capsules import Output
from torchcaps.data import Batch, Batches, Source, Transform
from torchcaps.models import predict
from torchcaps.recipes import Measure
from torchcaps.train.process import Process

__all__ = ["Score", "autocast", "right", "score", "tensor_float", "truth"]


class Score(NamedTuple):
    """Images that were classified right, of how many."""

    right: int
    images: int

    @property
    def percent(self) -> float:
        """Of the images, in percent."""
        return 100 * self.right / max(1, self.images)


def truth(batch: Batch, n_classes: int) -> Tensor:
    """What a loss compares scores with: class numbers ``[b]``, or zeros and ones ``[b n]``."""
    return batch.labels if batch.labels.dim() == 1 else batch.multi_hot(n_classes)


def right(scores: Tensor, targets: Tensor, measure: Measure) -> Tensor:
    """Which images are right: bool ``[b]``; of several objects all must be."""
    if measure == "top1":
        return predict(scores) == targets
    found = predict(scores, top=2) if measure == "top2" else predict(scores, threshold=0.5)
    if targets.dim() == 1:
        targets = nn.functional.one_hot(targets, scores.shape[1])
    return (found == targets).all(dim=-1)


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Lower precision where the recipe asks for it."""
    on = precision == "bfloat16" or (precision == "auto" and device.type == "cuda")
    return torch.autocast(device.type, torch.bfloat16, enabled=on)


@contextmanager
def tensor_float(device: torch.device, precision: str) -> Iterator[None]:
    """TensorFloat-32, 10 bits for factors in products and convolutions, unless float32 is asked.

    PyTorch's own setting is float32 for the products and TensorFloat-32 for the convolutions.
    """
    if device.type != "cuda":
        yield
        return
    products, convolutions = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    torch.set_float32_matmul_precision("highest" if precision == "float32" else "high")
    torch.backends.cudnn.allow_tf32 = precision != "float32"
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
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
    on_batch: Callable[[int], None] = lambda count: None,
    stopping: Callable[[], bool] = lambda: False,
) -> Score:
    """Score a network in evaluation mode; each process takes its share, every image counts once.

    One that is stopped counts fewer images than the source has, in every process alike.

    Args:
        network: images in, an output with ``scores`` out.
        source: a data set on the process's device.
        measure: when an image counts as right.
        n_classes: classes of the scores.
        process: this one among those of the run.
        transforms: what the images go through.
        precision: as in a recipe.
        batch_size: images at a time; None for 500 on a GPU and 100 elsewhere.
        draws: how often a source that draws its images does so.
        on_batch: told how many images were done, for a progress bar.
        stopping: asked after every batch whether to leave out the rest.
    """
    batches = Batches(
        source,
        batch_size or (500 if process.device.type == "cuda" else 100),
        transforms=transforms,
        shuffled=False,
        shard=(process.rank, process.world),
    )
    total = torch.zeros(2, dtype=torch.long, device=process.device)
    device = process.device
    with torch.no_grad(), autocast(device, precision), tensor_float(device, precision):
        for batch in chain.from_iterable(map(batches.epoch, range(draws))):
            scores = network(batch.images).scores
            hits = right(scores.float(), truth(batch, n_classes), measure)
            total[0] += hits.sum()
            total[1] += len(hits)
            on_batch(len(hits))
            if stopping():
                break
    hit, count = process.sum(total).tolist()
    return Score(hit, count)
