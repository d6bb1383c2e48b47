"""The split of the weights' gradient over programs."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.kernels.common.layout import Layout, copied
from torchcaps.kernels.common.partition import ceil_div

TARGET_PROGRAMS = 528
"""Programs that fill a large GPU: four on each of 132 multiprocessors."""


@dataclass(frozen=True)
class Blocks:
    """The split of the weights' gradient into blocks of children and parts of the tiles."""

    layout: Layout

    @property
    def size(self) -> int:
        """Children of a block: a matrix product needs 16 columns."""
        return max(1, 16 // self.layout.pads[1])

    @property
    def count(self) -> int:
        """Blocks of children."""
        return ceil_div(self.layout.n_children, self.size)

    @property
    def tiles(self) -> int:
        """Tiles of windows of one program."""
        tiles = self.layout.tiles
        programs = self.count * self.layout.parent_tiles
        return ceil_div(tiles, max(1, min(TARGET_PROGRAMS // programs, tiles)))

    @property
    def parts(self) -> int:
        """Programs of one block."""
        tiles = self.layout.tiles
        return ceil_div(tiles, self.tiles) if tiles else 1

    def buffer(self) -> Tensor:
        """Return room for the sums of every part, ``[part i tile q r j]`` by tile of parents."""
        layout = self.layout
        sizes = (layout.weight.shape[2], layout.pads[2], layout.j_tile)
        shape = (self.parts, layout.n_children, layout.parent_tiles, *sizes)
        return layout.poses.new_zeros(shape, dtype=torch.float32)

    def total(self, buffer: Tensor) -> Tensor:
        """Return the weight's gradient ``[t j q r]``, summed over parts and sharing children."""
        t, j, _, r = self.layout.weight.shape
        total = buffer.view(-1, t, *buffer.shape[2:]).sum(dim=0)[..., :r, :]
        total = total.permute(0, 1, 4, 2, 3).flatten(1, 2)[:, :j]
        return copied(total, self.layout.weight.dtype)
