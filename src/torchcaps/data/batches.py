"""Batches made on the device: shuffle, gather and augment without leaving it."""

from collections.abc import Iterator, Sequence
from typing import Protocol

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.checks import check_whole
from torchcaps.data.augment.transforms import Transform, as_float
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
        batches = Batches(train, 128, transforms=[PadCrop(4), Flip(), Normalize(mean, std)])
        for batch in batches.epoch(0):
            loss = step(batch.images, batch.labels)

    Args:
        source: an `ImageSet`, a generated set or strokes.
        batch_size: samples in each batch; the last one is smaller unless dropped.
        transforms: applied to the images in order, not to targets and annotations. Images that
            are still uint8 after the last, or without any, become float in 0..1; targets always.
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
        """Which samples this epoch has, in order: long ``[n]`` on the device."""
        count, device = len(self.source), self.source.device
        if self.shuffled:
            order = shuffled(count, stream_key(self.seed, epoch, "order"), device)
        else:
            order = torch.arange(count, device=device)
        return order[self.shard[0] :: self.shard[1]]

    def epoch(self, epoch: int, *, skip: int = 0) -> Iterator[Batch]:
        """The batches of one epoch, without the first ``skip`` of them."""
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
                ahead = max(1, _AHEAD_BYTES // max(1, drawn.images.nbytes))

    def batch(self, samples: Tensor, epoch: int = 0) -> Batch:
        """These samples as this epoch augments them."""
        batch = self.source.draw(samples, Draws(stream_key(self.seed, epoch, "draw"), samples))
        images = batch.images
        if self.transforms:
            draws = Draws(stream_key(self.seed, epoch, "augment"), samples)
            for transform in self.transforms:
                images = transform(images, draws)
        targets = None if batch.targets is None else as_float(batch.targets)
        return batch._replace(images=as_float(images), targets=targets)


class TorchDataset(Dataset[tuple[Tensor, ...]]):
    """The same samples through `torch.utils.data`: (image, label), with targets (.., targets).

    Works with any number of workers, persistent ones too, and gives exactly the samples `Batches`
    gives. Set ``epoch`` before each epoch, as with a distributed sampler. The order is the
    loader's: item k is the set's k-th sample, or, of a shard, sample ``rank + k * world``.

        dataset = TorchDataset(batches, annotations=["pose"])
        loader = DataLoader(dataset, batch_size=64, shuffle=True, num_workers=2)
        for epoch in range(10):
            dataset.epoch = epoch
            for images, labels, poses in loader:
                ...

    Args:
        batches: what makes the samples.
        annotations: names of annotations that follow as further columns.
    """

    def __init__(self, batches: Batches, *, annotations: Sequence[str] = ()) -> None:
        self.batches = batches
        rank, world = batches.shard
        self.samples = range(rank, len(batches.source), world)
        self.annotations = tuple(annotations)
        # in shared memory: workers that live on see the next epoch
        self._epoch = torch.zeros((), dtype=torch.long).share_memory_()
        if self.annotations and self.samples:
            known = self._draw([0]).annotations
            if missing := [name for name in self.annotations if name not in known]:
                have = ", ".join(known) or "none"
                raise ValueError(f"there is no annotation {missing[0]!r}; the set has {have}")

    @property
    def epoch(self) -> int:
        """Which epoch's draws and augmentation the samples have."""
        return int(self._epoch)

    @epoch.setter
    def epoch(self, epoch: int) -> None:
        self._epoch.fill_(epoch)

    def __len__(self) -> int:
        return len(self.samples)

    def __getitem__(self, index: int) -> tuple[Tensor, ...]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, ...]]:
        """Many samples at once: what a `DataLoader` asks for."""
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
