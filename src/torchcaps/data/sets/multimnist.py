"""MultiMNIST: two overlapping digits (Sabour et al. 2017)."""

from math import gcd

import torch
from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.generated import FromDigits, place
from torchcaps.data.random import Draws, stream_key
from torchcaps.data.sets.mnist import made_from_mnist
from torchcaps.errors import InputError


class MultiMNIST(FromDigits):
    """Two overlapping digits of different classes (Sabour, Frosst and Hinton 2017, section 6.1).

    Each digit is shifted by up to ``shift`` pixels in each direction on a canvas ``pad`` pixels
    larger on every side: 36x36 from 28x28. The first digit of sample i is digit i.

    With ``pairs=None`` an epoch has as many samples as there are digits, and every epoch draws new
    partners and shifts. With ``pairs=1000`` it is the paper's fixed set of 1,000 images per digit,
    60 million from MNIST. Sample 1000 i + k is digit i, at one position, with its k-th partner. The
    partners of a digit are all different and spread evenly over the other classes. Samples are
    computed from their index, not stored.

    Deviations: the released code shifts by up to 6 (``shift=6``), so that strokes may leave the
    canvas. It draws partners at random without replacement; ours come from index arithmetic. Both
    digits move, as in the text and in that code, so boxes of 20x20 share (1 - 80/27/20)^2 = 72.6 %
    of their area. The paper says 80 %; with one fixed digit it would be 79 %.

    Args:
        digits: the set that both digits come from.
        pairs: number of fixed partners of each digit; None draws new partners every epoch.
        shift: largest shift in pixels.
        pad: margin of the canvas around a digit's image, in pixels.
        merge: ``"clip"`` (the sum, at most 255) or ``"mean"`` (half of each).
        seed: seed of the fixed set.
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

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices, with both digits as targets."""
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
        """Return how many digits have another class than each of these."""
        return len(self.digits) - self._counts[self.digits.labels[first]]

    def _partner(self, first: Tensor, rank: Tensor) -> Tensor:
        """Return the rank-th digit, in order of class, whose class is not that of ``first``."""
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
        return Batch(self.merged(targets), labels, samples, targets)

    def merged(self, targets: Tensor) -> Tensor:
        """Return one image from the two digits ``[b 2 1 h w]``."""
        a, b = targets.unbind(1)
        if self.merge == "mean":
            return ((a.short() + b) // 2).byte()
        return a + torch.minimum(b, 255 - a)


def _even_step(count: int) -> int:
    """Return a step coprime to ``count`` near its golden section; its multiples spread evenly."""
    step = max(1, round(count * 0.6180339887))
    while gcd(step, max(count, 1)) != 1:
        step += 1
    return step


MULTIMNIST = made_from_mnist(
    MultiMNIST,
    name="multimnist",
    about="two overlapping digits, 36x36, with both as targets",
    size=36,
    mean=0.1391,
    std=0.3223,
)
