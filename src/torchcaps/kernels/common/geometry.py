"""Sizes of votes, tiles and launches, computed once for tensors of the same shapes.

A program of a kernel owns a tile. Its 64 rows (w p) are the rows p of the poses of windows w. Its
columns (r j) are the columns r of the poses of parents j. Parents that need more columns than a
tile has take several tiles of ``j_tile`` parents each. Sizes ending in ``_pad`` are powers of two,
except ``j_pad``, which is a multiple of ``j_tile``.
"""

import functools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch

from torchcaps.kernels.common.arguments import VoteSizes
from torchcaps.kernels.common.partition import ceil_div
from torchcaps.kernels.gate import MAX_TILE_COLUMNS, max_columns, next_power

ROWS = 64
"""Rows of a tile."""

MAX_BUFFER_BYTES = 96 * 1024
"""Shared memory for loads that a program issues ahead of use."""

remembered = functools.lru_cache(maxsize=1024)
"""Decorator of functions of a geometry: their results are kept for later calls."""


@dataclass(frozen=True, eq=False)
class Geometry:
    """Shapes of votes and of the windows that cut them, and all that follows from these.

    Get one from :func:`geometry_of`, which returns the same object for the same shapes.
    """

    pose_shape: tuple[int, ...]
    pose_strides: tuple[int, ...]
    weight_shape: tuple[int, ...]
    dtype: torch.dtype
    biased: bool
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]
    interpreted: bool

    def __post_init__(self) -> None:
        """Compute all sizes, which every :class:`Layout` of these shapes copies."""
        for name, value in vars(Geometry).items():
            if isinstance(value, cached_property):
                getattr(self, name)

    @cached_property
    def n_types(self) -> int:
        """Child types at one position of the grid."""
        return self.pose_shape[3]

    @cached_property
    def n_children(self) -> int:
        """Children of one window."""
        return self.kernel[0] * self.kernel[1] * self.n_types

    @cached_property
    def n_parents(self) -> int:
        """Parents of one window."""
        return self.weight_shape[1]

    @cached_property
    def size_out(self) -> tuple[int, int]:
        """Rows and columns of windows."""
        sides = zip(self.pose_shape[1:3], self.kernel, self.stride, self.padding, strict=True)
        height, width = ((n + 2 * p - k) // s + 1 for n, k, s, p in sides)
        return height, width

    @cached_property
    def n_windows(self) -> int:
        """Windows of all images."""
        height, width = self.size_out
        return self.pose_shape[0] * height * width

    @cached_property
    def rows(self) -> int:
        """Rows p of a pose."""
        return self.pose_shape[4] // self.weight_shape[2]

    @cached_property
    def d_parent(self) -> int:
        """Numbers (p r) of a parent's pose."""
        return self.rows * self.weight_shape[3]

    @cached_property
    def packed_parents(self) -> tuple[int, int, int, int]:
        """Shape ``[n p r j]`` of packed parents."""
        return self.n_windows, self.rows, self.weight_shape[3], self.n_parents

    @cached_property
    def pads(self) -> tuple[int, int, int, int]:
        """Padded p, q, r and j; a matrix product needs 16 rows and columns."""
        _, _, q, r = self.weight_shape
        j_pad = self.parent_tiles * self.j_tile
        return next_power(self.rows), max(4, next_power(q)), next_power(r), j_pad

    @cached_property
    def j_tile(self) -> int:
        """Parents of a tile: all, or, where these need several, what registers hold."""
        return _parents_of_a_tile(self.n_parents, self.weight_shape[3], self.dtype)

    @cached_property
    def parent_tiles(self) -> int:
        """Tiles that hold the parents of a window."""
        return ceil_div(self.n_parents, self.j_tile)

    @cached_property
    def columns(self) -> int:
        """Columns (r j) of a tile."""
        return self.pads[2] * self.j_tile

    @cached_property
    def block(self) -> int:
        """Children of a block in gradients: a matrix product needs 16 columns."""
        return max(1, 16 // self.pads[1])

    @cached_property
    def tiles(self) -> int:
        """Tiles that hold all windows."""
        return ceil_div(self.n_windows, ROWS // self.pads[0])

    @cached_property
    def warps(self) -> int:
        """Warps of a program, such that a thread holds 64 numbers of a tile."""
        return max(4, self.columns // 32)

    def stages(self, entries: int, at_most: int = 4) -> int:
        """Return how many loads of so many entries fit the buffer."""
        size = entries * self.dtype.itemsize
        return max(1, min(at_most, MAX_BUFFER_BYTES // size))

    def cast_stages(self) -> int:
        """Return how many children ahead a kernel reads that casts votes child by child."""
        size = self.cast_pad * (ROWS + self.columns) * self.dtype.itemsize
        size += ROWS * self.columns * 4 if self.biased else 0
        return max(1, min(4, MAX_BUFFER_BYTES // size))

    @cached_property
    def cast_pad(self) -> int:
        """Padded q for a matrix product of one child."""
        return max(16, self.pads[1])

    @cached_property
    def operand(self) -> Any:
        """Precision of matrix products; the interpreter cannot multiply in bfloat16."""
        import triton.language as tl

        low = self.dtype == torch.bfloat16 and not self.interpreted
        return tl.bfloat16 if low else tl.float32

    @cached_property
    def precision(self) -> str:
        """Return the precision of float32 products: three products of 10 bits."""
        return "tf32x3"

    @cached_property
    def long_sum_precision(self) -> str:
        """Return the precision for sums over many columns, where truncation would show."""
        return "ieee" if self.dtype == torch.float32 else self.precision

    @cached_property
    def numbers(self) -> tuple[int, ...]:
        """The numbers of :class:`VoteArguments`, which follow its tensors."""
        return (
            self.n_windows,
            self.n_children,
            *self.pose_strides[:3],
            *(step + 1 for step in self.stride),
            *self.padding,
            *self.pose_shape[1:3],
            *self.size_out,
        )

    @cached_property
    def constant_grid(self) -> tuple[Any, ...]:
        """:attr:`numbers` with the shape of the grid of windows compiled in."""
        import triton.language as tl

        return *self.numbers[:-2], *map(tl.constexpr, self.numbers[-2:])

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
        t, j, q, r = self.weight_shape
        p_pad, _, r_pad, j_pad = self.pads
        j_tile = j_tile or self.j_tile
        j_in = j_in or j_tile // min(max(1, warps // 4), j_tile)
        groups, inner = j_tile // j_in, 16 // p_pad
        return VoteSizes(
            stride_t=self.pose_strides[3],
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


def _parents_of_a_tile(n_parents: int, r_size: int, dtype: torch.dtype) -> int:
    r_pad = next_power(r_size)
    j_pad = max(next_power(n_parents), 16 // r_pad)
    if r_pad * j_pad <= max_columns(dtype):
        return j_pad
    columns = MAX_TILE_COLUMNS if dtype == torch.bfloat16 else MAX_TILE_COLUMNS // 2
    return max(1, columns // r_pad)


def packed_weight_shape(weight: Sequence[int], dtype: torch.dtype) -> tuple[int, ...]:
    """Return the shape of packed weights: ``[t q r j]``, or ``[t tile q r j]`` by tile."""
    t, j, q, r = map(int, weight)
    j_tile = _parents_of_a_tile(j, r, dtype)
    tiles = ceil_div(j, j_tile)
    return (t, q, next_power(r), j_tile) if tiles == 1 else (t, tiles, q, next_power(r), j_tile)


geometry_of = remembered(Geometry)
"""Return the geometry of these shapes, always the same object."""
