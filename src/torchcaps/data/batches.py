"""Batches made on the device: shuffled, gathered and augmented there."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.checks import check_whole
from torchcaps.data.augment import Transform, as_float
from torchcaps.data.dataset import Batch
from torchcaps.data.random import Draws, shuffled, stream_key

_MAX_AHEAD_BYTES = 64 << 20


class Source(Protocol):
    """A set that batches are drawn from: an `ImageSet` or a generated set."""

    def __len__(self) -> int:
        """Return the number of samples in an epoch."""
        ...

    @property
    def device(self) -> torch.device:
        """Device of the samples."""
        ...

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices, images as uint8."""
        ...


class Batches:
    """Epochs of a data set on its device.

    A sample's augmentation depends only on (seed, epoch, sample) and the order only on (seed,
    epoch). The same seed gives the same batches on CPU and CUDA and in every run. Another batch
    size cuts the same sequence differently. No batch waits for the device; on a GPU, several small
    batches are drawn at once and returned as views::

        train = load("cifar10").to("cuda")
        batches = Batches(train, 128, transforms=[PadCrop(4), Flip(), Normalize(mean, std)])
        for batch in batches.epoch(0):
            loss = step(batch.images, batch.labels)

    Args:
        source: an `ImageSet` or a generated set.
        batch_size: samples in each batch; the last one may be smaller.
        transforms: transforms of the images, in order; targets and annotations stay. Images that
            are still uint8 after the last one become float in 0..1, as targets always do.
        seed: seed of order and augmentation.
        shuffled: whether each epoch has its own order.
        drop_last: drop a smaller last batch.
        shard: ``(rank, world)``: every world-th sample of the order, starting at ``rank``.
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
        if not hasattr(source, "draw"):
            raise ValueError(f"source must be a data set, such as load('mnist'), not {source!r}")
        check_whole("batch_size", batch_size, least=1)
        check_whole("seed", seed)
        if not isinstance(transforms, Sequence) or not all(map(callable, transforms)):
            raise ValueError(f"transforms must be a list such as [Shift(2)], not {transforms!r}")
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
        """Return the samples of an epoch in order: long ``[n]`` on the device."""
        count, device = len(self.source), self.source.device
        if self.shuffled:
            order = shuffled(count, stream_key(self.seed, epoch, "order"), device)
        else:
            order = torch.arange(count, device=device)
        return order[self.shard[0] :: self.shard[1]]

    def epoch(self, epoch: int, *, skip: int = 0) -> Iterator[Batch]:
        """Yield the batches of one epoch, without the first ``skip`` of them."""
        order = self.order(epoch)
        if self.drop_last:
            order = order[: len(self) * self.batch_size]
        size, start, ahead = self.batch_size, skip * self.batch_size, 1
        while start < len(order):
            samples = order[start : start + ahead * size]
            drawn = self.batch(samples, epoch)
            for first in range(0, len(samples), size):
                yield drawn.part(first, first + size)
            start += len(samples)
            if ahead == 1 and drawn.images.device.type != "cpu":
                ahead = max(1, _MAX_AHEAD_BYTES // max(1, drawn.images.nbytes))

    def batch(self, samples: Tensor, epoch: int = 0) -> Batch:
        """Return samples as augmented in this epoch."""
        batch = self.source.draw(samples, Draws(stream_key(self.seed, epoch, "draw"), samples))
        images = batch.images
        if self.transforms:
            draws = Draws(stream_key(self.seed, epoch, "augment"), samples)
            for transform in self.transforms:
                images = transform(images, draws)
        targets = None if batch.targets is None else as_float(batch.targets)
        return batch._replace(images=as_float(images), targets=targets)


class TorchDataset(Dataset[tuple[Tensor, ...]]):
    """The samples of `Batches` for a `DataLoader`: image, label and, where there are any, targets.

    Works with any number of workers, persistent ones too. Set ``epoch`` before each epoch, as with
    a distributed sampler. The loader chooses the order: item k is the set's k-th sample, or sample
    ``rank + k * world`` of a shard::

        dataset = TorchDataset(batches, annotations=["pose"])
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
        for epoch in range(10):
            dataset.epoch = epoch
            for images, labels, poses in loader:
                ...

    Args:
        batches: source of the samples.
        annotations: names of annotations to append to each item.
    """

    def __init__(self, batches: Batches, *, annotations: Sequence[str] = ()) -> None:
        self.batches = batches
        rank, world = batches.shard
        self.samples = range(rank, len(batches.source), world)
        self.annotations = tuple(annotations)
        # in shared memory, so that persistent workers see the next epoch
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()
        if self.annotations and self.samples:
            known = self._draw([0]).annotations
            if missing := [name for name in self.annotations if name not in known]:
                have = ", ".join(known) or "none"
                raise ValueError(f"there is no annotation {missing[0]!r}; the set has {have}")

    @property
    def epoch(self) -> int:
        """Epoch whose draws and augmentation the samples have."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """Return many samples at once; a `DataLoader` calls this."""
        if not all(0 <= index < len(self) for index in indices):
            raise IndexError(f"the data set has {len(self)} samples")
        batch = self._draw(indices)
        columns = [batch.images, batch.labels]
        if batch.targets is not None:
            columns.append(batch.targets)
        columns += [batch.annotations[name] for name in self.annotations]
        return list(zip(*(column.unbind() for column in columns), strict=True))

    def _draw(self, indices: Sequence[int]) -> Batch:
        samples = torch.tensor([self.samples[index] for index in indices])
        return self.batches.batch(samples.to(self.batches.source.device), self.epoch)
