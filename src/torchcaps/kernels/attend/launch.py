"""Grids and buffers of the agreement kernels."""

import torch
from torch import Tensor

from torchcaps.kernels.attend.backward import attend_backward_kernel, child_kernel, weight_kernel
from torchcaps.kernels.attend.forward import attend_kernel
from torchcaps.kernels.common.blocks import Blocks
from torchcaps.kernels.common.fold import fold
from torchcaps.kernels.common.layout import MAX_BUFFER_BYTES, ROWS, Layout
from torchcaps.kernels.common.partition import split_children


def attend_forward(
    layout: Layout, parents: Tensor, scale: float, leaky: bool
) -> tuple[Tensor, Tensor]:
    """Return poses ``[n j e]`` and couplings ``[n i j]``."""
    couplings = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.n_parents)
    n_part, parts = split_children(layout.tiles, layout.n_children, 4)
    total = layout.parent_buffer(parts)
    if layout.n_windows:
        attend_kernel[(layout.tiles, parts)](
            layout.arguments(),
            layout.pack(parents),
            couplings,
            total,
            n_part,
            scale,
            sizes=layout.sizes(layout.cast_pad, warps=layout.warps),
            leaky=leaky,
            stages=layout.cast_stages(),
            num_warps=layout.warps,
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
    n_part, parts = split_children(layout.tiles, layout.n_children, 4)
    d_parents = layout.parent_buffer(parts)
    if layout.n_windows:
        attend_backward_kernel[(layout.tiles, parts)](
            layout.arguments(),
            packed_d_sums,
            couplings,
            d_couplings,
            d_logits,
            d_parents,
            n_part,
            scale,
            sizes=layout.sizes(layout.cast_pad, warps=layout.warps),
            leaky=leaky,
            stages=layout.cast_stages(),
            num_warps=layout.warps,
        )
    saved = (layout, layout.pack(parents), packed_d_sums, couplings, d_logits)
    d_poses, d_weight = _child_gradient(*saved), _weight_gradient(*saved)
    return d_poses, d_weight, layout.unpack(_summed(d_parents), parents.dtype)


def _summed(parts: Tensor) -> Tensor:
    return parts[0] if len(parts) == 1 else parts.sum(dim=0)


def _child_gradient(
    layout: Layout, parents: Tensor, d_sums: Tensor, couplings: Tensor, d_logits: Tensor
) -> Tensor:
    """Return the gradient of the child poses ``[b h w t d]``."""
    q_pad = layout.pads[1]
    block = max(1, 16 // q_pad)
    n_part, parts = split_children(layout.tiles, layout.n_children, block)
    unfolded = layout.child_buffer()
    if layout.n_windows:
        child_kernel[(layout.tiles, parts)](
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
        weight_kernel[(blocks.count, blocks.parts)](
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
    """Return how many couplings a block of children has with a tile."""
    return block * layout.pads[3] * (ROWS // layout.pads[0])
