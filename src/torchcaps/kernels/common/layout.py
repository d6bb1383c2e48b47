"""Memory layouts of votes: the tensors of one call, packed as kernels read them."""

from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.kernels.common.arguments import VoteArguments
from torchcaps.kernels.common.geometry import ROWS, Geometry, geometry_of
from torchcaps.kernels.common.partition import ceil_div
from torchcaps.kernels.gate import is_interpreted


class Layout(Geometry):
    """The votes of one call: tensors, their geometry, and packing of tensors for the kernels.

    ``packed`` is :attr:`packed_weight` of the same weight, where it was made before.
    """

    geometry: Geometry
    poses: Tensor
    weight: Tensor
    bias: Tensor | None

    def __init__(
        self,
        poses: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        kernel: tuple[int, int],
        stride: tuple[int, int],
        padding: tuple[int, int],
        *,
        packed: Tensor | None = None,
    ) -> None:
        geometry = geometry_of(
            poses.shape,
            poses.stride(),
            weight.shape,
            poses.dtype,
            bias is not None,
            kernel,
            stride,
            padding,
            is_interpreted(),
        )
        # frozen attributes, and the sizes that were computed before
        self.__dict__.update(geometry.__dict__)
        self.__dict__.update(geometry=geometry, poses=poses, weight=weight, bias=bias)
        if packed is not None:
            self.__dict__["packed_weight"] = packed

    def arguments(self, *, compiled: bool = False) -> VoteArguments:
        """Return what kernels read; ``compiled`` makes the shape of the grid a constant."""
        return VoteArguments(
            self.poses,
            self.packed_weight,
            self.bias,
            *(self.constant_grid if compiled else self.numbers),
        )

    @cached_property
    def packed_weight(self) -> Tensor:
        """Weights as :class:`VoteArguments` has them, with zeros in the padding, as a copy."""
        _, _, r_pad, j_pad = self.pads
        t, j, q, r = self.weight.shape
        if self.parent_tiles > 1:
            padded = F.pad(self.weight, (0, r_pad - r, 0, 0, 0, j_pad - j))
            by_tile = padded.reshape(t, self.parent_tiles, self.j_tile, q, r_pad)
            return copied(by_tile.permute(0, 1, 3, 4, 2), self.weight.dtype)
        packed = self.weight.permute(0, 2, 3, 1)
        if (r, j) != (r_pad, j_pad):
            padded = self.weight.new_zeros(t, q, r_pad, j_pad)
            padded[:, :, :r, :j] = packed
            return padded
        return copied(packed, self.weight.dtype)

    def pack(self, parents: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return parents ``[n j (p r)]`` as ``[n p r j]``, by default in the poses' precision."""
        n, j, e = parents.shape
        packed = parents.view(n, j, self.rows, e // self.rows).permute(0, 2, 3, 1)
        return copied(packed, dtype or self.poses.dtype)

    def unpack(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        """Return ``[n p r j]`` as parents ``[n j (p r)]``."""
        return copied(packed.permute(0, 3, 1, 2), dtype).flatten(2)

    def by_tile(self, packed: Tensor) -> Tensor:
        """Return parents ``[n p r j]`` as ``[tile r j (w p)]``, with zeros after the last row."""
        n, p, r, j = packed.shape
        p_pad = self.pads[0]
        per_tile = ROWS // p_pad
        tiles = ceil_div(n, per_tile)
        if (n, p) == (tiles * per_tile, p_pad):
            return packed.view(tiles, per_tile, p, r, j).permute(0, 3, 4, 1, 2).contiguous()
        out = packed.new_zeros(tiles, r, j, per_tile, p_pad)
        full = n // per_tile
        full_tiles = packed[: full * per_tile].view(full, per_tile, p, r, j)
        out[:full, ..., :p] = full_tiles.permute(0, 3, 4, 1, 2)
        if full < tiles:
            rest = packed[full * per_tile :]
            out[full, :, :, : len(rest), :p] = rest.permute(2, 3, 0, 1)
        return out

    def parent_buffer(self, parts: int) -> Tensor:
        """Return room for sums over parts of the children, ``[parts n p r j]`` in float32."""
        return self.poses.new_empty((parts, *self.packed_parents), dtype=torch.float32)

    def child_buffer(self, parts: int = 1) -> Tensor:
        """Return room for gradients of child poses by window, ``[parts n i d]``.

        Several parts, from which :func:`fold` takes the sum, are in float32.
        """
        shape = (parts, self.n_windows, self.n_children, self.poses.shape[4])
        return self.poses.new_empty(shape, dtype=self.poses.dtype if parts == 1 else torch.float32)


def copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy in another precision, made in one pass."""
    return tensor.new_empty(tensor.shape, dtype=dtype).copy_(tensor)
