"""Grids and buffers of the kernels of pairwise routing."""

from dataclasses import dataclass
from functools import cached_property

import torch
import triton
from torch import Tensor

from torchcaps.kernels.attend.operator import power
from torchcaps.kernels.common.layout import ROOM, SLOTS, Layout, copied, fold, split
from torchcaps.kernels.pairwise.backward import pairwise_child_kernel, pairwise_weight_kernel
from torchcaps.kernels.pairwise.forward import pairwise_kernel

__all__ = ["Scaled", "pairwise_backward", "pairwise_links", "pairwise_sums", "weighed_total"]


@dataclass(frozen=True)
class Scaled:
    """Votes with a scale and a bias that broadcast to ``[i j e]``, in float32, or None."""

    layout: Layout
    scale: Tensor | None
    bias: Tensor | None
    normalize: bool

    @property
    def j_tile(self) -> int:
        """Parents of a program, up to 128 columns."""
        _, _, r_pad, j_pad = self.layout.pads
        return min(j_pad, max(1, 128 // r_pad))

    @property
    def blocks(self) -> int:
        """Blocks of so many parents."""
        return self.layout.pads[3] // self.j_tile

    @property
    def columns(self) -> int:
        """Columns (r j) of a tile."""
        return self.layout.pads[2] * self.j_tile

    @property
    def warps(self) -> int:
        """So many that a thread holds 32 numbers of a tile of 64 rows."""
        return max(4, min(16, self.columns // 16))

    @property
    def tiles(self) -> int:
        """Tiles of 64 rows."""
        return int(triton.cdiv(self.layout.n_windows, 64 // self.layout.pads[0]))

    def expanded(self, factor: Tensor) -> Tensor:
        """A scale or bias as ``[i j e]``."""
        j, e = self.layout.weight.shape[1], self.layout.rows * self.layout.weight.shape[3]
        return factor.expand(self.layout.n_children, j, e)

    @cached_property
    def affine(self) -> tuple[Tensor | None, Tensor | None, tuple[int, int, int]]:
        """Scale and bias as ``[i e j]``, i or j being 1 if all are alike, and their strides."""
        given = [x for x in (self.scale, self.bias) if x is not None]
        shape = torch.broadcast_shapes((1, 1, 1), *(x.shape for x in given))
        i, j = shape[:2]
        e = self.layout.rows * self.layout.weight.shape[3]
        scale, bias = (
            None if x is None else copied(x.expand(i, j, e).transpose(1, 2), torch.float32)
            for x in (self.scale, self.bias)
        )
        return scale, bias, (e * j if i > 1 else 0, j, int(j > 1))

    def stages(self, q_pad: int) -> int:
        """How many children ahead a program reads."""
        size = q_pad * (64 + self.columns) * self.layout.poses.element_size()
        if self.affine[2][0]:
            size += 2 * 64 * self.columns * 4
        return max(1, min(4, ROOM // size))

    def precision(self, wide: int) -> str:
        """Exact products in float32 if they are so narrow that registers hold what they need."""
        return self.layout.summed_precision if wide <= 32 else self.layout.precision

    def common(self) -> dict[str, object]:
        """What all kernels are compiled for."""
        scale, bias, spans = self.affine
        return {
            "n_weights": self.layout.weight.shape[0],
            "j_tile": self.j_tile,
            "normalize": self.normalize,
            "by_parent": spans[2] > 0,
            "has_scale": scale is not None,
            "has_bias": bias is not None,
            "num_warps": self.warps,
            **self.layout.places(),
            **self.layout.sizes(),
        }

    def by_children(self) -> dict[str, object]:
        """What kernels that go through children one by one are compiled for."""
        q_pad = max(16, self.layout.pads[1])
        return {
            "q_pad": q_pad,
            "groups": min(max(1, self.warps // 4), self.j_tile),
            "varied": self.affine[2][0] > 0,
            "stages": self.stages(q_pad),
            **self.common(),
            "precision": self.precision(q_pad),
        }

    def where(self) -> tuple[object, ...]:
        """How the grid, scale and bias are read."""
        poses, spans = self.layout.poses, self.affine[2]
        return self.layout.geometry(), spans, *poses.shape[1:3], poses.stride(3)


def pairwise_sums(votes: Scaled) -> tuple[Tensor, Tensor]:
    """Totals and squares ``[n j e]``, in float32."""
    total, squares = _through_children(votes, None, None, 1.0, squared=True)
    return total, squares


def pairwise_links(votes: Scaled, total: Tensor, factor: float) -> Tensor:
    """Links ``[n i j]`` in the precision of the child poses."""
    layout = votes.layout
    links = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.weight.shape[1])
    _through_children(votes, layout.pack(total, torch.float32), links, factor)
    return links


def weighed_total(votes: Scaled, links: Tensor) -> Tensor:
    """Directions weighed by links ``[n i j]`` and summed, ``[n j e]``."""
    return _through_children(votes, None, links, 1.0)[0]


def _through_children(
    votes: Scaled,
    given: Tensor | None,
    links: Tensor | None,
    factor: float,
    *,
    squared: bool = False,
) -> tuple[Tensor, Tensor]:
    layout = votes.layout
    n, i, j = layout.n_windows, layout.n_children, layout.weight.shape[1]
    n_part, parts = split(votes.tiles * votes.blocks, i, 4)
    shape = (0 if given is not None else parts, n, layout.rows, layout.weight.shape[3], j)
    total = layout.poses.new_empty(shape, dtype=torch.float32)
    squares = total.new_empty(shape if squared else 0)
    if n:
        scale, bias, _ = votes.affine
        pairwise_kernel[(votes.tiles, parts, votes.blocks)](
            layout.poses,
            layout.packed_weight(),
            scale,
            bias,
            given,
            links,
            total,
            squares,
            n,
            i,
            n_part,
            *votes.where(),
            factor,
            linked=given is not None,
            weighed=given is None and links is not None,
            **votes.by_children(),
        )
    if given is not None:
        return total, squares
    summed = (x.sum(dim=0) if x.dim() == 5 else x for x in (total, squares))
    total, squares = (layout.unpack(x, x.dtype) if x.dim() == 4 else x for x in summed)
    return total, squares


def pairwise_backward(
    votes: Scaled, linear: Tensor, square: Tensor | None, links: Tensor | None, *, shifts: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of child poses ``[b h w t d]``, weight, scale and bias.

    The gradient of a direction is linear + square u, or links (linear - 2 u); the first two are
    ``[n j e]``. Gradients that are not needed are empty: of the scale if there is none, of the bias
    unless ``shifts``.
    """
    layout = votes.layout
    linear = layout.pack(linear, torch.float32)
    square = None if square is None else layout.pack(square, torch.float32)
    d_poses = _child_gradient(votes, linear, square, links)
    return d_poses, *_other_gradients(votes, linear, square, links, shifts=shifts)


def _child_gradient(
    votes: Scaled, linear: Tensor, square: Tensor | None, links: Tensor | None
) -> Tensor:
    layout = votes.layout
    n, i = layout.n_windows, layout.n_children
    n_part, parts = split(votes.tiles * votes.blocks, i, 4)
    dtype = layout.poses.dtype
    shape = (votes.blocks, n, i, layout.poses.shape[4])
    unfolded = layout.poses.new_empty(shape, dtype=dtype if votes.blocks == 1 else torch.float32)
    if n:
        scale, bias, _ = votes.affine
        pairwise_child_kernel[(votes.tiles, parts, votes.blocks)](
            layout.poses,
            layout.packed_weight(),
            scale,
            bias,
            linear,
            square,
            links,
            unfolded,
            n,
            i,
            n_part,
            *votes.where(),
            weighed=links is not None,
            **votes.by_children(),
        )
    return fold(layout, unfolded[0] if votes.blocks == 1 else unfolded.sum(dim=0).to(dtype))


def _other_gradients(
    votes: Scaled, linear: Tensor, square: Tensor | None, links: Tensor | None, *, shifts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    layout = votes.layout
    n, i = layout.n_windows, layout.n_children
    p_pad, _, r_pad, j_pad = layout.pads
    _, j, q, r = layout.weight.shape
    scale, bias, _ = votes.affine
    apart = shifts or scale is not None
    rows = p_pad if apart else 1
    q_pad = max(16 // rows, power(q + 1 if apart else q))
    tiles = triton.cdiv(votes.tiles, max(1, min(SLOTS // (i * votes.blocks), votes.tiles)))
    parts = triton.cdiv(votes.tiles, tiles) if n else 1
    out = linear.new_zeros if not n else linear.new_empty
    products = out(parts, i, rows, q_pad, r_pad, j_pad)
    if n:
        pairwise_weight_kernel[(i, parts, votes.blocks)](
            layout.poses,
            layout.packed_weight(),
            scale,
            bias,
            layout.by_tile(linear),
            None if square is None else layout.by_tile(square),
            links,
            products,
            n,
            i,
            tiles,
            *votes.where(),
            q_pad=q_pad,
            j_in=min(votes.j_tile, max(1, 16 // r_pad)),
            apart=apart,
            weighed=links is not None,
            num_stages=2,
            **votes.common() | {"precision": votes.precision(rows * q_pad)},
        )
    products = products.sum(dim=0)[:, : layout.rows if apart else 1, :, :r, :j]
    return _sorted(votes, products, shifts=shifts)


def _sorted(votes: Scaled, products: Tensor, *, shifts: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of weight, scale and bias from ``[i p q r j]``, the last q being a one."""
    weight = votes.layout.weight
    t, _, q, r = weight.shape
    d_scale, d_bias = products.new_empty(0), products.new_empty(0)
    if shifts and votes.bias is not None:
        d_bias = products[:, :, q].flatten(1, 2).transpose(1, 2).sum_to_size(votes.bias.shape)
    products = products[:, :, :q]
    if votes.scale is not None:
        own = weight.permute(0, 2, 3, 1)[:, None].float()
        by_entry = (products.unflatten(0, (-1, t)) * own).sum(dim=3).flatten(0, 1)
        d_scale = by_entry.flatten(1, 2).transpose(1, 2).sum_to_size(votes.scale.shape)
        factor = votes.expanded(votes.scale).unflatten(2, (-1, r))
        products = products * factor.permute(0, 2, 3, 1)[:, :, None]
    d_weight = products.sum(dim=1).unflatten(0, (-1, t)).sum(dim=0).permute(0, 3, 1, 2)
    return copied(d_weight, weight.dtype), d_scale.contiguous(), d_bias.contiguous()
