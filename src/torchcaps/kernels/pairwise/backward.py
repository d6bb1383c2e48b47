"""Triton kernels of pairwise routing, backward: gradients of child poses, weights, scale and bias.

With names as in :mod:`torchcaps.kernels.pairwise.forward`, the gradient of a direction is
dT + 2 u dQ from
the sums and dl (T - 2 u) from the links; what of it points along u is lost in v / |v|, and the rest
is divided by |v|. The vote is cast once more.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin
from torchcaps.kernels.pairwise.forward import entry_places, inverse_length

__all__ = ["pairwise_child_kernel", "pairwise_weight_kernel"]


@triton.jit
def pairwise_child_kernel(
    poses,
    weight,
    scales,
    bias,
    linear,
    square,
    links,
    d_poses,
    n_windows,
    n_children,
    n_part,
    geometry,
    spans,
    height,
    width,
    stride_t: tl.constexpr,
    width_out,
    area_out,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
    n_weights: tl.constexpr,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    q_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    q_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    j_tile: tl.constexpr,
    groups: tl.constexpr,
    weighed: tl.constexpr,
    normalize: tl.constexpr,
    padded: tl.constexpr,
    varied: tl.constexpr,
    by_parent: tl.constexpr,
    has_scale: tl.constexpr,
    has_bias: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Gradient of child poses by block of parents and window, ``[block n i d]``.

    The gradient of u is ``linear`` + ``square`` u, or ``links`` (``linear`` - 2 u) if weighed.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    block = tl.program_id(2)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    j_in: tl.constexpr = j_tile // groups
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    column = tl.arange(0, r_pad * j_tile)
    r = (column // j_in) % r_pad
    j = block * j_tile + column // (r_pad * j_in) * j_in + column % j_in
    k = tl.arange(0, q_pad)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None] + k[None, :]
    read_mask = there[:, None] & (k < q_size)[None, :]
    weights = weight + k[:, None] * (r_pad * j_pad) + (r * j_pad + j)[None, :]
    weights_mask = (k < q_size)[:, None] & (column >= 0)[None, :]
    e = p[:, None] * r_size + r[None, :]
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
    place = place + e * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    child_span, _, _ = spans
    at, at_mask = entry_places(
        block * j_tile, spans, n_parents, p_size, r_size, p_pad, r_pad, j_tile, groups, by_parent
    )
    if not varied:
        if has_scale:
            s = tl.load(scales + at, mask=at_mask, other=0.0)[None, :, None, :, :, :]
        if has_bias:
            shift = tl.load(bias + at, mask=at_mask, other=0.0)[None, :, None, :, :, :]
    shape: tl.constexpr = [4, p_pad, inner, groups, r_pad, j_in]
    f = tl.reshape(tl.load(linear + place, mask=place_mask, other=0.0), shape)
    if not weighed:
        h = tl.reshape(tl.load(square + place, mask=place_mask, other=0.0), shape)

    slot = tile * per_tile + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    slot = slot[:, :, None, None]
    parent = block * j_tile + tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[None, None, :, :]
    slot_mask = (slot < n_windows) & (parent < n_parents)
    link = slot.to(tl.int64) * (n_children * n_parents) + parent
    write = block.to(tl.int64) * n_windows + window
    write = d_poses + write[:, None] * (n_children * p_size * q_size)
    write = write + p[:, None] * q_size + k[None, :]

    start = part * n_part
    for i in tl.range(start, tl.minimum(start + n_part, n_children), num_stages=stages):
        offset, dy, dx = child_place(i, geometry, stride_t, n_types, width_k)
        mask = read_mask
        if padded:
            y = top + dy
            x = left + dx
            mask = mask & ((y >= 0) & (y < height) & (x >= 0) & (x < width))[:, None]
        child = tl.load(read + offset, mask=mask, other=0.0).to(tl.float32).to(operand)
        w = tl.load(
            weights + (i % n_weights) * (q_size * r_pad * j_pad), mask=weights_mask, other=0.0
        )
        w = w.to(tl.float32).to(operand)
        u = tl.dot(child, w, input_precision=precision)
        u = tl.reshape(u, shape)
        own = at + i * child_span
        if has_scale:
            if varied:
                s = tl.load(scales + own, mask=at_mask, other=0.0)[None, :, None, :, :, :]
            u = u * s
        if has_bias:
            if varied:
                shift = tl.load(bias + own, mask=at_mask, other=0.0)[None, :, None, :, :, :]
            u = u + shift
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None, :]
        if weighed:
            c = tl.load(links + link + i * n_parents, mask=slot_mask, other=0.0)
            gradient = c[:, None, :, :, None, :] * (f - 2.0 * u)
        else:
            gradient = f + h * u
        if normalize:
            along = tl.sum(tl.sum(u * gradient, axis=4), axis=1)
            gradient = gradient - u * along[:, None, :, :, None, :]
            gradient = gradient * inverse[:, None, :, :, None, :]
        if has_scale:
            gradient = gradient * s
        gradient = tl.reshape(gradient, [64, r_pad * j_tile]).to(operand)
        rows = tl.dot(gradient, tl.trans(w), input_precision=precision)
        tl.store(write + i * (p_size * q_size), rows, mask=read_mask)


@triton.jit
def pairwise_weight_kernel(
    poses,
    weight,
    scales,
    bias,
    linear,
    square,
    links,
    out,
    n_windows,
    n_children,
    tiles,
    geometry,
    spans,
    height,
    width,
    stride_t: tl.constexpr,
    width_out,
    area_out,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
    n_weights: tl.constexpr,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    q_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    q_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    j_tile: tl.constexpr,
    j_in: tl.constexpr,
    apart: tl.constexpr,
    weighed: tl.constexpr,
    normalize: tl.constexpr,
    padded: tl.constexpr,
    by_parent: tl.constexpr,
    has_scale: tl.constexpr,
    has_bias: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Child poses times the gradient of votes, ``[part i q (r j)]``, over a range of tiles.

    ``apart`` keeps the rows of a pose apart, ``[part i (p q) (r j)]``, and adds a column of ones,
    number ``q_size``: gradients of scale and bias follow. Linear and square are
    ``[tile r j (w p)]`` here.
    """
    i = tl.program_id(0)
    part = tl.program_id(1)
    first = tl.program_id(2) * j_tile
    per_tile: tl.constexpr = 64 // p_pad
    n_columns: tl.constexpr = r_pad * j_tile
    wide: tl.constexpr = (p_pad if apart else 1) * q_pad
    row = tl.arange(0, 64)
    p = row % p_pad
    column = tl.arange(0, n_columns)
    r = (column // j_in) % r_pad
    j = first + column // (r_pad * j_in) * j_in + column % j_in
    column_mask = (r < r_size) & (j < n_parents)
    k = tl.arange(0, wide)
    q = k % q_pad
    mine = (q < q_pad)[None, :] & (p < p_size)[:, None]
    if apart:
        mine = mine & (p[:, None] == (k // q_pad)[None, :])
    offset, dy, dx = child_place(i, geometry, stride_t, n_types, width_k)
    w = weight + ((i % n_weights) * q_size + q)[None, :] * (r_pad * j_pad)
    w = w + (r * j_pad + j)[:, None]
    w = tl.load(w, mask=(q < q_size)[None, :] & (column >= 0)[:, None], other=0.0)
    w = w.to(tl.float32).to(operand)
    groups: tl.constexpr = j_tile // j_in
    at, at_mask = entry_places(
        first, spans, n_parents, p_size, r_size, p_pad, r_pad, j_tile, groups, by_parent
    )
    child_span, _, _ = spans
    at = at + i * child_span
    if has_scale:
        s = tl.permute(tl.load(scales + at, mask=at_mask, other=0.0), [1, 2, 3, 0])
        s = s[:, :, :, None, :]
    if has_bias:
        shift = tl.permute(tl.load(bias + at, mask=at_mask, other=0.0), [1, 2, 3, 0])
        shift = shift[:, :, :, None, :]
    shape: tl.constexpr = [groups, r_pad, j_in, per_tile, p_pad]
    parent = first + tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[:, :, None]
    total = tl.zeros([n_columns, wide], dtype=tl.float32)

    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * per_tile + row // p_pad
        origin, top, left = window_origin(window, geometry, width_out, area_out)
        here = mine & (window < n_windows)[:, None]
        mask = here & (q < q_size)[None, :]
        if padded:
            y = top + dy
            x = left + dx
            mask = mask & ((y >= 0) & (y < height) & (x >= 0) & (x < width))[:, None]
        rows = poses + (origin + p * q_size + offset)[:, None] + q[None, :]
        rows = tl.load(rows, mask=mask, other=0.0).to(tl.float32)
        if apart:
            rows = tl.where(here & (q == q_size)[None, :], 1.0, rows)
        rows = rows.to(operand)
        u = tl.dot(w, tl.trans(rows), input_precision=precision)
        u = tl.reshape(u, shape)
        if has_scale:
            u = u * s
        if has_bias:
            u = u + shift
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None]
        place = tl.zeros([1], tl.int64) + tile
        place = (place * (r_size * n_parents) + r * n_parents + j) * 64
        place = place[:, None] + row[None, :]
        place_mask = column_mask[:, None] & (window < n_windows)[None, :]
        f = tl.reshape(tl.load(linear + place, mask=place_mask, other=0.0), shape)
        if weighed:
            slot = (tile * per_tile + tl.arange(0, per_tile))[None, None, :]
            link = (slot.to(tl.int64) * n_children + i) * n_parents + parent
            c = tl.load(links + link, mask=(slot < n_windows) & (parent < n_parents), other=0.0)
            gradient = c[:, None, :, :, None] * (f - 2.0 * u)
        else:
            h = tl.reshape(tl.load(square + place, mask=place_mask, other=0.0), shape)
            gradient = f + h * u
        if normalize:
            along = tl.sum(tl.sum(u * gradient, axis=4), axis=1)
            gradient = (gradient - u * along[:, None, :, :, None]) * inverse[:, None, :, :, None]
        gradient = tl.reshape(gradient, [n_columns, 64]).to(operand)
        total = tl.dot(gradient, rows, total, input_precision=precision)

    write = out + ((part.to(tl.int64) * n_children + i) * wide + k)[None, :] * (r_pad * j_pad)
    tl.store(write + (r * j_pad + j)[:, None], total)
