"""Triton kernels of one agreement step: couplings from votes that are cast and never stored.

    l_ij = v_ij . P_j            agreement, P being scaled beforehand, for powers of two
    c_ij = softmax_j(l_ij)       coupling, over parents
    s_j  = sum_i c_ij v_ij       pose

A program owns a tile of 64 rows, a row being one row p of the pose of one window, and goes through
children one by one: one matrix product casts the votes of all 64 rows for all parents. Columns are
(j r j') with as many j as there are groups of 4 warps, and rows (w p w') with 16 rows to a warp, so
that sums over a pose stay inside a thread but for one shuffle.

Parents are ``[n p r j]`` here, weights ``[t q r j]``; sizes ending in ``_pad`` are powers of two.
Everything is summed in float32 in a fixed order: the same input gives the same bits.
"""

import triton
import triton.language as tl

__all__ = ["attend_kernel", "child_place", "window_origin"]


@triton.jit
def window_origin(window, geometry, width_out, area_out):
    """Offset of a window's first child, and the grid row and column it has."""
    stride_b, stride_h, stride_w, step_h, step_w, pad_h, pad_w = geometry
    place = window % area_out
    y = (place // width_out) * step_h - pad_h
    x = (place % width_out) * step_w - pad_w
    return (window // area_out).to(tl.int64) * stride_b + y * stride_h + x * stride_w, y, x


@triton.jit
def child_place(i, geometry, stride_t: tl.constexpr, n_types: tl.constexpr, width_k: tl.constexpr):
    """Offset of child i in its window, and the row and column of its place there.

    The step from child to child is compiled in: of a number it is told, Triton knows only whether
    16 divides it, and poses of 8 or 36 would be read two bytes at a time and none ahead.
    """
    _, stride_h, stride_w, _, _, _, _ = geometry
    place = i // n_types
    y = place // width_k
    x = place % width_k
    return y * stride_h + x * stride_w + (i % n_types) * stride_t, y, x


@triton.jit
def attend_kernel(
    poses,
    weight,
    bias,
    parents,
    couplings,
    gradient,
    logits,
    out,
    n_windows,
    n_children,
    n_part,
    geometry,
    height,
    width,
    stride_t: tl.constexpr,
    scale,
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
    groups: tl.constexpr,
    backward: tl.constexpr,
    leaky: tl.constexpr,
    padded: tl.constexpr,
    has_bias: tl.constexpr,
    has_gradient: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """One step for a tile of windows and a part of the children.

    Forward: ``parents`` are P; writes couplings and the weighted sum of the votes. Backward:
    ``parents`` are the gradient of the sum, ``gradient`` that of the couplings; reads couplings,
    writes the gradient of the logits, times scale, and of P. Rounded couplings do not sum to one,
    which the mean has to make up for.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    j_in: tl.constexpr = j_pad // groups
    column = tl.arange(0, r_pad * j_pad)
    r = (column // j_in) % r_pad
    j = column // (r_pad * j_in) * j_in + column % j_in
    k = tl.arange(0, q_pad)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None] + k[None, :]
    read_mask = there[:, None] & (k < q_size)[None, :]
    weights = weight + k[:, None] * (r_pad * j_pad) + (r * j_pad + j)[None, :]
    weights_mask = (k < q_size)[:, None] & (column >= 0)[None, :]

    e = p[:, None] * r_size + r[None, :]
    place = (
        window.to(tl.int64)[:, None] * (p_size * r_size * n_parents) + e * n_parents + j[None, :]
    )
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    given = tl.load(parents + place, mask=place_mask, other=0.0).to(tl.float32)
    given = tl.reshape(
        given * (1.0 if backward else scale * 1.4426950408889634),
        [4, p_pad, inner, groups, r_pad, j_in],
    )
    total = tl.zeros([4, p_pad, inner, groups, r_pad, j_in], dtype=tl.float32)

    first = tl.arange(0, 4)
    second = tl.arange(0, inner)
    parent = tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[None, None, :, :]
    slot = (tile * per_tile + first[:, None] * inner + second[None, :])[:, :, None, None]
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
        if has_bias:
            shift = tl.load(bias + i * (p_size * r_size) + e, mask=place_mask, other=0.0)
            votes += shift.to(tl.float32)
        votes = tl.reshape(votes, [4, p_pad, inner, groups, r_pad, j_in])
        agreement = tl.sum(tl.sum(votes * given, axis=4), axis=1)
        if backward:
            c = tl.load(couplings + link + i * n_parents, mask=slot_mask, other=0.0).to(tl.float32)
            if has_gradient:
                more = tl.load(gradient + link + i * n_parents, mask=slot_mask, other=0.0)
                agreement += more.to(tl.float32)
            mean = tl.sum(tl.sum(c * agreement, axis=3), axis=2)
            if not leaky:
                mean = mean / tl.maximum(tl.sum(tl.sum(c, axis=3), axis=2), 0.5)
            weigh = scale * c * (agreement - mean[:, :, None, None])
            tl.store(logits + link + i * n_parents, weigh, mask=slot_mask)
        else:
            agreement = tl.where(parent < n_parents, agreement, float("-inf"))
            most = tl.max(tl.max(agreement, axis=3), axis=2)
            if leaky:
                most = tl.maximum(most, 0.0)
            weigh = tl.exp2(agreement - most[:, :, None, None])
            norm = tl.sum(tl.sum(weigh, axis=3), axis=2)
            if leaky:
                norm += tl.exp2(-most)
            weigh = weigh * (1.0 / norm)[:, :, None, None]
            tl.store(couplings + link + i * n_parents, weigh, mask=slot_mask)
        total += votes * weigh[:, None, :, :, None, :]

    place += part.to(tl.int64) * n_windows * (p_size * r_size * n_parents)
    tl.store(out + place, tl.reshape(total, [64, r_pad * j_pad]), mask=place_mask)
