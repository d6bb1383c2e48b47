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
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import MAX_BUFFER_BYTES, ROWS, Layout
from torchcaps.kernels.common.partition import ceil_div, split_children

BLOCK = 1024
"""Children of a program that puts normalizers together."""


def attend_forward(
    layout: Layout, parents: Tensor, scale: float, leaky: bool
) -> tuple[Tensor, Tensor]:
    """Return poses ``[n j e]`` and couplings ``[n i j]``."""
    couplings = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.n_parents)
    grid, n_part = _grid(layout, 4)
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
            **_cast_options(layout),
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
    d_logits = torch.empty_like(couplings)
    packed_d_sums = layout.pack(d_sums)
    grid, n_part = _grid(layout, 4)
    d_parents = layout.parent_buffer(grid[1])
    if layout.n_windows:
        behind = (couplings, d_couplings)
        launch(
            attend_backward_kernel,
            grid,
            layout.arguments(),
            packed_d_sums,
            _means(layout, packed_d_sums, *behind, leaky) if layout.parent_tiles > 1 else None,
            *behind,
            d_logits,
            d_parents,
            n_part,
            scale,
            leaky=leaky,
            **_cast_options(layout),
        )
    saved = (layout, layout.pack(parents), packed_d_sums, couplings, d_logits)
    d_poses, d_weight = _child_gradient(*saved), _weight_gradient(*saved)
    return d_poses, d_weight, layout.unpack(_summed(d_parents), parents.dtype)


def _grid(layout: Layout, multiple: int) -> tuple[tuple[int, int, int], int]:
    """Return tiles of windows, parts of the children and tiles of parents; children of a part."""
    programs = layout.tiles * layout.parent_tiles
    n_part, parts = split_children(programs, layout.n_children, multiple)
    return (layout.tiles, parts, layout.parent_tiles), n_part


def _cast_options(layout: Layout) -> dict[str, Any]:
    """Return what kernels are compiled for that cast votes child by child."""
    return {
        "sizes": layout.sizes(layout.cast_pad, warps=layout.warps),
        "stages": layout.cast_stages(),
        "num_warps": layout.warps,
    }


def _normalizers(
    layout: Layout, parents: Tensor, scale: float, leaky: bool
) -> tuple[Tensor | None, Tensor | None]:
    """Return the largest logits ``[n i]`` and the norms, or None for parents of one tile."""
    if layout.parent_tiles == 1:
        return None, None
    grid, n_part = _grid(layout, 4)
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
        **_cast_options(layout),
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
    grid, n_part = _grid(layout, 4)
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
        **_cast_options(layout),
    )
    products, totals = partial.sum(dim=0).unbind(-1)
    # rounded couplings do not sum to one
    return products.contiguous() if leaky else products / totals.clamp_min(0.5)


def _summed(parts: Tensor) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(dim=0)


def _child_gradient(
    layout: Layout, parents: Tensor, d_sums: Tensor, couplings: Tensor, d_logits: Tensor
) -> Tensor:
    """Return the gradient of the child poses ``[b h w t d]``."""
    q_pad = layout.pads[1]
    block = max(1, 16 // q_pad)
    grid, n_part = _grid(layout, block)
    unfolded = layout.child_buffer(layout.parent_tiles)
    if layout.n_windows:
        launch(
            child_kernel,
            grid,
            layout.arguments(),
            parents,
            d_sums,
            couplings,
            d_logits,
            unfolded,
            n_part,
            sizes=layout.sizes(q_pad, precision=layout.long_sum_precision),
            block=block,
            # weights, couplings and their gradients
            stages=layout.stages(layout.columns * block * q_pad + 2 * _links(layout, block)),
            num_warps=layout.warps,
        )
    return fold(layout, unfolded)


def _weight_gradient(
    layout: Layout, parents: Tensor, d_sums: Tensor, couplings: Tensor, d_logits: Tensor
) -> Tensor:
    """Return the gradient of the weight ``[t j q r]``, summed over ranges of windows."""
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    # parents, couplings and gradients of both; one copy less than the number of stages
    size = 2 * (ROWS * layout.columns + _links(layout, blocks.size)) * layout.poses.element_size()
    if layout.n_windows:
        launch(
            weight_kernel,
            (blocks.count, blocks.parts, layout.parent_tiles),
            layout.arguments(compiled=True),
            layout.by_tile(parents),
            layout.by_tile(d_sums),
            couplings,
            d_logits,
            d_weight,
            blocks.tiles,
            sizes=layout.sizes(layout.pads[1]),
            block=blocks.size,
            num_warps=layout.warps,
            num_stages=max(1, min(3, 1 + 2 * MAX_BUFFER_BYTES // size)),
        )
    return blocks.total(d_weight)


def _links(layout: Layout, block: int) -> int:
    """Return how many couplings a block of children has with a tile of windows and parents."""
    return block * layout.j_tile * (ROWS // layout.pads[0])
