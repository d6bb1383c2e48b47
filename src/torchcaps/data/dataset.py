"""A data set in memory: images, labels and annotations."""

import operator
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor
from torch.utils.data import Dataset

from torchcaps.data.random import Draws, stream_key
from torchcaps.errors import InputError
from torchcaps.preprocessing.steps import as_float, resize


class Batch(NamedTuple):
    """A batch of samples of a data set.

    Attributes:
        images: ``[b c h w]``; uint8 from a set, float from `Batches` (in 0..1 unless a transform
            leaves that range).
        labels: ``[b]``, or ``[b 2]`` for overlapping sets, where -1 means no second digit.
        indices: ``[b]``, index of each sample in its data set.
        targets: ``[b 2 1 h w]``, each digit alone, the target of a reconstruction; None unless the
            set overlaps digits. uint8 from a set, float in 0..1 from `Batches`.
        annotations: further tensors by name, first axis ``b``.
    """

    images: Tensor
    labels: Tensor
    indices: Tensor
    targets: Tensor | None = None
    annotations: Mapping[str, Tensor] = {}

    def part(self, start: int, stop: int) -> "Batch":
        """Return the samples from ``start`` to ``stop`` as views."""
        return Batch(
            self.images[start:stop],
            self.labels[start:stop],
            self.indices[start:stop],
            None if self.targets is None else self.targets[start:stop],
            {name: value[start:stop] for name, value in self.annotations.items()},
        )

    def multi_hot(self, n_classes: int) -> Tensor:
        """Return the classes in each image as float zeros and ones ``[b n_classes]``."""
        labels = self.labels.reshape(len(self.labels), -1)
        classes = torch.arange(n_classes, device=labels.device)
        return (labels[:, :, None] == classes).any(1).float()


class Reading(NamedTuple):
    """How the files of a user became a data set.

    Attributes:
        sizes: number of images by their own height and width, the most common first.
        skipped: files that are no images.
    """

    sizes: Mapping[tuple[int, int], int]
    skipped: tuple[str, ...] = ()


class Samples(Dataset[tuple[Tensor, Tensor]], ABC):
    """A data set that can be indexed, and so works in a `torch.utils.data.DataLoader`.

    ``samples[i]`` is image i, float in 0..1 ``[c h w]``, and its label. Samples that are drawn on
    demand are those of seed 0 and epoch 0. `TorchDataset` adds transforms and new draws.
    """

    annotation_names: ClassVar[Mapping[str, tuple[str, ...]]] = {}
    """Names of an annotation's numbers, for annotations of several numbers."""

    @abstractmethod
    def __len__(self) -> int: ...

    @property
    @abstractmethod
    def device(self) -> torch.device:
        """Device of the samples."""

    @abstractmethod
    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices, images as uint8."""

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: Sequence[int]) -> list[tuple[Tensor, Tensor]]:
        """Return many samples at once; a `DataLoader` calls this."""
        count = len(self)
        numbers = [operator.index(index) for index in indices]
        if not all(-count <= number < count for number in numbers):
            raise IndexError(f"the data set has {count} samples")
        samples = torch.tensor([number % count for number in numbers], device=self.device)
        batch = self.draw(samples, Draws(stream_key(0, 0, "draw"), samples))
        images = as_float(batch.images)
        return list(zip(images.unbind(), batch.labels.unbind(), strict=True))


@dataclass(frozen=True, eq=False)
class ImageSet(Samples):
    """Images with labels.

    Attributes:
        images: uint8 ``[n c h w]``.
        labels: long ``[n]``.
        classes: name of each label.
        name: name of the data set.
        split: name of the split.
        indices: long ``[n]``, position of each image in the files. Two splits of the same files
            overlap exactly where their indices do.
        annotations: further tensors by name, first axis n.
        reading: how the files of a user became this set; None for a set of the package.
    """

    images: Tensor
    labels: Tensor
    classes: tuple[str, ...]
    name: str = ""
    split: str = ""
    indices: Tensor = field(default_factory=lambda: torch.empty(0, dtype=torch.long))
    annotations: Mapping[str, Tensor] = field(default_factory=dict)
    reading: Reading | None = None

    def __post_init__(self) -> None:
        if self.images.dtype != torch.uint8 or self.images.ndim != 4:
            raise ValueError(
                f"images must be uint8 [n c h w], got {self.images.dtype} "
                f"{list(self.images.shape)}; scale floats in 0..1 by 255 and convert first"
            )
        if self.labels.dtype != torch.long or self.labels.shape != self.images.shape[:1]:
            raise ValueError(
                f"labels must be long [n] with n = {len(self.images)}, got {self.labels.dtype} "
                f"{list(self.labels.shape)}"
            )
        known = len(self.labels) and self.labels.device.type != "meta"
        if known and not 0 <= int(self.labels.min()) <= int(self.labels.max()) < len(self.classes):
            raise InputError(
                f"labels must be in 0..{len(self.classes) - 1}, one per class name, got "
                f"{int(self.labels.min())}..{int(self.labels.max())}"
            )
        if not len(self.indices) and len(self.images):
            positions = torch.arange(len(self.images), device=self.images.device)
            object.__setattr__(self, "indices", positions)

    def __len__(self) -> int:
        return len(self.images)

    def __repr__(self) -> str:
        shape = "x".join(map(str, self.images.shape[1:]))
        return (
            f"ImageSet({self.name or 'unnamed'}, {self.split or 'all'}: {len(self)} images of "
            f"{shape}, {len(self.classes)} classes, on {self.images.device})"
        )

    def to(self, device: torch.device | str) -> "ImageSet":
        """Return the same set on another device."""
        return replace(
            self,
            images=self.images.to(device),
            labels=self.labels.to(device),
            indices=self.indices.to(device),
            annotations={name: value.to(device) for name, value in self.annotations.items()},
        )

    def take(self, positions: Tensor, *, split: str | None = None) -> "ImageSet":
        """Return the images at these positions, in this order."""
        positions = positions.to(self.images.device)
        return replace(
            self,
            images=self.images[positions],
            labels=self.labels[positions],
            indices=self.indices[positions],
            annotations={name: value[positions] for name, value in self.annotations.items()},
            split=self.split if split is None else split,
        )

    @property
    def device(self) -> torch.device:
        """Device of the images."""
        return self.images.device

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices; an image set needs no random numbers."""
        return Batch(
            images=self.images.index_select(0, samples),
            labels=self.labels.index_select(0, samples),
            indices=samples,
            annotations={name: value[samples] for name, value in self.annotations.items()},
        )

    def resize(self, height: int, width: int) -> "ImageSet":
        """Return the images resized (bilinear, antialiased), as smallNORB's to 48x48."""
        parts = [resize(part, height, width) for part in torch.split(self.images, 1024)]
        return replace(self, images=torch.cat(parts))

    def statistics(self) -> tuple[Tensor, Tensor]:
        """Return mean and standard deviation of each channel, of pixels in 0..1."""
        levels = torch.arange(256, dtype=torch.float64) / 255
        mean, std = [], []
        for channel in self.images.unbind(1):
            count = torch.bincount(channel.reshape(-1), minlength=256).double().cpu()
            center = (count * levels).sum() / count.sum()
            mean.append(center)
            std.append(((count * (levels - center) ** 2).sum() / count.sum()).sqrt())
        return torch.stack(mean), torch.stack(std)
