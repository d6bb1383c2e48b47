"""Shapes, tiles and memory layouts of votes, from which the launch code sets up its kernels.

A program of a kernel owns a tile. Its 64 rows (w p) are the rows p of the poses of windows w. Its
columns (r j) are the columns r of the poses of parents j. Parents that need more columns than a
tile has take several tiles of ``j_tile`` parents each. Sizes ending in ``_pad`` are powers of two,
except ``j_pad``, which is a multiple of ``j_tile``.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from torchcaps.kernels.common.arguments import VoteArguments, VoteSizes
from torchcaps.kernels.common.partition import ceil_div
from torchcaps.kernels.gate import MAX_TILE_COLUMNS, is_interpreted, max_columns, next_power

ROWS = 64
"""Rows of a tile."""

MAX_BUFFER_BYTES = 96 * 1024
"""Shared memory for loads that a program issues ahead of use."""


@dataclass(frozen=True)
class Layout:
    """The votes of one call: tensors, sizes, tiles, and packing of tensors for the kernels."""

    poses: Tensor
    weight: Tensor
    bias: Tensor | None
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def n_types(self) -> int:
        """Child types at one position of the grid."""
        return self.poses.shape[3]

    @property
    def n_children(self) -> int:
        """Children of one window."""
        return self.kernel[0] * self.kernel[1] * self.n_types

    @property
    def n_parents(self) -> int:
        """Parents of one window."""
        return self.weight.shape[1]

    @cached_property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        sides = zip(self.poses.shape[1:3], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((n + 2 * p - k) // s + 1 for n, k, s, p in sides)
        return height, width

    @property
    def n_windows(self) -> int:
        """Windows of all images."""
        height, width = self.size_out
        return self.poses.shape[0] * height * width

    @property
    def rows(self) -> int:
        """Rows p of a pose."""
        return self.poses.shape[4] // self.weight.shape[2]

    @property
    def d_parent(self) -> int:
        """Numbers (p r) of a parent's pose."""
        return self.rows * self.weight.shape[3]

    @cached_property
    def pads(self) -> tuple[int, int, int, int]:
        """Padded p, q, r and j; a matrix product needs 16 rows and columns."""
        _, _, q, r = self.weight.shape
        j_pad = self.parent_tiles * self.j_tile
        return next_power(self.rows), max(4, next_power(q)), next_power(r), j_pad

    @cached_property
    def j_tile(self) -> int:
        """Parents of a tile: all, or, where these need several, what registers hold."""
        r_pad = next_power(self.weight.shape[3])
        j_pad = max(next_power(self.n_parents), 16 // r_pad)
        if r_pad * j_pad <= max_columns(self.poses.dtype):
            return j_pad
        columns = MAX_TILE_COLUMNS if self.poses.dtype == torch.bfloat16 else MAX_TILE_COLUMNS // 2
        return max(1, columns // r_pad)

    @property
    def parent_tiles(self) -> int:
        """Tiles that hold the parents of a window."""
        return ceil_div(self.n_parents, self.j_tile)

    @property
    def columns(self) -> int:
        """Columns (r j) of a tile."""
        return self.pads[2] * self.j_tile

    @property
    def tiles(self) -> int:
        """Tiles that hold all windows."""
        return ceil_div(self.n_windows, ROWS // self.pads[0])

    @property
    def warps(self) -> int:
        """Warps of a program, such that a thread holds 64 numbers of a tile."""
        return max(4, self.columns // 32)

    def stages(self, entries: int, at_most: int = 4) -> int:
        """Return how many loads of so many entries fit the buffer."""
        size = entries * self.poses.element_size()
        return max(1, min(at_most, MAX_BUFFER_BYTES // size))

    def cast_stages(self) -> int:
        """Return how many children ahead a kernel reads that casts votes child by child."""
        size = self.cast_pad * (ROWS + self.columns) * self.poses.element_size()
        size += 0 if self.bias is None else ROWS * self.columns * 4
        return max(1, min(4, MAX_BUFFER_BYTES // size))

    @property
    def cast_pad(self) -> int:
        """Padded q for a matrix product of one child."""
        return max(16, self.pads[1])

    @property
    def operand(self) -> Any:
        """Precision of matrix products; the interpreter cannot multiply in bfloat16."""
        import triton.language as tl

        low = self.poses.dtype == torch.bfloat16 and not is_interpreted()
        return tl.bfloat16 if low else tl.float32

    @property
    def precision(self) -> str:
        """Return the precision of float32 products: three products of 10 bits."""
        return "tf32x3"

    @property
    def long_sum_precision(self) -> str:
        """Return the precision for sums over many columns, where truncation would show."""
        return "ieee" if self.poses.dtype == torch.float32 else self.precision

    def arguments(self, *, compiled: bool = False) -> VoteArguments:
        """Return what kernels read; ``compiled`` makes the shape of the grid a constant."""
        height_out, width_out = self.size_out
        if compiled:
            import triton.language as tl

            height_out, width_out = tl.constexpr(height_out), tl.constexpr(width_out)
        stride_b, stride_h, stride_w = self.poses.stride()[:3]
        return VoteArguments(
            poses=self.poses,
            weight=self.packed_weight,
            bias=self.bias,
            n_windows=self.n_windows,
            n_children=self.n_children,
            stride_b=stride_b,
            stride_h=stride_h,
            stride_w=stride_w,
            step_h_plus_1=self.stride[0] + 1,
            step_w_plus_1=self.stride[1] + 1,
            pad_h=self.padding[0],
            pad_w=self.padding[1],
            height=self.poses.shape[1],
            width=self.poses.shape[2],
            height_out=height_out,
            width_out=width_out,
        )

    def sizes(
        self,
        q_pad: int,
        *,
        warps: int = 4,
        j_tile: int | None = None,
        j_in: int | None = None,
        precision: str | None = None,
    ) -> VoteSizes:
        """Return the sizes to compile in.

        Columns are (j' r j_in) with as many j' as there are groups of 4 warps, so that sums over
        the pose of a parent stay inside a thread but for one shuffle.

        Args:
            q_pad: padded q of the matrix product.
            warps: warps of the program, which set ``j_in`` if that is None.
            j_tile: parents of one program; None is the layout's.
            j_in: parents that lie side by side.
            precision: how float32 is multiplied; None is the layout's.
        """
        t, j, q, r = self.weight.shape
        p_pad, _, r_pad, j_pad = self.pads
        j_tile = j_tile or self.j_tile
        j_in = j_in or j_tile // min(max(1, warps // 4), j_tile)
        groups, inner = j_tile // j_in, 16 // p_pad
        return VoteSizes(
            stride_t=self.poses.stride(3),
            width_k=self.kernel[1],
            n_types=self.n_types,
            padded=any(self.padding),
            n_weights=t,
            n_parents=j,
            p_size=self.rows,
            q_size=q,
            r_size=r,
            p_pad=p_pad,
            q_pad=q_pad,
            r_pad=r_pad,
            j_pad=j_pad,
            j_tile=j_tile,
            j_in=j_in,
            tiled=self.parent_tiles > 1,
            groups=groups,
            windows=ROWS // p_pad,
            inner=inner,
            columns=r_pad * j_tile,
            tile=(4, p_pad, inner, groups, r_pad, j_in),
            link_tile=(4, inner, groups, j_in),
            operand=self.operand,
            precision=precision or self.precision,
        )

    @cached_property
    def packed_weight(self) -> Tensor:
        """Weights as :class:`VoteArguments` has them, with zeros in the padding."""
        _, _, r_pad, j_pad = self.pads
        t, j, q, r = self.weight.shape
        if self.parent_tiles > 1:
            padded = F.pad(self.weight, (0, r_pad - r, 0, 0, 0, j_pad - j))
            by_tile = padded.reshape(t, self.parent_tiles, self.j_tile, q, r_pad)
            return by_tile.permute(0, 1, 3, 4, 2).contiguous()
        packed = self.weight.permute(0, 2, 3, 1)
        if (r, j) != (r_pad, j_pad):
            padded = self.weight.new_zeros(t, q, r_pad, j_pad)
            padded[:, :, :r, :j] = packed
            return padded
        return packed.contiguous()

    def pack(self, parents: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Return parents ``[n j (p r)]`` as ``[n p r j]``, by default in the poses' precision."""
        packed = parents.unflatten(2, (self.rows, -1)).permute(0, 2, 3, 1)
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
        shape = (parts, self.n_windows, self.rows, self.weight.shape[3], self.n_parents)
        return self.poses.new_empty(shape, dtype=torch.float32)

    def child_buffer(self, parts: int = 1) -> Tensor:
        """Return room for gradients of child poses by window, ``[parts n i d]``.

        Several parts, from which :func:`fold` takes the sum, are in float32.
        """
        shape = (parts, self.n_windows, self.n_children, self.poses.shape[4])
        return self.poses.new_empty(shape, dtype=self.poses.dtype if parts == 1 else torch.float32)


def copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """Return a contiguous copy in another precision, made in one pass."""
    return tensor.new_empty(tensor.shape, dtype=dtype).copy_(tensor)
