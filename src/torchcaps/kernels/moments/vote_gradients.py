"""Triton kernels of EM routing, backward: gradients of child poses and weights.

The gradient of a vote is r (f + 2 h d) from the moments and dl (f' + 2 h' d) from the logits, with
names as in :mod:`torchcaps.kernels.moments.forward`. It depends on the vote, which is cast once
more. h and h' come doubled; f' or h' may be None.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    cast_votes,
    child_range,
    load_children,
    open_links,
    open_tile,
    transposed_offsets,
)


class Slopes(NamedTuple):
    """Center, f and h of the moments, and f' and h' of the logits, for a tile."""

    center: Any
    f: Any
    h: Any
    f_logits: Any
    h_logits: Any


@triton.jit
def load_slopes(behind, ahead, offsets, mask, shape: tl.constexpr):
    """Return the slopes of two forms for a tile; f' and h' have no meaning if they are None."""
    center = tl.load(behind.center + offsets, mask=mask, other=0.0).to(tl.float32)
    f = tl.load(behind.linear + offsets, mask=mask, other=0.0)
    h = tl.load(behind.square + offsets, mask=mask, other=0.0)
    f_logits = f
    h_logits = h
    if ahead.linear is not None:
        f_logits = tl.load(ahead.linear + offsets, mask=mask, other=0.0)
    if ahead.square is not None:
        h_logits = tl.load(ahead.square + offsets, mask=mask, other=0.0)
    f_logits = tl.reshape(f_logits, shape)
    h_logits = tl.reshape(h_logits, shape)
    return Slopes(center, tl.reshape(f, shape), tl.reshape(h, shape), f_logits, h_logits)


@triton.jit
def vote_gradient(d, r, dl, x, ahead):
    """Return r (f + h d) + dl (f' + h' d), with the slopes x."""
    if ahead.linear is not None and ahead.square is not None:
        return r * x.f + dl * x.f_logits + (r * x.h + dl * x.h_logits) * d
    elif ahead.linear is not None:
        return r * x.f + dl * x.f_logits + r * x.h * d
    elif ahead.square is not None:
        return r * x.f + (r * x.h + dl * x.h_logits) * d
    else:
        return r * (x.f + x.h * d)


@triton.jit
def gaussian_child_kernel(
    votes,
    activations,
    behind,
    ahead,
    couplings,
    d_logits,
    d_poses,
    n_part,
    sizes: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of child poses by window, ``[n i d]``; couplings of None are uniform."""
    tile = open_tile(0, votes, sizes)
    links = open_links(0, votes, sizes)
    shape: tl.constexpr = sizes.tile
    slopes = load_slopes(behind, ahead, tile.offsets, tile.mask, shape)
    center = tl.reshape(slopes.center, sizes.tile)
    d_child: tl.constexpr = sizes.p_size * sizes.q_size
    write = d_poses + tile.window.to(tl.int64)[:, None] * (votes.n_children * d_child)
    write = write + tile.p[:, None] * sizes.q_size + tl.arange(0, sizes.q_pad)[None, :]
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, w = cast_votes(i, tile, votes, sizes)
        d = tl.reshape(cast, sizes.tile) - center
        at = links.slot.to(tl.int64) * votes.n_children + i
        a = tl.load(activations + at, mask=links.slot < votes.n_windows, other=0.0)
        a = a.to(tl.float32)[:, :, None, None]
        if couplings is None:
            r = tl.where(links.parent < sizes.n_parents, a / sizes.n_parents, 0.0)
            dl = r
        else:
            step = i * sizes.n_parents
            r = tl.load(couplings + links.offsets + step, mask=links.mask, other=0.0)
            r = r.to(tl.float32) * a
            dl = tl.load(d_logits + links.offsets + step, mask=links.mask, other=0.0)
            dl = dl.to(tl.float32)
        r = r[:, None, :, :, None, :]
        dl = dl[:, None, :, :, None, :]
        d_votes = vote_gradient(d, r, dl, slopes, ahead)
        d_votes = tl.reshape(d_votes, [64, sizes.columns]).to(sizes.operand)
        rows = tl.dot(d_votes, tl.trans(w), input_precision=sizes.precision)
        tl.store(write + i * d_child, rows, mask=tile.poses_mask)


