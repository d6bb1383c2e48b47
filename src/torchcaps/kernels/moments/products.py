"""Triton kernels of EM routing, backward, for poses with rows of four numbers: no vote is cast.

The gradient of a vote is A + B v. As in :mod:`torchcaps.kernels.attend.backward`, A and B have one
number for every vote:

    A, B = r F + dl F', r H + dl H'          r being a share, a coupling times an activation

A vote is v = x W, so the sum over votes of B v is a matrix product with squares:

    dx_q = sum_rj A W_q + sum_q' x_q' sum_rj B W_q W_q'
    dW_q = sum_n x_q A + sum_q' W_q' sum_n x_q x_q' B

Squares in bfloat16 are two numbers: their rounded value and the rest.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    child_offset,
    child_range,
    open_links,
    parent_columns,
    parent_offsets,
    plain_rows,
    transposed_offsets,
    two_products,
    warp_rows,
    window_origin,
)


class Slopes(NamedTuple):
    """F, F', H and H': slopes of shares and logits where a vote is zero, and how they rise."""

    linear: Any
    linear_logits: Any
    square: Any
    square_logits: Any


@triton.jit
def load_slopes(slopes, offsets, mask, shape: tl.constexpr):
    """Return slopes with the numbers of a tile in place of pointers."""
    return Slopes(
        tl.reshape(tl.load(slopes.linear + offsets, mask=mask, other=0.0), shape),
        tl.reshape(tl.load(slopes.linear_logits + offsets, mask=mask, other=0.0), shape),
        tl.reshape(tl.load(slopes.square + offsets, mask=mask, other=0.0), shape),
        tl.reshape(tl.load(slopes.square_logits + offsets, mask=mask, other=0.0), shape),
    )


@triton.jit
def product_child_kernel(
    votes,
    squares,
    slopes,
    shares,
    d_logits,
    d_poses,
    n_part,
    sizes: tl.constexpr,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of child poses by window, ``[n i d]``."""
    columns: tl.constexpr = sizes.columns
    q_size: tl.constexpr = sizes.q_size
    window, p, row_mask = warp_rows(votes, sizes)
    r, j, column_mask = parent_columns(0, sizes)
    column = tl.arange(0, columns)
    k = tl.arange(0, 16)
    q = k // 4
    other = k % 4
    origin, top, left = window_origin(window, votes, sizes)
    poses = votes.poses + (origin + p * q_size)[:, None] + other[None, :]
    poses_mask = row_mask[:, None] & (other < q_size)[None, :]
    weights = votes.weight + (q * columns)[:, None] + column[None, :]
    weights_mask = ((q < q_size) & (other == 0))[:, None] & (column >= 0)[None, :]
    pairs = ((q * q_size + other) * columns)[:, None] + column[None, :]
    pairs_mask = ((q < q_size) & (other < q_size))[:, None] & (column >= 0)[None, :]
    offsets = parent_offsets(window, p[:, None] * sizes.r_size + r[None, :], j, sizes)
    mask = row_mask[:, None] & column_mask[None, :]
    shape: tl.constexpr = sizes.tile
    slope = load_slopes(slopes, offsets, mask, shape)
    links = open_links(0, votes, sizes)
    d_child: tl.constexpr = sizes.p_size * q_size
    write = d_poses + window.to(tl.int64)[:, None] * (votes.n_children * d_child)
    write = write + p[:, None] * q_size + tl.arange(0, 4)[None, :]
    write_mask = row_mask[:, None] & (tl.arange(0, 4) < q_size)[None, :]
    start, end = child_range(n_part, votes)
    for base in tl.range(start, end, block, num_stages=stages):
        for one in tl.static_range(block):
            i = base + one
            inside = i < end
            offset, dy, dx = child_offset(i, votes, sizes)
            child_mask = poses_mask & inside
            if sizes.padded:
                y = top + dy
                x = left + dx
                on_grid = (y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width)
                child_mask = child_mask & on_grid[:, None]
            child = tl.load(poses + offset, mask=child_mask, other=0.0).to(tl.float32)
            at = i % sizes.n_weights * q_size
            w = tl.load(weights + at * columns, mask=weights_mask & inside, other=0.0)
            at = at * (q_size * columns)
            ww = tl.load(squares[0] + at + pairs, mask=pairs_mask & inside, other=0.0)
            ww_rest = tl.load(squares[1] + at + pairs, mask=pairs_mask & inside, other=0.0)
            step = i * sizes.n_parents
            c = tl.load(shares + links.offsets + step, mask=links.mask & inside, other=0.0)
            dl = tl.load(d_logits + links.offsets + step, mask=links.mask & inside, other=0.0)
            c = c.to(sizes.operand)[:, None, :, :, None, :]
            dl = dl.to(sizes.operand)[:, None, :, :, None, :]
            d_votes = two_products(c, slope.linear, dl, slope.linear_logits, sizes.operand)
            d_slope = two_products(c, slope.square, dl, slope.square_logits, sizes.operand)
            d_votes = tl.reshape(d_votes, [64, columns])
            d_slope = tl.reshape(d_slope, [64, columns])
            w = tl.trans(w.to(sizes.operand))
            ww = tl.trans(ww.to(sizes.operand))
            ww_rest = tl.trans(ww_rest.to(sizes.operand))
            rows = tl.dot(d_votes, w, input_precision=sizes.precision)
            more = tl.dot(d_slope, ww, input_precision=sizes.precision)
            more = tl.dot(d_slope, ww_rest, more, input_precision=sizes.precision)
            rows = tl.sum(tl.reshape(rows + more * child, [64, 4, 4]), axis=2)
            tl.store(write + i * d_child, rows, mask=write_mask & inside)


