"""Grids and buffers of the agreement kernels."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.attend.backward import attend_backward_kernel, child_kernel, weight_kernel
from torchcaps.kernels.attend.forward import attend_kernel
from torchcaps.kernels.attend.normalizers import (
    normalizer_kernel,
    partial_mean_kernel,
    partial_normalizer_kernel,
)
from torchcaps.kernels.common.blocks import Blocks
from torchcaps.kernels.common.fold import fold
from torchcaps.kernels.common.geometry import MAX_BUFFER_BYTES, ROWS, Geometry, remembered
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.common.pack import Packed, pack_both
from torchcaps.kernels.common.partition import ceil_div, split_children

BLOCK = 1024
"""Children of a program that puts normalizers together."""


def attend_forward(
    layout: Layout, parents: Tensor, scale: float, leaky: bool
) -> tuple[Tensor, Tensor]:
    """Return poses ``[n j e]`` and couplings ``[n i j]``."""
    couplings = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.n_parents)
    grid, n_part = _grid(layout.geometry, 4)
    total = layout.parent_buffer(grid[1])
    if layout.n_windows:
        packed = layout.pack(parents)
        launch(
            attend_kernel,
            grid,
            layout.arguments(),
            packed,
            *_normalizers(layout, packed, scale, leaky),
            couplings,
            total,
            n_part,
            scale,
            leaky=leaky,
            **_cast_options(layout.geometry),
        )
    return layout.unpack(_summed(total), layout.poses.dtype), couplings


def attend_backward(
    layout: Layout,
    parents: Tensor,
    couplings: Tensor,
    d_sums: Tensor,
    d_couplings: Tensor | None,
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of the child poses ``[b h w t d]``, the weight and the parents."""
    if not layout.n_windows:
        return _no_gradients(layout, parents)
    d_logits = torch.empty_like(couplings)
    grid, n_part = _grid(layout.geometry, 4)
    summed = layout.parent_buffer(grid[1])
    before, behind = pack_both(layout, parents, d_sums)
    links = (couplings, d_couplings)
    launch(
        attend_backward_kernel,
        grid,
        layout.arguments(),
        behind.by_window,
        _means(layout, behind.by_window, *links, leaky) if layout.parent_tiles > 1 else None,
        *links,
        d_logits,
        summed,
        n_part,
        scale,
        leaky=leaky,
        **_cast_options(layout.geometry),
    )
    saved = (layout, before, behind, couplings, d_logits)
    d_poses, d_weight = _child_gradient(*saved), _weight_gradient(*saved)
    return d_poses, d_weight, layout.unpack(_summed(summed), parents.dtype)


