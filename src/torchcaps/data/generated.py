"""Base classes of sets whose samples are drawn on demand, on the device of the set."""

import copy
from collections.abc import Mapping
from functools import cached_property
from typing import Self

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.data.augment.geometry import windows
from torchcaps.data.dataset import Batch, ImageSet, Samples
from torchcaps.data.random import Draws, stream_key
from torchcaps.errors import InputError

MAX_WHOLE_BYTES = 8 << 30
_CHUNK = 2048


class Generated(Samples):
    """A set that draws its samples on demand.

    ``images``, ``labels``, ``annotations`` and ``targets`` belong to one fixed draw of all samples.
    """

    name = "generated"

    def __init__(
        self, size: int, classes: tuple[str, ...], split: str, *, height: int | None = None
    ) -> None:
        self.size = size
        self.height = size if height is None else height
        self.classes = classes
        self.split = split

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.split or 'all'}: {len(self)} images of 1x{self.height}x"
            f"{self.size}, {len(self.classes)} classes, drawn on {self.device})"
        )

    def to(self, device: torch.device | str) -> Self:
        """Return the same set on another device."""
        moved = copy.copy(self)
        vars(moved).pop("whole", None)
        for name, value in vars(moved).items():
            if isinstance(value, Tensor | ImageSet):
                setattr(moved, name, value.to(device))
        return moved

    @cached_property
    def whole(self) -> Batch:
        """Every sample once, as drawn with seed 0 in epoch 0."""
        needed = len(self) * self.height * self.size * 3
        if needed > MAX_WHOLE_BYTES:
            raise InputError(
                f"{self.name} of {len(self)} images would take {needed >> 30} GiB at once; "
                "draw it in batches with torchcaps.data.Batches"
            )
        parts = []
        for samples in torch.split(torch.arange(len(self), device=self.device), _CHUNK):
            parts.append(self.draw(samples, Draws(stream_key(0, 0, "draw"), samples)))
        targets = [part.targets for part in parts if part.targets is not None]
        return Batch(
            images=torch.cat([part.images for part in parts]),
            labels=torch.cat([part.labels for part in parts]),
            indices=torch.cat([part.indices for part in parts]),
            targets=torch.cat(targets) if targets else None,
            annotations={
                name: torch.cat([part.annotations[name] for part in parts])
                for name in parts[0].annotations
            },
        )

    @property
    def images(self) -> Tensor:
        """uint8 ``[n 1 h w]`` of one fixed draw."""
        return self.whole.images

    @property
    def labels(self) -> Tensor:
        """Labels of the same draw, ``[n]``, or ``[n 2]`` for overlapping sets."""
        return self.whole.labels

    @property
    def annotations(self) -> Mapping[str, Tensor]:
        """Further tensors of the same draw, by name."""
        return self.whole.annotations

    @property
    def targets(self) -> Tensor | None:
        """Each digit of the same draw alone, uint8 ``[n 2 1 h w]``; None unless they overlap."""
        return self.whole.targets


class FromDigits(Generated):
    """A generated set whose samples are made of a digit set's images.

    Training digits give a training set and test digits a test set, so the two never mix.
    """

    def __init__(self, digits: ImageSet, size: int) -> None:
        if digits.images.shape[1] != 1:
            raise InputError(f"{self.name} needs images of one channel, not {digits!r}")
        super().__init__(size, digits.classes, digits.split)
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits)

    @property
    def device(self) -> torch.device:
        """Device of the digits."""
        return self.digits.device


def place(images: Tensor, top: Tensor, left: Tensor, size: int, *, first: int, last: int) -> Tensor:
    """Put each image on a black canvas, its corner at (top, left), which may be off the canvas.

    Args:
        images: ``[b c h w]``.
        top: long ``[b]``, row of the upper left corner.
        left: long ``[b]``, its column.
        size: height and width of the canvas.
        first: smallest value of ``top`` and ``left``.
        last: largest value of ``top`` and ``left``.
    """
    height, width = images.shape[-2:]
    before = max(0, last)
    padded = functional.pad(
        images, (before, max(0, size - width - first), before, max(0, size - height - first))
    )
    return windows(padded, before - top, before - left, size, size)
