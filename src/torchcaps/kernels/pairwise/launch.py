"""Grids and buffers of the kernels of pairwise routing."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.common.arguments import VoteSizes
from torchcaps.kernels.common.fold import fold
from torchcaps.kernels.common.geometry import MAX_BUFFER_BYTES, ROWS
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout, copied
from torchcaps.kernels.common.partition import MAX_CONCURRENT_PROGRAMS, ceil_div, split_children
from torchcaps.kernels.gate import next_power
from torchcaps.kernels.pairwise.backward import pairwise_child_kernel, pairwise_weight_kernel
from torchcaps.kernels.pairwise.forward import Affine, links_kernel, sums_kernel


@dataclass(frozen=True)
class AffineVotes:
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
        """Warps of a program, such that a thread holds 32 numbers of a tile."""
        return max(4, min(16, self.columns // 16))

    @cached_property
    def affine(self) -> tuple[Affine, bool]:
        """Scale and bias for the kernels, and whether parents differ."""
        layout = self.layout
        shapes = [x.shape for x in (self.scale, self.bias) if x is not None]
        i, j = torch.broadcast_shapes((1, 1, 1), *shapes)[:2]
        e = layout.d_parent
        scale, bias = (
            None if x is None else copied(x.expand(i, j, e).transpose(1, 2), torch.float32)
            for x in (self.scale, self.bias)
        )
        return Affine(scale, bias, e * j if i > 1 else 0, j), j > 1

    def sizes(self, q_pad: int, rows: int = 1, j_in: int | None = None) -> VoteSizes:
        """Return sizes to compile in; products in float32 are exact while they fit registers."""
        layout = self.layout
        precision = layout.long_sum_precision if rows * q_pad <= 32 else layout.precision
        return layout.sizes(
            q_pad, warps=self.warps, j_tile=self.j_tile, j_in=j_in, precision=precision
        )

    def options(self) -> dict[str, Any]:
        """Return what kernels that visit children one by one are compiled for."""
        affine, by_parent = self.affine
        q_pad = self.layout.cast_pad
        size = q_pad * (ROWS + self.columns) * self.layout.poses.element_size()
        if affine.child_span:
            size += 2 * ROWS * self.columns * 4
        return {
            "sizes": self.sizes(q_pad),
            "normalize": self.normalize,
            "varied": affine.child_span > 0,
            "by_parent": by_parent,
            "stages": max(1, min(4, MAX_BUFFER_BYTES // size)),
            "num_warps": self.warps,
        }

    def grid(self) -> tuple[tuple[int, int, int], int]:
        """Return tiles, parts of the children and blocks of parents; and children of a part."""
        tiles = self.layout.tiles
        n_part, parts = split_children(tiles * self.blocks, self.layout.n_children, 4)
        return (tiles, parts, self.blocks), n_part


def pairwise_sums(votes: AffineVotes) -> tuple[Tensor, Tensor]:
    """Return totals and squares ``[n j e]``, in float32."""
    grid, n_part = votes.grid()
    total, squares = (votes.layout.parent_buffer(grid[1]) for _ in range(2))
    if votes.layout.n_windows:
        launch(
            sums_kernel,
            grid,
            votes.layout.arguments(),
            votes.affine[0],
            None,
            total,
            squares,
            n_part,
            **votes.options(),
        )
    return _total(votes, total), _total(votes, squares)


def weighted_total(votes: AffineVotes, links: Tensor) -> Tensor:
    """Return directions weighted by links ``[n i j]`` and summed, ``[n j e]``."""
    grid, n_part = votes.grid()
    total = votes.layout.parent_buffer(grid[1])
    if votes.layout.n_windows:
        launch(
            sums_kernel,
            grid,
            votes.layout.arguments(),
            votes.affine[0],
            links,
            total,
            None,
            n_part,
            **votes.options(),
        )
    return _total(votes, total)


def _total(votes: AffineVotes, parts: Tensor) -> Tensor:
    return votes.layout.unpack(parts.sum(dim=0), torch.float32)


def pairwise_links(votes: AffineVotes, total: Tensor, factor: float) -> Tensor:
    """Return links ``[n i j]`` in the precision of the child poses."""
    layout = votes.layout
    links = layout.poses.new_empty(layout.n_windows, layout.n_children, layout.n_parents)
    grid, n_part = votes.grid()
    if layout.n_windows:
        launch(
            links_kernel,
            grid,
            layout.arguments(),
            votes.affine[0],
            layout.pack(total, torch.float32),
            links,
            n_part,
            factor,
            **votes.options(),
        )
    return links


def pairwise_backward(
    votes: AffineVotes, linear: Tensor, square: Tensor | None, links: Tensor | None, *, shifts: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of child poses ``[b h w t d]``, weight, scale and bias.

    The gradient of a direction is linear + square u, or links (linear - 2 u). Linear and square are
    ``[n j e]``. Gradients that are not needed are empty: that of a missing scale, and that of the
    bias unless ``shifts``.
    """
    layout = votes.layout
    linear = layout.pack(linear, torch.float32)
    square = None if square is None else layout.pack(square, torch.float32)
    d_poses = _child_gradient(votes, linear, square, links)
    products = _weight_products(votes, linear, square, links, shifts=shifts)
    return d_poses, *_affine_gradients(votes, products, shifts=shifts)


