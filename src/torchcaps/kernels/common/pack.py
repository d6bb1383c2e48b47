"""Copies of parents in both orders that gradients read, made by one kernel."""

from typing import NamedTuple

import triton
import triton.language as tl
from torch import Tensor

from torchcaps.kernels.common.geometry import ROWS
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.common.partition import ceil_div

BLOCK = 1024


class Packed(NamedTuple):
    """Parents as ``[n p r j]``, and as ``[tile r j (w p)]`` with zeros after the last row."""

    by_window: Tensor
    by_tile: Tensor


class Strides(NamedTuple):
    """The strides of parents ``[n j e]``."""

    n: int
    j: int
    e: int


@triton.jit
def _copy(
    source, strides, by_window, by_tile, at, n_windows, size,
    p_size: tl.constexpr, p_pad: tl.constexpr, r_size: tl.constexpr, n_parents: tl.constexpr,
    windows: tl.constexpr,
):  # fmt: skip
    """Copy the entries at the flat indices ``at`` of ``[n j p r]``, where p is padded."""
    mask = at < size
    r = at % r_size
    p = at // r_size % p_pad
    j = at // (r_size * p_pad) % n_parents
    n = at // (r_size * p_pad * n_parents)
    inside = mask & (n < n_windows) & (p < p_size)
    read = source + n * strides.n + j * strides.j + (p * r_size + r) * strides.e
    x = tl.load(read, mask=inside, other=0.0).to(by_window.dtype.element_ty)
    row = (n * p_size + p) * r_size + r
    tl.store(by_window + row * n_parents + j, x, mask=inside)
    column = (n // windows * r_size + r) * n_parents + j
    tl.store(by_tile + (column * windows + n % windows) * p_pad + p, x, mask=mask)


@triton.jit
def pack_kernel(
    first, first_strides, first_packed, second, second_strides, second_packed, n_windows, size,
    p_size: tl.constexpr, p_pad: tl.constexpr, r_size: tl.constexpr, n_parents: tl.constexpr,
    windows: tl.constexpr, block: tl.constexpr,
):  # fmt: skip
    """Copy two tensors of parents, each into both orders."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    if tl.program_id(1) == 0:
        _copy(first, first_strides, first_packed.by_window, first_packed.by_tile, at, n_windows,
              size, p_size, p_pad, r_size, n_parents, windows)  # fmt: skip
    else:
        _copy(second, second_strides, second_packed.by_window, second_packed.by_tile, at, n_windows,
              size, p_size, p_pad, r_size, n_parents, windows)  # fmt: skip


def pack_both(layout: Layout, first: Tensor, second: Tensor) -> tuple[Packed, Packed]:
    """Return two tensors of parents ``[n j e]`` in the precision of the child poses."""
    p_pad, r_size = layout.pads[0], layout.weight_shape[3]
    windows = ROWS // p_pad
    by_tile = (layout.tiles, r_size, layout.n_parents, windows, p_pad)
    new = layout.poses.new_empty
    packed = [Packed(new(layout.packed_parents), new(by_tile)) for _ in range(2)]
    size = layout.tiles * ROWS * r_size * layout.n_parents
    launch(
        pack_kernel,
        (ceil_div(size, BLOCK), 2),
        first,
        Strides(*first.stride()),
        packed[0],
        second,
        Strides(*second.stride()),
        packed[1],
        layout.n_windows,
        size,
        p_size=layout.rows,
        p_pad=p_pad,
        r_size=r_size,
        n_parents=layout.n_parents,
        windows=windows,
        block=BLOCK,
    )
    return packed[0], packed[1]
