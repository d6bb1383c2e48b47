"""What the kernels need to know about votes, and how tensors are laid out for them."""

import os
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from torchcaps.kernels.attend.backward import fold_kernel
from torchcaps.kernels.attend.operator import power

__all__ = ["ROOM", "Blocks", "Layout", "copied", "fold", "split"]

PROGRAMS = 528
"""Programs that fill a large GPU: four to each of 132 multiprocessors."""

SLOTS = 264
"""Programs that run at the same time there, as many registers as they take."""

ROOM = 96 * 1024
"""Bytes of shared memory for what a program reads ahead."""

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
        """p, q, r and j up to a power of two; a matrix product needs 16 rows and columns."""
        _, j, q, r = self.weight.shape
        r_pad = power(r)
        return power(self.rows), max(4, power(q)), r_pad, max(power(j), 16 // r_pad)

    @property
    def columns(self) -> int:
        """Columns (r j) of a tile."""
        return self.pads[2] * self.pads[3]

    @property
    def warps(self) -> int:
        """So many that a thread holds 64 numbers of a tile of 64 rows."""
        return max(4, self.columns // 32)

    def stages(self, entries: int, most: int = 4, *, biased: bool = False) -> int:
        """How many loads ahead a program reads, each of so many entries and perhaps a bias."""
        size = entries * self.poses.element_size() + (64 * self.columns * 4 if biased else 0)
        return max(1, min(most, ROOM // size))

    @property
    def operand(self) -> tl.dtype:
        """What matrix products multiply; the interpreter cannot count in bfloat16."""
        low = self.poses.dtype == torch.bfloat16 and not INTERPRETED
        return tl.bfloat16 if low else tl.float32

    @property
    def precision(self) -> str:
        """Three products of 10 bits make one of float32."""
        return "tf32x3"

    @property
    def summed_precision(self) -> str:
        """For sums over many columns: what a tensor core cuts off would show in float32."""
        return "ieee" if self.poses.dtype == torch.float32 else self.precision

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

    def pack(self, parents: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """Parents ``[n j (p r)]`` as ``[n p r j]``; None is the precision of the child poses."""
        packed = parents.unflatten(2, (self.rows, -1)).permute(0, 2, 3, 1)
        return copied(packed, dtype or self.poses.dtype)

    def by_tile(self, packed: Tensor) -> Tensor:
        """Parents ``[n p r j]`` as ``[tile r j (w p)]``, 64 rows to a tile, zeros at its end."""
        n, p, r, j = packed.shape
        p_pad = self.pads[0]
        per_tile = 64 // p_pad
        tiles = triton.cdiv(n, per_tile)
        if (n, p) == (tiles * per_tile, p_pad):
            return packed.view(tiles, per_tile, p, r, j).permute(0, 3, 4, 1, 2).contiguous()
        out = packed.new_zeros(tiles, r, j, per_tile, p_pad)
        whole = n // per_tile
        ready = packed[: whole * per_tile].view(whole, per_tile, p, r, j)
        out[:whole, ..., :p] = ready.permute(0, 3, 4, 1, 2)
        if whole < tiles:
            rest = packed[whole * per_tile :]
            out[whole, :, :, : len(rest), :p] = rest.permute(2, 3, 0, 1)
        return out

    def unpack(self, packed: Tensor, dtype: torch.dtype) -> Tensor:
        """The way back."""
        return copied(packed.permute(0, 3, 1, 2), dtype).flatten(2)

    def geometry(self) -> tuple[int, ...]:
        """Strides of the grid, steps and padding of the windows."""
        return (*self.poses.stride()[:3], *self.stride, *self.padding)

    def places(self) -> dict[str, object]:
        """Where windows and children are, compiled in."""
        height, width = self.size_out
        return {
            "width_out": width,
            "area_out": height * width,
            "width_k": self.kernel[1],
            "n_types": self.n_types,
            "padded": any(self.padding),
        }

    def sizes(self) -> dict[str, object]:
        """Sizes of capsules, compiled in."""
        _, j, q, r = self.weight.shape
        p_pad, _, r_pad, j_pad = self.pads
        return {
            "n_parents": j,
            "p_size": self.rows,
            "q_size": q,
            "r_size": r,
            "p_pad": p_pad,
            "r_pad": r_pad,
            "j_pad": j_pad,
            "operand": self.operand,
            "precision": self.precision,
        }


def copied(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """A contiguous copy of another type, in one pass."""
    return tensor.new_empty(tensor.shape, dtype=dtype).copy_(tensor)


def split(tiles: int, n_children: int, least: int) -> tuple[int, int]:
    """Children to a program, and programs to a tile, so that the last round is nearly full.

    More programs to a tile cost one sum over them, so the fewest that fill rounds well are taken.
    """
    most = max(1, n_children // max(32, least))
    if tiles * most <= SLOTS:
        parts = max(1, min(SLOTS // max(tiles, 1), triton.cdiv(n_children, max(8, least))))
    else:
        filled = {
            parts: tiles * parts / (triton.cdiv(tiles * parts, SLOTS) * SLOTS)
            for parts in range(1, min(most, max(8, SLOTS // tiles)) + 1)
        }
        best = max(filled.values())
        parts = min(parts for parts, share in filled.items() if share > best - 0.05)
    n_part = max(1, triton.cdiv(triton.cdiv(n_children, parts), least)) * least
    return n_part, triton.cdiv(n_children, n_part)


@dataclass(frozen=True)
class Blocks:
    """How the gradient of the weights is shared out: blocks of children, parts of the tiles."""

    layout: Layout

    @property
    def size(self) -> int:
        """Children of a block: a matrix product needs 16 columns."""
        return max(1, 16 // self.layout.pads[1])

    @property
    def count(self) -> int:
        """Blocks of children."""
        return int(triton.cdiv(self.layout.n_children, self.size))

    @property
    def tiles(self) -> int:
        """Tiles that a program goes through."""
        tiles = triton.cdiv(self.layout.n_windows, 64 // self.layout.pads[0])
        return int(triton.cdiv(tiles, max(1, min(PROGRAMS // self.count, tiles))))

    @property
    def parts(self) -> int:
        """Programs to a block."""
        tiles = triton.cdiv(self.layout.n_windows, 64 // self.layout.pads[0])
        return int(triton.cdiv(tiles, self.tiles)) if tiles else 1

    def buffer(self) -> Tensor:
        """Room for the sums of every part, ``[part i q r j]``."""
        _, _, r_pad, j_pad = self.layout.pads
        shape = (self.parts, self.layout.n_children, self.layout.weight.shape[2], r_pad, j_pad)
        return self.layout.poses.new_zeros(shape, dtype=torch.float32)

    def summed(self, buffer: Tensor) -> Tensor:
        """The gradient of the weight ``[t j q r]``, over parts and children that share it."""
        t, j, _, r = self.layout.weight.shape
        total = buffer.view(-1, t, *buffer.shape[2:]).sum(dim=0)[..., :r, :j]
        return copied(total.permute(0, 3, 1, 2), self.layout.weight.dtype)


def fold(layout: Layout, unfolded: Tensor) -> Tensor:
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