@triton.jit
def add_child(
    first,
    second,
    i,
    one: tl.constexpr,
    tile,
    slope,
    shares,
    d_logits,
    votes,
    sizes: tl.constexpr,
):
    """Add a tile's part of x A, in the columns of this child, and of x x' B.

    Args:
        first: sums of x A ``[(r j) (i q)]``.
        second: sums of x x' B ``[(r j) (q q')]``.
        i: the child.
        one: its number in the block.
        tile: number of the tile.
        slope: numbers of the tile.
        shares: couplings times activations, ``[n i j]``.
        d_logits: gradient of the logits, ``[n i j]``.
        votes: the votes.
        sizes: sizes compiled in.
    """
    columns: tl.constexpr = sizes.columns
    window, p, row_mask = plain_rows(tile, votes, sizes)
    origin, top, left = window_origin(window, votes, sizes)
    poses = votes.poses + origin + p * sizes.q_size
    slot = (tile * sizes.windows + tl.arange(0, sizes.windows))[None, :]
    parent = tl.arange(0, sizes.j_pad)[:, None]
    links = slot.to(tl.int64) * (votes.n_children * sizes.n_parents) + parent
    link_mask = (slot < votes.n_windows) & (parent < sizes.n_parents)
    k = tl.arange(0, 16)
    inside = i < votes.n_children
    offset, dy, dx = child_offset(i, votes, sizes)
    row_mask = row_mask & inside
    if sizes.padded:
        y = top + dy
        x = left + dx
        row_mask = row_mask & (y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width)
    poses = poses[:, None] + offset
    mask = row_mask[:, None] & (k % 4 < sizes.q_size)[None, :]
    by = tl.load(poses + (k % 4)[None, :], mask=mask, other=0.0).to(tl.float32)
    mask = row_mask[:, None] & (k // 4 < sizes.q_size)[None, :]
    xx = tl.load(poses + (k // 4)[None, :], mask=mask, other=0.0).to(tl.float32) * by
    x = tl.where((k // 4 == one)[None, :], by, 0.0).to(sizes.operand)
    high = xx.to(sizes.operand)
    rest = (xx - high.to(tl.float32)).to(sizes.operand)
    step = i * sizes.n_parents
    c = tl.load(shares + links + step, mask=link_mask & inside, other=0.0)
    dl = tl.load(d_logits + links + step, mask=link_mask & inside, other=0.0)
    c = c.to(sizes.operand)[None, :, :, None]
    dl = dl.to(sizes.operand)[None, :, :, None]
    d_votes = two_products(c, slope.linear, dl, slope.linear_logits, sizes.operand)
    d_slope = two_products(c, slope.square, dl, slope.square_logits, sizes.operand)
    d_votes = tl.reshape(d_votes, [columns, 64])
    d_slope = tl.reshape(d_slope, [columns, 64])
    first = tl.dot(d_votes, x, first, input_precision=sizes.precision)
    second = tl.dot(d_slope, high, second, input_precision=sizes.precision)
    return first, tl.dot(d_slope, rest, second, input_precision=sizes.precision)


@triton.jit
def contract(second, i, one: tl.constexpr, votes, sizes: tl.constexpr):
    """Return the sum over q' of W_q' times ``[(r j) (q q')]``, in the columns of this child."""
    columns: tl.constexpr = sizes.columns
    k = tl.arange(0, 16)
    i = i % sizes.n_weights
    w = votes.weight + (i * sizes.q_size + k % 4)[None, :] * columns
    mask = ((k % 4 < sizes.q_size) & (i >= 0))[None, :]
    w = tl.load(w + tl.arange(0, columns)[:, None], mask=mask, other=0.0).to(tl.float32)
    total = tl.sum(tl.reshape(second * w, [columns, 4, 4]), axis=2)
    total = tl.where((tl.arange(0, 4) == one)[None, :, None], total[:, None, :], 0.0)
    return tl.reshape(total, [columns, 16])


@triton.jit
def product_weight_kernel(
    votes,
    slopes,
    shares,
    d_logits,
    d_weight,
    tiles,
    sizes: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient of the weights ``[part i q (r j)]`` of four children.

    Slopes are ``[tile r j (w p)]`` here; a program sums over a range of tiles.
    """
    columns: tl.constexpr = sizes.columns
    shape: tl.constexpr = [sizes.r_pad, sizes.j_pad, sizes.windows, sizes.p_pad]
    base = tl.program_id(0) * block
    part = tl.program_id(1)
    first = tl.zeros([columns, 16], dtype=tl.float32)
    second0 = tl.zeros([columns, 16], dtype=tl.float32)
    second1 = tl.zeros([columns, 16], dtype=tl.float32)
    second2 = tl.zeros([columns, 16], dtype=tl.float32)
    second3 = tl.zeros([columns, 16], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        offsets, mask = transposed_offsets(tile, 0, votes, sizes)
        slope = load_slopes(slopes, offsets, mask, shape)
        first, second0 = add_child(
            first, second0, base, 0, tile, slope, shares, d_logits, votes, sizes
        )
        first, second1 = add_child(
            first, second1, base + 1, 1, tile, slope, shares, d_logits, votes, sizes
        )
        first, second2 = add_child(
            first, second2, base + 2, 2, tile, slope, shares, d_logits, votes, sizes
        )
        first, second3 = add_child(
            first, second3, base + 3, 3, tile, slope, shares, d_logits, votes, sizes
        )
    total = first
    total += contract(second0, base, 0, votes, sizes)
    total += contract(second1, base + 1, 1, votes, sizes)
    total += contract(second2, base + 2, 2, votes, sizes)
    total += contract(second3, base + 3, 3, votes, sizes)
    k = tl.arange(0, 16)
    column = tl.arange(0, columns)
    child = base + k // 4
    write = (part.to(tl.int64) * votes.n_children + child) * sizes.q_size + k % 4
    mask = ((child < votes.n_children) & (k % 4 < sizes.q_size))[None, :] & (column >= 0)[:, None]
    tl.store(d_weight + write[None, :] * columns + column[:, None], total, mask=mask)
