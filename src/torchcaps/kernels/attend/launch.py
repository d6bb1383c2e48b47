"""Grids and buffers of the agreement kernels."""

import torch
import triton
from torch import Tensor

from torchcaps.kernels.attend.backward import child_kernel, weight_kernel
from torchcaps.kernels.attend.forward import attend_kernel
from torchcaps.kernels.common.layout import ROOM, Blocks, Layout, fold, split

__all__ = ["attend_backward", "attend_forward", "child_stages", "weight_stages"]


def attend_forward(
    layout: Layout, parents: Tensor, bias: Tensor | None, scale: float, leaky: bool
) -> tuple[Tensor, Tensor]:
    """Poses ``[n j e]`` and couplings ``[n i j]``."""
    couplings = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.weight.shape[1])
    total = _attend(layout, layout.pack(parents), couplings, None, None, bias, scale, leaky)
    return layout.unpack(total, layout.poses.dtype), couplings


def attend_backward(
    layout: Layout,
    parents: Tensor,
    couplings: Tensor,
    d_poses: Tensor,
    d_couplings: Tensor | None,
    bias: Tensor | None,
    scale: float,
    leaky: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the child poses ``[b h w t d]``, the weight and the parents."""
    logits = torch.empty_like(couplings)
    behind = layout.pack(d_poses)
    packed = layout.pack(parents)
    total = _attend(layout, behind, couplings, d_couplings, logits, bias, scale, leaky)
    given = (layout, packed, behind, couplings, logits)
    d_children, d_weight = _child_gradient(*given), _weight_gradient(*given)
    return d_children, d_weight, layout.unpack(total, parents.dtype)


def _attend(
    layout: Layout,
    parents: Tensor,
    couplings: Tensor,
    gradient: Tensor | None,
    logits: Tensor | None,
    bias: Tensor | None,
    scale: float,
    leaky: bool,
) -> Tensor:
    """Launch the kernel over tiles of windows and, if these are few, parts of the children."""
    per_tile = 64 // layout.pads[0]
    q_pad = max(16, layout.pads[1])
    tiles = triton.cdiv(layout.n_windows, per_tile)
    n_part, parts = split(tiles, layout.n_children, 4)
    total = parents.new_empty((parts, *parents.shape), dtype=torch.float32)
    if layout.n_windows:
        attend_kernel[(tiles, parts)](
            layout.poses,
            layout.packed_weight(),
            bias,
            parents,
            couplings,
            gradient,
            logits,
            total,
            layout.n_windows,
            layout.n_children,
            n_part,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            scale,
            q_pad=q_pad,
            groups=layout.warps // 4,
            backward=logits is not None,
            leaky=leaky,
            has_bias=bias is not None,
            has_gradient=gradient is not None,
            stages=layout.stages(q_pad * (64 + layout.columns), biased=bias is not None),
            num_warps=layout.warps,
            n_weights=layout.weight.shape[0],
            **layout.places(),
            **layout.sizes(),
        )
    return total[0] if parts == 1 else total.sum(dim=0)


def _child_gradient(
    layout: Layout, parents: Tensor, behind: Tensor, couplings: Tensor, logits: Tensor
) -> Tensor:
    """Gradient of the child poses ``[b h w t d]``."""
    n, i = couplings.shape[:2]
    block = max(1, 16 // layout.pads[1])
    tiles = triton.cdiv(n, 64 // layout.pads[0])
    n_part, parts = split(tiles, i, block)
    unfolded = layout.poses.new_empty(n, i, layout.poses.shape[4])
    if n:
        child_kernel[(tiles, parts)](
            layout.packed_weight(),
            parents,
            behind,
            couplings,
            logits,
            unfolded,
            n,
            i,
            n_part,
            n_weights=layout.weight.shape[0],
            q_pad=layout.pads[1],
            block=block,
            stages=child_stages(layout, block),
            num_warps=layout.warps,
            **layout.sizes() | {"precision": layout.summed_precision},
        )
    return fold(layout, unfolded)


def child_stages(layout: Layout, block: int) -> int:
    """How far the kernel of the child poses reads ahead: weights, couplings and their gradients."""
    return layout.stages(layout.columns * block * layout.pads[1] + 2 * _links(layout, block))


def weight_stages(layout: Layout, block: int) -> int:
    """How far that of the weights does: parents, couplings, gradients; one copy less has room."""
    size = 2 * (64 * layout.columns + _links(layout, block)) * layout.poses.element_size()
    return max(1, min(3, 1 + 2 * ROOM // size))


def _links(layout: Layout, block: int) -> int:
    """Couplings of a block of children with a tile."""
    return block * layout.pads[3] * (64 // layout.pads[0])


def _weight_gradient(
    layout: Layout, parents: Tensor, behind: Tensor, couplings: Tensor, logits: Tensor
) -> Tensor:
    """Gradient of the weight ``[t j q r]``: sums over ranges of windows, then over these."""
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if layout.n_windows:
        weight_kernel[(blocks.count, blocks.parts)](
            layout.poses,
            layout.by_tile(parents),
            layout.by_tile(behind),
            couplings,
            logits,
            d_weight,
            layout.n_windows,
            layout.n_children,
            blocks.tiles,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            q_pad=layout.pads[1],
            block=blocks.size,
            num_warps=layout.warps,
            num_stages=weight_stages(layout, blocks.size),
            **layout.places(),
            **layout.sizes(),
        )
    return blocks.summed(d_weight)
