"""The split of the weights' gradient over programs."""

import torch
from torch import Tensor

from torchcaps.kernels.common.geometry import Geometry, remembered
from torchcaps.kernels.common.layout import Layout, copied
from torchcaps.kernels.common.partition import ceil_div

TARGET_PROGRAMS = 528
"""Programs that fill a large GPU: four on each of 132 multiprocessors."""


@remembered
def _split(geometry: Geometry) -> tuple[int, int, int]:
    """Return the number of blocks, tiles of windows of a program, and parts."""
    count = ceil_div(geometry.n_children, geometry.block)
    programs = count * geometry.parent_tiles
    tiles = ceil_div(geometry.tiles, max(1, min(TARGET_PROGRAMS // programs, geometry.tiles)))
    parts = ceil_div(geometry.tiles, tiles) if geometry.tiles else 1
    return count, tiles, parts


class Blocks:
    """The split of the weights' gradient into blocks of children and parts of the tiles.

    Attributes:
        size: children of a block.
        count: blocks of children.
        tiles: tiles of windows of one program.
        parts: programs of one block.
    """

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        self.size = layout.block
        self.count, self.tiles, self.parts = _split(layout.geometry)

    def buffer(self) -> Tensor:
        """Return room for the sums of every part, ``[part i tile q r j]`` by tile of parents.

        Kernels write all of it; without windows none runs.
        """
        layout = self.layout
        sizes = (layout.weight.shape[2], layout.pads[2], layout.j_tile)
        shape = (self.parts, layout.n_children, layout.parent_tiles, *sizes)
        new = layout.poses.new_empty if layout.n_windows else layout.poses.new_zeros
        return new(shape, dtype=torch.float32)

    def total(self, buffer: Tensor) -> Tensor:
        """Return the weight's gradient ``[t j q r]``, summed over parts and sharing children."""
        t, j, _, r = self.layout.weight.shape
        total = buffer.view(-1, t, *buffer.shape[2:]).sum(dim=0).narrow(3, 0, r)
        total = total.permute(0, 1, 4, 2, 3).flatten(1, 2).narrow(1, 0, j)
        return copied(total, self.layout.weight.dtype)