def _child_gradient(
    votes: AffineVotes, linear: Tensor, square: Tensor | None, links: Tensor | None
) -> Tensor:
    layout = votes.layout
    unfolded = layout.child_buffer(votes.blocks)
    grid, n_part = votes.grid()
    if layout.n_windows:
        launch(
            pairwise_child_kernel,
            grid,
            layout.arguments(),
            votes.affine[0],
            linear,
            square,
            links,
            unfolded,
            n_part,
            **votes.options(),
        )
    return fold(layout, unfolded)


def _weight_products(
    votes: AffineVotes,
    linear: Tensor,
    square: Tensor | None,
    links: Tensor | None,
    *,
    shifts: bool,
) -> Tensor:
    """Return child poses times the gradient of votes ``[i p q r j]``, the last q being a one."""
    layout = votes.layout
    n, i, tiles = layout.n_windows, layout.n_children, layout.tiles
    p_pad, _, r_pad, j_pad = layout.pads
    _, j, q, r = layout.weight.shape
    affine, by_parent = votes.affine
    apart = shifts or affine.scale is not None
    rows = p_pad if apart else 1
    q_pad = max(16 // rows, next_power(q + 1 if apart else q))
    n_tiles = ceil_div(tiles, max(1, min(MAX_CONCURRENT_PROGRAMS // (i * votes.blocks), tiles)))
    parts = ceil_div(tiles, n_tiles) if n else 1
    new = linear.new_empty if n else linear.new_zeros
    products = new(parts, i, rows, q_pad, r_pad, j_pad)
    if n:
        launch(
            pairwise_weight_kernel,
            (i, parts, votes.blocks),
            layout.arguments(),
            affine,
            layout.by_tile(linear),
            None if square is None else layout.by_tile(square),
            links,
            products,
            n_tiles,
            sizes=votes.sizes(q_pad, rows, j_in=min(votes.j_tile, max(1, 16 // r_pad))),
            apart=apart,
            normalize=votes.normalize,
            by_parent=by_parent,
            num_stages=2,
            num_warps=votes.warps,
        )
    return products.sum(dim=0)[:, : layout.rows if apart else 1, :, :r, :j]


def _affine_gradients(
    votes: AffineVotes, products: Tensor, *, shifts: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of weight, scale and bias from products ``[i p q r j]``."""
    layout = votes.layout
    t, j, q, r = layout.weight.shape
    d_scale, d_bias = products.new_empty(0), products.new_empty(0)
    if shifts and votes.bias is not None:
        d_bias = products[:, :, q].flatten(1, 2).transpose(1, 2).sum_to_size(votes.bias.shape)
    products = products[:, :, :q]
    if votes.scale is not None:
        weight = layout.weight.permute(0, 2, 3, 1)[:, None].float()
        by_entry = (products.unflatten(0, (-1, t)) * weight).sum(dim=3).flatten(0, 1)
        d_scale = by_entry.flatten(1, 2).transpose(1, 2).sum_to_size(votes.scale.shape)
        factor = votes.scale.expand(layout.n_children, j, layout.d_parent).unflatten(2, (-1, r))
        products = products * factor.permute(0, 2, 3, 1)[:, :, None]
    d_weight = products.sum(dim=1).unflatten(0, (-1, t)).sum(dim=0).permute(0, 3, 1, 2)
    return copied(d_weight, layout.weight.dtype), d_scale.contiguous(), d_bias.contiguous()
