"""Overlapping digits: MultiMNIST (Sabour et al. 2017) and DiverseMultiMNIST (Tsai et al. 2020)."""

from math import gcd

import torch
from torch import Tensor

from torchcaps.checks import check_share, check_whole
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits, place
from torchcaps.data.random import Draws, stream_key
from torchcaps.errors import InputError


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
    canvas. It draws partners at random without replacement; ours come from index arithmetic. Both
    digits move, as in the text and in that code, and boxes of 20x20 then share (1 - 80/27/20)^2 =
    72.6 % of their area, where the paper says 80 %; with one digit still it would be 79 %.

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
        check_whole("shift", shift, least=0)
        check_whole("pad", pad, least=0)
        check_whole("seed", seed)
        if pairs is not None:
            check_whole("pairs", pairs, least=1)
        height, width = digits.images.shape[-2:]
        if height != width:
            raise InputError(f"{self.name} needs square images, not {digits!r}; resize them first")
        super().__init__(digits, width + 2 * pad)
        if merge not in ("clip", "mean"):
            raise ValueError(f"merge must be 'clip' or 'mean', not {merge!r}")
        counts = torch.bincount(digits.labels, minlength=len(digits.classes)).cpu()
        if int((counts > 0).sum()) < 2:
            raise InputError(f"{self.name} needs digits of two classes, not {digits!r}")
        if pairs is not None and pairs > int((counts.sum() - counts)[counts > 0].min()):
            raise InputError(f"some digit has fewer than {pairs} partners; take fewer pairs")
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
        targets = placed.view(2, len(first), 1, self.size, self.size).transpose(0, 1)
        labels = self.digits.labels[both].view(2, len(first)).T
        return Batch(self._merge(targets), labels, samples, targets)

    def _merge(self, targets: Tensor) -> Tensor:
        a, b = targets.unbind(1)
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
        check_share("single", single)
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
        targets = batch.targets * keep[:, :, None, None, None]
        images = torch.where(single[:, None, None, None], targets[:, 0], self._merge(targets))
        return batch._replace(
            images=images, labels=torch.where(keep, batch.labels, -1), targets=targets
        )
