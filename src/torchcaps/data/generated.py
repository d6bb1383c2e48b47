"""Sets made from a digit set while they are asked for, on the device the digits are on.

They take any `ImageSet` of one channel: MNIST's training digits give a training set, its test
digits a test set, so the two never mix. An item is drawn by `Batches`; ``.images`` and the other
attributes hold one fixed draw of the whole set for those who want tensors.
"""

from collections.abc import Mapping
from functools import cached_property
from math import gcd

import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

from torchcaps.data.augment import linear_map, warp, windows
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.random import Draws, stream_key

MAX_BYTES = 8 << 30
_CHUNK = 2048


class Generated:
    """A set that draws its samples: what its kinds have in common."""

    name = "generated"

    def __init__(self, size: int, classes: tuple[str, ...], split: str) -> None:
        self.size = size
        self.classes = classes
        self.split = split

    def __len__(self) -> int:
        raise NotImplementedError

    @property
    def device(self) -> torch.device:
        """Where samples are drawn."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({self.split or 'all'}: {len(self)} images of 1x{self.size}x"
            f"{self.size}, {len(self.classes)} classes, drawn on {self.device})"
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices."""
        raise NotImplementedError

    def to(self, device: torch.device | str) -> "Generated":
        """The same set on another device."""
        raise NotImplementedError

    @cached_property
    def whole(self) -> Batch:
        """Every sample once, as seed 0 draws it in epoch 0."""
        needed = len(self) * self.size**2 * 3
        if needed > MAX_BYTES:
            raise ValueError(
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
        """Labels of that draw: ``[n]``, or ``[n 2]`` for overlapping sets."""
        return self.whole.labels

    @property
    def annotations(self) -> Mapping[str, Tensor]:
        """What else is known of that draw's samples, by name."""
        return self.whole.annotations

    @property
    def targets(self) -> Tensor | None:
        """Each digit of that draw alone: uint8 ``[n 2 h w]`` for overlapping sets."""
        return self.whole.targets


class FromDigits(Generated):
    """A generated set whose samples are made of a digit set's images."""

    def __init__(self, digits: ImageSet, size: int) -> None:
        if digits.images.shape[1] != 1:
            raise ValueError(f"{self.name} needs images of one channel, not {digits!r}")
        super().__init__(size, digits.classes, digits.split)
        self.digits = digits

    def __len__(self) -> int:
        return len(self.digits)

    @property
    def device(self) -> torch.device:
        """Where the digits are."""
        return self.digits.device


def place(images: Tensor, top: Tensor, left: Tensor, size: int, *, first: int, last: int) -> Tensor:
    """Put each image on a black canvas, its corner at (top, left), which may be off the canvas.

    Every pixel that stays on the canvas is kept.

    Args:
        images: ``[b c h w]``.
        top: long ``[b]``, row of the upper left corner.
        left: long ``[b]``, its column.
        size: of the canvas.
        first: no corner is above or left of this.
        last: no corner is below or right of this.
    """
    height, width = images.shape[-2:]
    before = max(0, last)
    padded = F.pad(
        images, (before, max(0, size - width - first), before, max(0, size - height - first))
    )
    return windows(padded, before - top, before - left, size, size)


class MultiMNIST(FromDigits):
    """Two overlapping digits of different classes (Sabour, Frosst and Hinton 2017, section 6.1).

    Each digit is shifted by up to ``shift`` pixels in each direction on a canvas ``pad`` pixels
    larger on every side: 36x36 from 28x28. Sample i has digit i as its first digit.

    On the fly (``pairs=None``) an epoch has as many samples as there are digits and every epoch
    draws new partners and shifts. With ``pairs=1000`` it is the paper's fixed set of 1,000
    images per digit, 60 million from MNIST: sample 1000 i + k is digit i, in one place, with its
    k-th partner; partners of a digit are all different and spread evenly over the other classes.
    Nothing is stored; a sample is computed from its index.

    Deviations: the released code shifts by up to 6 (``shift=6``), so that strokes may leave the
    canvas. It draws partners at random without replacement; ours come from index arithmetic.

    Args:
        digits: the set to draw both digits from.
        pairs: None for on the fly, else the number of fixed partners of each digit.
        shift: in pixels.
        pad: how far the canvas extends beyond a digit's image on each side.
        merge: ``"clip"`` (the sum, at most 255) or ``"mean"`` (half of each).
        seed: of the fixed set.
    """

    name = "multimnist"

    def __init__(
        self,
        digits: ImageSet,
        *,
        pairs: int | None = None,
        shift: int = 4,
        pad: int = 4,
        merge: str = "clip",
        seed: int = 0,
    ) -> None:
        super().__init__(digits, digits.images.shape[-1] + 2 * pad)
        if merge not in ("clip", "mean"):
            raise ValueError(f"merge must be 'clip' or 'mean', not {merge!r}")
        counts = torch.bincount(digits.labels, minlength=len(digits.classes)).cpu()
        if int((counts > 0).sum()) < 2:
            raise ValueError(f"{self.name} needs digits of two classes, not {digits!r}")
        if pairs is not None and pairs > int((counts.sum() - counts)[counts > 0].min()):
            raise ValueError(f"some digit has fewer than {pairs} partners; take fewer pairs")
        self.pairs = pairs
        self.shift = shift
        self.pad = pad
        self.merge = merge
        self.seed = seed
        device = digits.device
        self._by_class = digits.labels.sort(stable=True).indices
        self._counts = counts.to(device)
        self._starts = (counts.cumsum(0) - counts).to(device)
        others = (counts.sum() - counts).tolist()
        self._steps = torch.tensor([_even_step(other) for other in others], device=device)

    def __len__(self) -> int:
        return len(self.digits) * (self.pairs or 1)

    def to(self, device: torch.device | str) -> "MultiMNIST":
        """The same set on another device."""
        return type(self)(
            self.digits.to(device),
            pairs=self.pairs,
            shift=self.shift,
            pad=self.pad,
            merge=self.merge,
            seed=self.seed,
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices, with both digits as targets."""
        side = 2 * self.shift + 1
        if self.pairs is None:
            first = samples
            shifts = draws.integers(side, 4)
            rank = draws.integers(self._others(first))[0]
        else:
            first = samples // self.pairs
            base = Draws(stream_key(self.seed, 0, "base digit"), first)
            partner = Draws(stream_key(self.seed, 0, "partner"), samples)
            shifts = torch.cat([base.integers(side, 2), partner.integers(side, 2)])
            others = self._others(first)
            step = self._steps[self.digits.labels[first]]
            rank = (base.integers(others)[0] + samples % self.pairs * step) % others
        second = self._partner(first, rank)
        return self._overlay(first, second, shifts, samples)

    def _others(self, first: Tensor) -> Tensor:
        """How many digits have another class than each of these."""
        return len(self.digits) - self._counts[self.digits.labels[first]]

    def _partner(self, first: Tensor, rank: Tensor) -> Tensor:
        """The rank-th digit, in order of class, that has another class than ``first``."""
        label = self.digits.labels[first]
        rank = rank + self._counts[label] * (rank >= self._starts[label])
        return self._by_class[rank]

    def _overlay(self, first: Tensor, second: Tensor, shifts: Tensor, samples: Tensor) -> Batch:
        both = torch.cat([first, second])
        corners = shifts + (self.pad - self.shift)
        placed = place(
            self.digits.images.index_select(0, both),
            torch.cat([corners[0], corners[2]]),
            torch.cat([corners[1], corners[3]]),
            self.size,
            first=self.pad - self.shift,
            last=self.pad + self.shift,
        )
        targets = placed.view(2, len(first), self.size, self.size).transpose(0, 1)
        labels = self.digits.labels[both].view(2, len(first)).T
        return Batch(self._merge(targets), labels, samples, targets)

    def _merge(self, targets: Tensor) -> Tensor:
        a, b = targets[:, :1], targets[:, 1:]
        if self.merge == "mean":
            return ((a.short() + b) // 2).byte()
        return a + torch.minimum(b, 255 - a)


def _even_step(count: int) -> int:
    """A step coprime to ``count`` near its golden section: its multiples spread evenly."""
    step = max(1, round(count * 0.6180339887))
    while gcd(step, max(count, 1)) != 1:
        step += 1
    return step


class DiverseMultiMNIST(MultiMNIST):
    """One digit with probability 1/6, else two that overlap (Tsai et al. 2020, appendix B).

    A single digit has second label -1 and a black second target. Otherwise as `MultiMNIST`
    on the fly. `Batch.multi_hot` turns the labels into what a sigmoid head is trained on.

    Deviations: the paper follows Sabour and clips the sum; public code averages the two digits,
    which is ``merge="mean"``.

    Args:
        digits: the set to draw digits from.
        single: probability of a single digit.
        shift: in pixels.
        pad: how far the canvas extends beyond a digit's image on each side.
        merge: ``"clip"`` or ``"mean"``; a single digit is not dimmed by it.
    """

    name = "diverse_multimnist"

    def __init__(
        self,
        digits: ImageSet,
        *,
        single: float = 1 / 6,
        shift: int = 4,
        pad: int = 4,
        merge: str = "clip",
    ) -> None:
        super().__init__(digits, shift=shift, pad=pad, merge=merge)
        if not 0 <= single <= 1:
            raise ValueError(f"single must be a probability, not {single}")
        self.single = single

    def to(self, device: torch.device | str) -> "DiverseMultiMNIST":
        """The same set on another device."""
        return DiverseMultiMNIST(
            self.digits.to(device),
            single=self.single,
            shift=self.shift,
            pad=self.pad,
            merge=self.merge,
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices, with the digits as targets."""
        single = draws.uniform()[0] < self.single
        batch = super().draw(samples, draws)
        assert batch.targets is not None
        keep = torch.stack([torch.ones_like(single), ~single], 1)
        targets = batch.targets * keep[:, :, None, None]
        images = torch.where(single[:, None, None, None], targets[:, :1], self._merge(targets))
        return batch._replace(
            images=images, labels=torch.where(keep, batch.labels, -1), targets=targets
        )


class ExpandedMNIST(FromDigits):
    """A digit in a random place of a black 40x40 canvas (Sabour et al. 2017, section 5.1).

    Args:
        digits: the set to draw digits from.
        size: of the canvas.
    """

    name = "expanded_mnist"

    def __init__(self, digits: ImageSet, *, size: int = 40) -> None:
        super().__init__(digits, size)
        if size < max(digits.images.shape[-2:]):
            raise ValueError(f"a canvas of {size}x{size} is smaller than the digits")

    def to(self, device: torch.device | str) -> "ExpandedMNIST":
        """The same set on another device."""
        return ExpandedMNIST(self.digits.to(device), size=self.size)

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices."""
        height, width = self.digits.images.shape[-2:]
        top = draws.integers(self.size - height + 1)[0]
        left = draws.integers(self.size - width + 1)[0]
        images = place(
            self.digits.images.index_select(0, samples),
            top,
            left,
            self.size,
            first=0,
            last=self.size - min(height, width),
        )
        return Batch(images, self.digits.labels[samples], samples)


class AffnistStyle(FromDigits):
    """Digits under a random affine map on a 40x40 canvas, by affNIST's published ranges.

    Not affNIST: the same ranges, other draws. Rotation within 20 degrees, shear within 0.2, scale
    0.8 to 1.2 in x and y independently, then a translation that keeps the digit's ink inside.

    Args:
        digits: the set to draw digits from.
        size: of the canvas.
        rotation: in degrees, either way.
        shear: x per y, either way.
        scale: range of the factors.
    """

    name = "affnist_style"

    def __init__(
        self,
        digits: ImageSet,
        *,
        size: int = 40,
        rotation: float = 20.0,
        shear: float = 0.2,
        scale: tuple[float, float] = (0.8, 1.2),
    ) -> None:
        super().__init__(digits, size)
        self.rotation = rotation
        self.shear = shear
        self.scale = scale
        self._corners = _ink_corners(digits.images)

    def to(self, device: torch.device | str) -> "AffnistStyle":
        """The same set on another device."""
        return AffnistStyle(
            self.digits.to(device),
            size=self.size,
            rotation=self.rotation,
            shear=self.shear,
            scale=self.scale,
        )

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices; ``annotations["affine"]`` ``[b 2 3]`` is the map.

        The map takes (x, y) from the digit's centre, in pixels, to the canvas's centre.
        """
        angle, shear = draws.uniform(-1, 1, 2)
        scale_x, scale_y = draws.uniform(*self.scale, 2)
        where = draws.uniform(0, 1, 2).T
        matrix = linear_map(
            angle * (self.rotation * torch.pi / 180), scale_x, scale_y, shear * self.shear
        )
        # a sum, not matmul: no reduced precision under autocast or TF32
        corners = (self._corners[samples][:, :, None] * matrix[:, None]).sum(-1)
        low = -self.size / 2 - corners.amin(1)
        high = self.size / 2 - corners.amax(1)
        shift = torch.where(low < high, low + (high - low) * where, (low + high) / 2)
        images = self.digits.images.index_select(0, samples).float()
        drawn = warp(images, matrix, shift / self.size, size=(self.size, self.size))
        affine = torch.cat([matrix, shift[:, :, None]], -1)
        return Batch(
            drawn.round_().byte(),
            self.digits.labels[samples],
            samples,
            annotations={"affine": affine},
        )


def _ink_corners(images: Tensor) -> Tensor:
    """Corners ``[n 4 2]`` of the box that holds each image's ink, (x, y) from its centre."""
    height, width = images.shape[-2:]
    ink = images[:, 0] > 0
    left, right = _extent(ink.any(1))
    top, bottom = _extent(ink.any(2))
    left, right = left - width / 2, right - width / 2
    top, bottom = top - height / 2, bottom - height / 2
    corners = [left, top, right, top, left, bottom, right, bottom]
    return torch.stack(corners, -1).view(-1, 4, 2)


def _extent(present: Tensor) -> tuple[Tensor, Tensor]:
    """First and one past the last true position of each row of ``[n k]``, as floats.

    One pixel of margin: bilinear interpolation spreads ink by less than that.
    """
    count = present.shape[1]
    present = present.float()
    first = present.argmax(1)
    last = count - present.flip(1).argmax(1)
    return first.float() - 0.5, last.float() + 0.5
