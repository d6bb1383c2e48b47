"""Batches made on the device: shuffle, gather and augment without leaving it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.data.augment import Transform, as_float
from torchcaps.data.dataset import Batch
from torchcaps.data.random import Draws, shuffled, stream_key

_AHEAD_BYTES = 64 << 20


class Source(Protocol):
    """What batches are made of: an `ImageSet` or a generated set."""

    def __len__(self) -> int:
        """How many samples an epoch has."""
        ...

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        ...

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices, images as uint8."""
        ...


class Batches:
    """Epochs of a data set that lies on the device.

    Each sample's augmentation depends on (seed, epoch, sample) only; the order on (seed, epoch).
    The same seed gives the same batches on CPU and CUDA and in every run, and another batch size
    cuts the same sequence differently. No batch waits for the device; on a GPU several small
    batches are drawn in one go and handed out as views.

        train = load("cifar10").to("cuda")
        batches = Batches(train, 128, transforms=[PadCrop(4), Flip(), Normalise(mean, std)])
        for batch in batches.epoch(0):
            loss = step(batch.images, batch.labels)

    Args:
        source: an `ImageSet`, a generated set or strokes.
        batch_size: samples in each batch; the last one is smaller unless dropped.
        transforms: applied to the images in order; what is uint8 after the last becomes 0..1.
        seed: of order and augmentation.
        shuffled: whether each epoch has its own order.
        drop_last: leave a smaller last batch out.
        shard: ``(rank, world)``: every world-th sample of the order, from the rank-th on.
    """

    def __init__(
        self,
        source: Source,
        batch_size: int,
        *,
        transforms: Sequence[Transform] = (),
        seed: int = 0,
        shuffled: bool = True,
        drop_last: bool = False,
        shard: tuple[int, int] = (0, 1),
    ) -> None:
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {batch_size}")
        if not 0 <= shard[0] < shard[1]:
            raise ValueError(f"shard must be (rank, world) with rank below world, not {shard}")
        self.source = source
        self.batch_size = batch_size
        self.transforms = tuple(transforms)
        self.seed = seed
        self.shuffled = shuffled
        self.drop_last = drop_last
        self.shard = shard

    def __len__(self) -> int:
        count = len(range(self.shard[0], len(self.source), self.shard[1]))
        return count // self.batch_size if self.drop_last else -(-count // self.batch_size)

    def __iter__(self) -> Iterator[Batch]:
        return self.epoch(0)

    def order(self, epoch: int) -> Tensor:
        """Which samples this epoch has, in order: long ``[n]`` on the device."""
        count, device = len(self.source), self.source.device
        if self.shuffled:
            order = shuffled(count, stream_key(self.seed, epoch, "order"), device)
        else:
            order = torch.arange(count, device=device)
        return order[self.shard[0] :: self.shard[1]]

    def epoch(self, epoch: int) -> Iterator[Batch]:
        """The batches of one epoch."""
        order = self.order(epoch)
        if self.drop_last:
            order = order[: len(self) * self.batch_size]
        size, start, ahead = self.batch_size, 0, 1
        while start < len(order):
            samples = order[start : start + ahead * size]
            drawn = self.batch(samples, epoch)
            for first in range(0, len(samples), size):
                yield drawn.part(first, first + size)
            start += len(samples)
            if ahead == 1 and drawn.images.device.type != "cpu":
                ahead = max(1, _AHEAD_BYTES // max(1, drawn.images.nbytes))

    def batch(self, samples: Tensor, epoch: int = 0) -> Batch:
        """These samples as this epoch augments them."""
        batch = self.source.draw(samples, Draws(stream_key(self.seed, epoch, "draw"), samples))
        images = batch.images
        if self.transforms:
            draws = Draws(stream_key(self.seed, epoch, "augment"), samples)
            for transform in self.transforms:
                images = transform(images, draws)
        return batch._replace(images=as_float(images))


class TorchDataset(Dataset[tuple[Tensor, ...]]):
    """The same samples through `torch.utils.data`: (image, label), with targets (.., targets).

    Works with any number of workers and gives exactly the samples `Batches` gives. Set ``epoch``
    before each epoch, as with a distributed sampler.

        loader = DataLoader(TorchDataset(batches), batch_size=64, shuffle=True, num_workers=2)
    """

    def __init__(self, batches: Batches) -> None:
        self.batches = batches
        self.epoch = 0

    def __len__(self) -> int:
        return len(self.batches.source)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """Many samples at once: what a `DataLoader` asks for."""
        if not all(0 <= index < len(self) for index in indices):
            raise IndexError(f"the data set has {len(self)} samples")
        samples = torch.tensor(indices, device=self.batches.source.device)
        batch = self.batches.batch(samples, self.epoch)
        columns = [batch.images, batch.labels]
        if batch.targets is not None:
            columns.append(batch.targets)
        return list(zip(*(column.unbind() for column in columns), strict=True))