@triton.jit
def gaussian_weight_kernel(
    votes,
    activations,
    behind,
    ahead,
    couplings,
    d_logits,
    d_weight,
    tiles,
    sizes: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient of the weights ``[part i q (r j)]`` of a block of children.

    Forms are ``[tile r j (w p)]`` here; a program sums over a range of tiles.
    """
    first_child = tl.program_id(0) * block
    part = tl.program_id(1)
    columns: tl.constexpr = sizes.columns
    column = tl.arange(0, columns)
    shape: tl.constexpr = [sizes.r_pad, sizes.j_pad, sizes.windows, sizes.p_pad]
    k = tl.arange(0, block * sizes.q_pad)
    g = k // sizes.q_pad
    q = k % sizes.q_pad
    child = first_child + g
    child_mask = (child < votes.n_children) & (q < sizes.q_size)
    w = votes.weight + ((child % sizes.n_weights) * sizes.q_size + q)[None, :] * columns
    w_mask = child_mask[None, :] & (column >= 0)[:, None]
    w = tl.load(w + column[:, None], mask=w_mask, other=0.0).to(tl.float32)
    parent = tl.arange(0, sizes.j_pad)[:, None]
    total = tl.zeros([columns, block * sizes.q_pad], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        rows = load_children(tile, child, q, child_mask, votes, sizes)
        offsets, mask = transposed_offsets(tile, 0, votes, sizes)
        slopes = load_slopes(behind, ahead, offsets, mask, shape)
        slot = (tile * sizes.windows + tl.arange(0, sizes.windows))[None, :]
        links = slot.to(tl.int64) * (votes.n_children * sizes.n_parents) + parent
        for one in tl.static_range(block):
            i = first_child + one
            w_one = tl.where((g == one)[None, :], w, 0.0).to(sizes.operand)
            poses = tl.where((g == one)[None, :], rows, 0.0).to(sizes.operand)
            cast = tl.dot(w_one, tl.trans(poses), input_precision=sizes.precision)
            if votes.bias is not None:
                p = tl.arange(0, 64) % sizes.p_pad
                entry = p[None, :] * sizes.r_size + (column // sizes.j_pad)[:, None]
                shift = votes.bias + i * (sizes.p_size * sizes.r_size) + entry
                shift_mask = mask & (p < sizes.p_size)[None, :] & (i < votes.n_children)
                cast += tl.load(shift, mask=shift_mask, other=0.0).to(tl.float32)
            at = slot.to(tl.int64) * votes.n_children + i
            slot_mask = (slot < votes.n_windows) & (i < votes.n_children)
            a = tl.load(activations + at, mask=slot_mask, other=0.0).to(tl.float32)
            if couplings is None:
                r = tl.where(parent < sizes.n_parents, a / sizes.n_parents, 0.0)
                dl = r
            else:
                link_mask = slot_mask & (parent < sizes.n_parents)
                step = i * sizes.n_parents
                r = tl.load(couplings + links + step, mask=link_mask, other=0.0)
                r = r.to(tl.float32) * a
                dl = tl.load(d_logits + links + step, mask=link_mask, other=0.0)
                dl = dl.to(tl.float32)
            d = tl.reshape(cast - slopes.center, shape)
            r = r[None, :, :, None]
            dl = dl[None, :, :, None]
            d_votes = vote_gradient(d, r, dl, slopes, ahead)
            d_votes = tl.reshape(d_votes, [columns, 64]).to(sizes.operand)
            total = tl.dot(d_votes, poses, total, input_precision=sizes.precision)
    write = (part.to(tl.int64) * votes.n_children + child)[None, :]
    write = d_weight + write * (sizes.q_size * columns)
    write = write + q[None, :] * columns + column[:, None]
    tl.store(write, total, mask=child_mask[None, :] & (column >= 0)[:, None])