def _no_gradients(layout: Layout, parents: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients where there are no windows: the children of an empty batch."""
    return (
        layout.poses.new_zeros(layout.pose_shape),
        layout.weight.new_zeros(layout.weight_shape),
        parents.new_zeros(parents.shape),
    )


@remembered
def _grid(geometry: Geometry, multiple: int) -> tuple[tuple[int, int, int], int]:
    """Return tiles of windows, parts of the children and tiles of parents; children of a part."""
    programs = geometry.tiles * geometry.parent_tiles
    n_part, parts = split_children(programs, geometry.n_children, multiple)
    return (geometry.tiles, parts, geometry.parent_tiles), n_part


@remembered
def _cast_options(geometry: Geometry) -> dict[str, Any]:
    """Return what kernels are compiled for that cast votes child by child."""
    return {
        "sizes": geometry.sizes(geometry.cast_pad, warps=geometry.warps),
        "stages": geometry.cast_stages(),
        "num_warps": geometry.warps,
    }


@remembered
def _child_options(geometry: Geometry) -> dict[str, Any]:
    """Return what the kernel of the child poses' gradient is compiled for."""
    q_pad, block = geometry.pads[1], geometry.block
    # weights, couplings and their gradients
    entries = geometry.columns * block * q_pad + 2 * _links(geometry, block)
    return {
        "sizes": geometry.sizes(q_pad, precision=geometry.long_sum_precision),
        "block": block,
        "stages": geometry.stages(entries),
        "num_warps": geometry.warps,
    }


@remembered
def _weight_options(geometry: Geometry) -> dict[str, Any]:
    """Return what the kernel of the weight's gradient is compiled for."""
    block = geometry.block
    # parents, couplings and gradients of both; one copy less than the number of stages
    entries = 2 * (ROWS * geometry.columns + _links(geometry, block))
    n_buffers = 2 * MAX_BUFFER_BYTES // (entries * geometry.dtype.itemsize)
    return {
        "sizes": geometry.sizes(geometry.pads[1]),
        "block": block,
        "num_warps": geometry.warps,
        "num_stages": max(1, min(3, 1 + n_buffers)),
    }


def _links(geometry: Geometry, block: int) -> int:
    """Return how many couplings a block of children has with a tile of windows and parents."""
    return block * geometry.j_tile * (ROWS // geometry.pads[0])


def _normalizers(
    layout: Layout, parents: Tensor, scale: float, leaky: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the largest logits ``[n i]`` and the norms, or None for parents of one tile."""
    if layout.parent_tiles == 1:
        return None, None
    grid, n_part = _grid(layout.geometry, 4)
    size = layout.n_windows * layout.n_children
    partial = layout.poses.new_empty((layout.parent_tiles, size, 2), dtype=torch.float32)
    launch(
        partial_normalizer_kernel,
        grid,
        layout.arguments(),
        parents,
        partial,
        n_part,
        scale,
        **_cast_options(layout.geometry),
    )
    tops, norms = partial.new_empty(2, size)
    launch(
        normalizer_kernel,
        (ceil_div(size, BLOCK),),
        partial,
        tops,
        norms,
        size,
        layout.parent_tiles,
        leaky=leaky,
        block=BLOCK,
    )
    return tops, norms


def _means(
    layout: Layout, d_sums: Tensor, couplings: Tensor, d_couplings: Tensor | None, leaky: bool
) -> Tensor:
    """Return the means of the couplings' gradients, ``[n i]``, weighted by couplings."""
    grid, n_part = _grid(layout.geometry, 4)
    shape = (layout.parent_tiles, layout.n_windows, layout.n_children, 2)
    partial = layout.poses.new_empty(shape, dtype=torch.float32)
    launch(
        partial_mean_kernel,
        grid,
        layout.arguments(),
        d_sums,
        couplings,
        d_couplings,
        partial,
        n_part,
        **_cast_options(layout.geometry),
    )
    products, totals = partial.sum(dim=0).unbind(-1)
    # rounded couplings do not sum to one
    return products.contiguous() if leaky else products / totals.clamp_min(0.5)


def _summed(parts: Tensor) -> Tensor:
    return parts[0] if parts.shape[0] == 1 else parts.sum(dim=0)


def _child_gradient(
    layout: Layout, parents: Packed, d_sums: Packed, couplings: Tensor, d_logits: Tensor
) -> Tensor:
    """Return the gradient of the child poses ``[b h w t d]``."""
    grid, n_part = _grid(layout.geometry, layout.block)
    unfolded = layout.child_buffer(layout.parent_tiles)
    launch(
        child_kernel,
        grid,
        layout.arguments(),
        parents.by_window,
        d_sums.by_window,
        couplings,
        d_logits,
        unfolded,
        n_part,
        **_child_options(layout.geometry),
    )
    return fold(layout, unfolded)


def _weight_gradient(
    layout: Layout, parents: Packed, d_sums: Packed, couplings: Tensor, d_logits: Tensor
) -> Tensor:
    """Return the gradient of the weight ``[t j q r]``, summed over ranges of windows."""
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    launch(
        weight_kernel,
        (blocks.count, blocks.parts, layout.parent_tiles),
        layout.arguments(compiled=True),
        parents.by_tile,
        d_sums.by_tile,
        couplings,
        d_logits,
        d_weight,
        blocks.tiles,
        **_weight_options(layout.geometry),
    )
    return blocks.total(d_weight)
