"""Sizes, grids and buffers of the agreement kernels."""

import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchcaps.kernels.agreement import attend_kernel, fold_kernel, spread_kernel
from torchcaps.kernels.ops import power

__all__ = ["attend_backward", "attend_forward"]

PROGRAMS = 528
"""Programs that fill a large GPU: four to each of 132 multiprocessors."""

STAGES = 3
"""How many loads ahead a program reads."""

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"


@dataclass(frozen=True)
class Layout:
    """What the kernels need to know about votes, from the tensors of one call."""

    poses: Tensor
    weight: Tensor
    kernel: tuple[int, int]
    stride: tuple[int, int]
    padding: tuple[int, int]

    @property
    def n_types(self) -> int:
        """Child types at one place of the grid."""
        return self.poses.shape[3]

    @property
    def n_children(self) -> int:
        """Children of one window."""
        return self.kernel[0] * self.kernel[1] * self.n_types

    @property
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
    def pads(self) -> tuple[int, int, int, int]:
        """p, q, r and j up to a power of two; a matrix product needs 16 columns."""
        _, j, q, r = self.weight.shape
        r_pad = power(r)
        return power(self.rows), power(q), r_pad, max(power(j), 16 // r_pad)

    @property
    def columns(self) -> int:
        """Columns (r j) of a tile."""
        return self.pads[2] * self.pads[3]

    @property
    def warps(self) -> int:
        """So many that a thread holds 64 numbers of a tile of 64 rows."""
        return max(4, self.columns // 32)

    @property
    def operand(self) -> tl.dtype:
        """What matrix products multiply; the interpreter cannot count in bfloat16."""
        low = self.poses.dtype == torch.bfloat16 and not INTERPRETED
        return tl.bfloat16 if low else tl.float32

    @property
    def precision(self) -> str:
        """Three products of 10 bits make one of float32."""
        return "tf32x3"

    def packed_weight(self) -> Tensor:
        """Weights ``[t q r j]`` with zeros in the padding."""
        _, _, r_pad, j_pad = self.pads
        t, j, q, r = self.weight.shape
        packed = self.weight.permute(0, 2, 3, 1)
        if (r, j) != (r_pad, j_pad):
            padded = self.weight.new_zeros(t, q, r_pad, j_pad)
            padded[:, :, :r, :j] = packed
            return padded
        return packed.contiguous()

    def pack(self, parents: Tensor) -> Tensor:
        """Parents ``[n j (p r)]`` as ``[n p r j]``, in the precision of the child poses."""
        return _copied(parents.unflatten(2, (self.rows, -1)).permute(0, 2, 3, 1), self.poses.dtype)

    def unpack(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        """The way back."""
        return _copied(packed.permute(0, 3, 1, 2), dtype).flatten(2)

    def geometry(self) -> tuple[int, ...]:
        """Strides of the grid, steps and padding of the windows."""
        return (*self.poses.stride()[:3], *self.stride, *self.padding)

    def constants(self) -> dict[str, object]:
        """Sizes that are compiled in."""
        _, j, q, r = self.weight.shape
        height, width = self.size_out
        p_pad, _, r_pad, j_pad = self.pads
        return {
            "width_out": width,
            "area_out": height * width,
            "width_k": self.kernel[1],
            "n_types": self.n_types,
            "n_weights": self.weight.shape[0],
            "n_parents": j,
            "p_size": self.rows,
            "q_size": q,
            "r_size": r,
            "p_pad": p_pad,
            "r_pad": r_pad,
            "j_pad": j_pad,
            "padded": any(self.padding),
            "operand": self.operand,
            "precision": self.precision,
        }


def _copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of another type, in one pass."""
    return tensor.new_empty(tensor.shape, dtype=dtype).copy_(tensor)


def attend_forward(
    layout: Layout, parents: Tensor, bias: Tensor | None, scale: float, leaky: bool
) -> tuple[Tensor, Tensor]:
    """Poses ``[n j e]`` and couplings ``[n i j]``."""
    couplings = layout.poses.new_empty(
        layout.n_windows, layout.n_children, layout.weight.shape[1]
    )
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
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of the child poses ``[b h w t d]``, the weight and the parents."""
    logits = torch.empty_like(couplings)
    behind = layout.pack(d_poses)
    packed = layout.pack(parents)
    total = _attend(layout, behind, couplings, d_couplings, logits, bias, scale, False)
    d_children, d_weight = _spread(layout, packed, behind, couplings, logits)
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
    tiles = triton.cdiv(layout.n_windows, per_tile)
    parts = max(1, min(PROGRAMS // max(tiles, 1), triton.cdiv(layout.n_children, 8)))
    n_part = triton.cdiv(layout.n_children, parts)
    parts = triton.cdiv(layout.n_children, n_part)
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
            q_pad=max(16, layout.pads[1]),
            backward=logits is not None,
            leaky=leaky,
            has_bias=bias is not None,
            has_gradient=gradient is not None,
            stages=STAGES,
            num_warps=layout.warps,
            **layout.constants(),
        )
    return total[0] if parts == 1 else total.sum(dim=0)


def _spread(
    layout: Layout, parents: Tensor, behind: Tensor, couplings: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of child poses and weights from those of the votes."""
    per_tile = 64 // layout.pads[0]
    block = max(1, 16 // layout.pads[1])
    groups = triton.cdiv(layout.n_children, block)
    tiles = triton.cdiv(layout.n_windows, per_tile)
    parts = max(1, min(PROGRAMS // groups, tiles))
    per_part = triton.cdiv(tiles, parts)
    parts = triton.cdiv(tiles, per_part) if tiles else 1
    t, j, q, r = layout.weight.shape
    _, _, r_pad, j_pad = layout.pads
    n, i = couplings.shape[:2]
    d_children = layout.poses.new_empty(n, i, layout.poses.shape[4])
    d_weight = behind.new_zeros((parts, i, q, r_pad, j_pad), dtype=torch.float32)
    if n:
        spread_kernel[(groups, parts)](
            layout.poses,
            layout.packed_weight(),
            parents,
            behind,
            couplings,
            logits,
            d_children,
            d_weight,
            n,
            i,
            per_part,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            q_pad=layout.pads[1],
            block=block,
            num_warps=layout.warps,
            **layout.constants(),
        )
    d_weight = d_weight.view(parts * (i // t), t, q, r_pad, j_pad).sum(dim=0)[..., :r, :j]
    return _fold(layout, d_children), _copied(
        d_weight.permute(0, 3, 1, 2), layout.weight.dtype
    )


def _fold(layout: Layout, unfolded: Tensor) -> Tensor:
    """Sum gradients of windows ``[n i d]`` to those of the grid."""
    poses = layout.poses
    if layout.size_out == (1, 1) and layout.kernel == tuple(poses.shape[1:3]):
        return unfolded.view(poses.shape)
    grid = poses.new_empty(poses.shape)
    size, block = grid.numel(), 1024
    if size:
        fold_kernel[(triton.cdiv(size, block),)](
            unfolded,
            grid,
            size,
            *poses.shape[1:3],
            *layout.kernel,
            *layout.stride,
            *layout.padding,
            *layout.size_out,
            entries=poses.shape[3] * poses.shape[4],
            block=block,
        )
    return grid
