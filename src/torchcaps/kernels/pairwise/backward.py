"""Triton kernels of pairwise routing, backward: gradients of child poses, weights, scale and bias.

With names as in :mod:`torchcaps.kernels.pairwise.forward`, the gradient of a direction is
dT + 2 u dQ from the sums and dl (T - 2 u) from the links. Its part along u is lost in v / |v|, and
the rest is divided by |v|. The vote is cast once more.

Both kernels take dT and 2 dQ as ``linear`` and ``square`` or, with ``links`` dl, T as ``linear``.
"""

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    cast_votes,
    child_offset,
    child_range,
    open_links,
    open_tile,
    parent_columns,
    plain_rows,
    transposed_offsets,
    window_origin,
)
from torchcaps.kernels.pairwise.forward import (
    affine_offsets,
    apply_affine,
    inverse_length,
    load_affine,
)


@triton.jit
def pairwise_child_kernel(
    votes,
    affine,
    linear,
    square,
    links,
    d_poses,
    n_part,
    sizes: tl.constexpr,
    normalize: tl.constexpr,
    varied: tl.constexpr,
    by_parent: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of child poses by block of parents and window, ``[block n i d]``."""
    block = tl.program_id(2)
    first = block * sizes.j_tile
    tile = open_tile(first, votes, sizes)
    at, at_mask = affine_offsets(first, affine, sizes, by_parent)
    if not varied:
        scale, bias = load_affine(affine, at, at_mask)
    f = tl.load(linear + tile.offsets, mask=tile.mask, other=0.0)
    f = tl.reshape(f, sizes.tile)
    if links is None:
        h = tl.load(square + tile.offsets, mask=tile.mask, other=0.0)
        h = tl.reshape(h, sizes.tile)
    places = open_links(first, votes, sizes)
    d_child: tl.constexpr = sizes.p_size * sizes.q_size
    write = block.to(tl.int64) * votes.n_windows + tile.window
    write = d_poses + write[:, None] * (votes.n_children * d_child)
    write = write + tile.p[:, None] * sizes.q_size + tl.arange(0, sizes.q_pad)[None, :]
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, w = cast_votes(i, tile, votes, sizes)
        if varied:
            scale, bias = load_affine(affine, at + i * affine.child_span, at_mask)
        u = apply_affine(tl.reshape(cast, sizes.tile), scale, bias, affine)
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None, :]
        if links is not None:
            c = links + places.offsets + i * sizes.n_parents
            c = tl.load(c, mask=places.mask, other=0.0)
            gradient = c[:, None, :, :, None, :] * (f - 2.0 * u)
        else:
            gradient = f + h * u
        if normalize:
            along = tl.sum(tl.sum(u * gradient, axis=4), axis=1)
            gradient = gradient - u * along[:, None, :, :, None, :]
            gradient = gradient * inverse[:, None, :, :, None, :]
        if affine.scale is not None:
            gradient = gradient * scale
        gradient = tl.reshape(gradient, [64, sizes.columns]).to(sizes.operand)
        rows = tl.dot(gradient, tl.trans(w), input_precision=sizes.precision)
        tl.store(write + i * d_child, rows, mask=tile.poses_mask)


@triton.jit
def pairwise_weight_kernel(
    votes,
    affine,
    linear,
    square,
    links,
    products,
    tiles,
    sizes: tl.constexpr,
    apart: tl.constexpr,
    normalize: tl.constexpr,
    by_parent: tl.constexpr,
):
    """Write child poses times the gradient of votes, ``[part i q (r j)]``, over a range of tiles.

    ``apart`` keeps the rows of a pose apart, ``[part i (p q) (r j)]``, and adds a column of ones,
    number ``q_size``, from which gradients of scale and bias follow. Linear and square are
    ``[tile r j (w p)]`` here.
    """
    i = tl.program_id(0)
    part = tl.program_id(1)
    first = tl.program_id(2) * sizes.j_tile
    columns: tl.constexpr = sizes.columns
    q_size: tl.constexpr = sizes.q_size
    wide: tl.constexpr = (sizes.p_pad if apart else 1) * sizes.q_pad
    r, j, _column_mask = parent_columns(first, sizes)
    k = tl.arange(0, wide)
    q = k % sizes.q_pad
    p = tl.arange(0, 64) % sizes.p_pad
    entries = (q < sizes.q_pad)[None, :] & (p < sizes.p_size)[:, None]
    if apart:
        entries = entries & (p[:, None] == (k // sizes.q_pad)[None, :])
    offset, dy, dx = child_offset(i, votes, sizes)
    w = votes.weight + ((i % sizes.n_weights) * q_size + q)[None, :] * (sizes.r_pad * sizes.j_pad)
    w = w + (r * sizes.j_pad + j)[:, None]
    w_mask = (q < q_size)[None, :] & (tl.arange(0, columns) >= 0)[:, None]
    w = tl.load(w, mask=w_mask, other=0.0).to(tl.float32).to(sizes.operand)
    at, at_mask = affine_offsets(first, affine, sizes, by_parent)
    at = at + i * affine.child_span
    if affine.scale is not None:
        s = tl.permute(tl.load(affine.scale + at, mask=at_mask, other=0.0), [1, 2, 3, 0])
        s = s[:, :, :, None, :]
    if affine.bias is not None:
        shift = tl.permute(tl.load(affine.bias + at, mask=at_mask, other=0.0), [1, 2, 3, 0])
        shift = shift[:, :, :, None, :]
    j_in: tl.constexpr = sizes.j_in
    shape: tl.constexpr = [sizes.groups, sizes.r_pad, j_in, sizes.windows, sizes.p_pad]
    parent = first + tl.arange(0, sizes.groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[:, :, None]
    total = tl.zeros([columns, wide], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        window, _, _ = plain_rows(tile, votes, sizes)
        origin, top, left = window_origin(window, votes, sizes)
        row_mask = entries & (window < votes.n_windows)[:, None]
        mask = row_mask & (q < q_size)[None, :]
        if sizes.padded:
            y = top + dy
            x = left + dx
            mask = mask & ((y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width))[:, None]
        rows = votes.poses + (origin + p * q_size + offset)[:, None] + q[None, :]
        rows = tl.load(rows, mask=mask, other=0.0).to(tl.float32)
        if apart:
            rows = tl.where(row_mask & (q == q_size)[None, :], 1.0, rows)
        rows = rows.to(sizes.operand)
        u = tl.dot(w, tl.trans(rows), input_precision=sizes.precision)
        u = tl.reshape(u, shape)
        if affine.scale is not None:
            u = u * s
        if affine.bias is not None:
            u = u + shift
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None]
        offsets, offsets_mask = transposed_offsets(tile, first, votes, sizes)
        f = tl.reshape(tl.load(linear + offsets, mask=offsets_mask, other=0.0), shape)
        if links is not None:
            slot = (tile * sizes.windows + tl.arange(0, sizes.windows))[None, None, :]
            link = (slot.to(tl.int64) * votes.n_children + i) * sizes.n_parents + parent
            link_mask = (slot < votes.n_windows) & (parent < sizes.n_parents)
            c = tl.load(links + link, mask=link_mask, other=0.0)
            gradient = c[:, None, :, :, None] * (f - 2.0 * u)
        else:
            h = tl.reshape(tl.load(square + offsets, mask=offsets_mask, other=0.0), shape)
            gradient = f + h * u
        if normalize:
            along = tl.sum(tl.sum(u * gradient, axis=4), axis=1)
            gradient = (gradient - u * along[:, None, :, :, None]) * inverse[:, None, :, :, None]
        gradient = tl.reshape(gradient, [columns, 64]).to(sizes.operand)
        total = tl.dot(gradient, rows, total, input_precision=sizes.precision)
    write = ((part.to(tl.int64) * votes.n_children + i) * wide + k)[None, :]
    write = products + write * (sizes.r_pad * sizes.j_pad)
    tl.store(write + (r * sizes.j_pad + j)[:, None], total)
