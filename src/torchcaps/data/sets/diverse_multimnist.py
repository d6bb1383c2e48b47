"""DiverseMultiMNIST: one digit or two overlapping ones (Tsai et al. 2020)."""

import torch
from torch import Tensor

from torchcaps.checks import check_share
from torchcaps.data.dataset import Batch, ImageSet
from torchcaps.data.random import Draws
from torchcaps.data.sets.mnist import made_from_mnist
from torchcaps.data.sets.multimnist import MultiMNIST


class DiverseMultiMNIST(MultiMNIST):
    """One digit with probability 1/6, else two that overlap (Tsai et al. 2020, appendix B).

    A single digit has second label -1 and a black second target. `Batch.multi_hot` turns the labels
    into the targets of a sigmoid head. Otherwise as `MultiMNIST` with ``pairs=None``.

    Deviations: the paper follows Sabour and clips the sum; public code averages the two digits,
    which is ``merge="mean"``.

    Args:
        digits: the set that the digits come from.
        single: probability of a single digit.
        shift: largest shift in pixels.
        pad: margin of the canvas around a digit's image, in pixels.
        merge: ``"clip"`` or ``"mean"``; a single digit keeps its brightness.
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

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices, with the digits as targets."""
        single = draws.uniform()[0] < self.single
        batch = super().draw(samples, draws)
        assert batch.targets is not None
        keep = torch.stack([torch.ones_like(single), ~single], 1)
        targets = batch.targets * keep[:, :, None, None, None]
        images = torch.where(single[:, None, None, None], targets[:, 0], self.merged(targets))
        return batch._replace(
            images=images, labels=torch.where(keep, batch.labels, -1), targets=targets
        )


DIVERSE_MULTIMNIST = made_from_mnist(
    DiverseMultiMNIST,
    name="diverse_multimnist",
    about="one digit (1 in 6) or two overlapping ones, 36x36",
    size=36,
    mean=0.1292,
    std=0.3121,
)
