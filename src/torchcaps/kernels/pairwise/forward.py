"""Triton kernels of pairwise routing: sums of directions of votes that are cast and never stored.

With the vote v_ij = (x_i W_ij) * scale + bias and its direction u_ij = v_ij / |v_ij|,

    T_j  = sum_i u_ij                         total, element by element
    Q_j  = sum_i u_ij^2                       squares
    l_ij = f (u_ij . T_j - |u_ij|^2)          link of child i and all others, for parent j

Parents do not compete: a program owns a tile of 64 rows as those of the agreement kernels do, and
a block of parents. Scale and bias are ``[i e j]``, or have one entry for all children or parents.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["entry_places", "inverse_length", "pairwise_kernel"]


@triton.jit
def entry_places(
    first,
    spans,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_tile: tl.constexpr,
    groups: tl.constexpr,
    by_parent: tl.constexpr,
):
    """Places ``[p J r j]`` of a scale or bias, with one parent for all unless ``by_parent``."""
    _, entry_span, _ = spans
    p = tl.arange(0, p_pad)[:, None, None, None]
    r = tl.arange(0, r_pad)[None, None, :, None]
    at = (p * r_size + r) * entry_span
    mask = (p < p_size) & (r < r_size)
    if by_parent:
        j_in: tl.constexpr = j_tile // groups
        j = first + tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
        j = j[None, :, None, :]
        at = at + j
        mask = mask & (j < n_parents)
    return at, mask


@triton.jit
def inverse_length(squared):
    """One over a length, zero for a vector shorter than 1e-6, which has no direction."""
    return tl.where(squared > 1e-12, tl.rsqrt(tl.maximum(squared, 1e-12)), 0.0)


@triton.jit
def pairwise_kernel(
    poses,
    weight,
    scales,
    bias,
    given,
    links,
    total,
    squares,
    n_windows,
    n_children,
    n_part,
    geometry,
    spans,
    height,
    width,
    stride_t: tl.constexpr,
    factor,
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
    linked: tl.constexpr,
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
    """Sums over a part of the children for a tile of windows and a block of parents.

    ``linked`` writes the links of the children to ``given`` sums instead; ``weighed`` weighs the
    directions by links that are given, and leaves out the squares.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    first = tl.program_id(2) * j_tile
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    j_in: tl.constexpr = j_tile // groups
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    column = tl.arange(0, r_pad * j_tile)
    r = (column // j_in) % r_pad
    j = first + column // (r_pad * j_in) * j_in + column % j_in
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
        first, spans, n_parents, p_size, r_size, p_pad, r_pad, j_tile, groups, by_parent
    )
    if not varied:
        if has_scale:
            s = tl.load(scales + at, mask=at_mask, other=0.0)[None, :, None, :, :, :]
        if has_bias:
            shift = tl.load(bias + at, mask=at_mask, other=0.0)[None, :, None, :, :, :]
    shape: tl.constexpr = [4, p_pad, inner, groups, r_pad, j_in]
    if linked:
        goal = tl.reshape(tl.load(given + place, mask=place_mask, other=0.0), shape)
    t_total = tl.zeros(shape, dtype=tl.float32)
    q_total = tl.zeros(shape, dtype=tl.float32)

    slot = tile * per_tile + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    slot = slot[:, :, None, None]
    parent = first + tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[None, None, :, :]
    slot_mask = (slot < n_windows) & (parent < n_parents)
    link = slot.to(tl.int64) * (n_children * n_parents) + parent

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
        votes = tl.dot(child, w.to(tl.float32).to(operand), input_precision=precision)
        votes = tl.reshape(votes, shape)
        own = at + i * child_span
        if has_scale:
            if varied:
                s = tl.load(scales + own, mask=at_mask, other=0.0)[None, :, None, :, :, :]
            votes = votes * s
        if has_bias:
            if varied:
                shift = tl.load(bias + own, mask=at_mask, other=0.0)[None, :, None, :, :, :]
            votes = votes + shift
        if normalize:
            squared = tl.sum(tl.sum(votes * votes, axis=4), axis=1)
            votes = votes * inverse_length(squared)[:, None, :, :, None, :]
        if linked:
            both = tl.sum(tl.sum(votes * (goal - votes), axis=4), axis=1)
            tl.store(links + link + i * n_parents, factor * both, mask=slot_mask)
        elif weighed:
            c = tl.load(links + link + i * n_parents, mask=slot_mask, other=0.0)
            t_total += votes * c[:, None, :, :, None, :]
        else:
            t_total += votes
            q_total += votes * votes

    if not linked:
        place += part.to(tl.int64) * n_windows * (p_size * r_size * n_parents)
        columns: tl.constexpr = r_pad * j_tile
        tl.store(total + place, tl.reshape(t_total, [64, columns]), mask=place_mask)
        if not weighed:
            tl.store(squares + place, tl.reshape(q_total, [64, columns]), mask=place_mask)
