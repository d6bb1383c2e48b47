"""Triton kernels of EM routing: weighted moments of votes that are cast and never stored.

With d = v_ij - m_j, the distance of a vote from where its parent was before,

    l_ij = k_j + sum_e d (f_je + h_je d)       a quadratic form of the vote
    r_ij = a_i softmax_j(l_ij)                 E-step, line 3 (f = 0), and M-step, line 2
    M_j, D_j, S_j = sum_i r_ij (1, d, d^2)     what lines 3 and 4 need

The gradient of r_ij is a quadratic form too, and the gradients of k, f and h are moments weighed by
the gradient of l_ij: one kernel does both. Tiles are those of the agreement kernels.

Where all parents of a child compete, and not those of one window alone, the softmax is over the
slots i that show it too. A pass before this one then writes what every slot adds to the sums over
its child:

    log sum_j exp(l_ij)           forward; the softmax over slots of it multiplies that over j
    sum_j c_ij dc_ij, sum_j c_ij  backward; the first is what a softmax takes off its gradient
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["moments_kernel"]


@triton.jit
def moments_kernel(
    poses,
    weight,
    bias,
    activations,
    center,
    constant,
    linear,
    square,
    couplings,
    gradient,
    logits,
    d_activations,
    slot_sums,
    mass,
    first_moment,
    second_moment,
    n_windows,
    n_children,
    n_part,
    geometry,
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
    groups: tl.constexpr,
    uniform: tl.constexpr,
    coupled: tl.constexpr,
    surveyed: tl.constexpr,
    survey: tl.constexpr,
    backward: tl.constexpr,
    padded: tl.constexpr,
    has_bias: tl.constexpr,
    has_linear: tl.constexpr,
    has_square: tl.constexpr,
    has_gradient: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Moments of a tile of windows over a part of the children.

    Forward: the form gives the logits, unless couplings are ``uniform`` or known (``coupled``, for
    the second moment alone); moments are weighed by r.
    Backward: the form gives the gradient of r; moments are weighed by the gradient of the logits.
    ``survey`` takes no moments and writes what slots add to the sums over their child; with
    ``surveyed`` these are known: the share of every slot or, backward, the sum over all.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    j_in: tl.constexpr = j_pad // groups
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
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
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
    place = place + e * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    middle = tl.load(center + place, mask=place_mask, other=0.0).to(tl.float32)
    middle = tl.reshape(middle, [4, p_pad, inner, groups, r_pad, j_in])
    if has_square:
        h = tl.load(square + place, mask=place_mask, other=0.0).to(tl.float32)
        h = tl.reshape(h, [4, p_pad, inner, groups, r_pad, j_in])
    if has_linear:
        f = tl.load(linear + place, mask=place_mask, other=0.0).to(tl.float32)
        f = tl.reshape(f, [4, p_pad, inner, groups, r_pad, j_in])
    d_total = tl.zeros([4, p_pad, inner, groups, r_pad, j_in], dtype=tl.float32)
    s_total = tl.zeros([4, p_pad, inner, groups, r_pad, j_in], dtype=tl.float32)

    slot = tile * per_tile + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    parent = tl.arange(0, groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[None, None, :, :]
    slots = slot[:, :, None, None]
    slot_mask = (slots < n_windows) & (parent < n_parents)
    start_of = slots.to(tl.int64) * n_parents + parent
    if backward or not (uniform or coupled):
        base = tl.load(constant + start_of, mask=slot_mask, other=0.0).to(tl.float32)
    link = slots.to(tl.int64) * (n_children * n_parents) + parent
    m_total = tl.zeros([4, inner, groups, j_in], dtype=tl.float32)

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
        at = slot.to(tl.int64) * n_children + i
        a = tl.load(activations + at, mask=slot < n_windows, other=0.0).to(tl.float32)
        off = tl.reshape(votes, [4, p_pad, inner, groups, r_pad, j_in]) - middle
        if has_linear and has_square:
            form = base + tl.sum(tl.sum(off * (f + h * off), axis=4), axis=1)
        elif has_linear:
            form = base + tl.sum(tl.sum(off * f, axis=4), axis=1)
        elif has_square:
            form = base + tl.sum(tl.sum(off * off * h, axis=4), axis=1)
        if backward:
            if uniform:
                c = tl.where(parent < n_parents, 1.0 / n_parents, 0.0)
            else:
                c = tl.load(couplings + link + i * n_parents, mask=slot_mask, other=0.0)
                c = c.to(tl.float32)
            mean = tl.sum(tl.sum(c * form, axis=3), axis=2)
            if not survey:
                tl.store(d_activations + at, mean, mask=slot < n_windows)
            form = form * a[:, :, None, None]
            mean = mean * a
            if has_gradient:
                more = tl.load(gradient + link + i * n_parents, mask=slot_mask, other=0.0)
                more = more.to(tl.float32)
                form += more
                mean += tl.sum(tl.sum(c * more, axis=3), axis=2)
            total = tl.sum(tl.sum(c, axis=3), axis=2)
            if survey:
                tl.store(slot_sums + 2 * at, mean, mask=slot < n_windows)
                tl.store(slot_sums + 2 * at + 1, total, mask=slot < n_windows)
            if surveyed:
                mean = tl.load(slot_sums + at, mask=slot < n_windows, other=0.0)
            else:
                mean = mean / tl.maximum(total, 0.5)
            weigh = c * (form - mean[:, :, None, None])
            if not (uniform or survey):
                tl.store(logits + link + i * n_parents, weigh, mask=slot_mask)
        elif coupled:
            c = tl.load(couplings + link + i * n_parents, mask=slot_mask, other=0.0)
            weigh = c.to(tl.float32) * a[:, :, None, None]
        elif uniform:
            weigh = tl.where(parent < n_parents, 1.0 / n_parents, 0.0) * a[:, :, None, None]
        else:
            form = tl.where(parent < n_parents, form, float("-inf"))
            most = tl.max(tl.max(form, axis=3), axis=2)
            c = tl.exp(form - most[:, :, None, None])
            norm = tl.sum(tl.sum(c, axis=3), axis=2)
            if survey:
                tl.store(slot_sums + at, most + tl.log(norm), mask=slot < n_windows)
            scale = 1.0 / norm
            if surveyed:
                scale *= tl.load(slot_sums + at, mask=slot < n_windows, other=0.0)
            c = c * scale[:, :, None, None]
            if not survey:
                tl.store(couplings + link + i * n_parents, c, mask=slot_mask)
            weigh = c * a[:, :, None, None]
        if not (survey or (backward and uniform)):
            off_weighed = off * weigh[:, None, :, :, None, :]
            s_total += off_weighed * off
            if not coupled:
                d_total += off_weighed
                m_total += weigh

    if not survey:
        place += part.to(tl.int64) * n_windows * (p_size * r_size * n_parents)
        tl.store(first_moment + place, tl.reshape(d_total, [64, r_pad * j_pad]), mask=place_mask)
        tl.store(second_moment + place, tl.reshape(s_total, [64, r_pad * j_pad]), mask=place_mask)
        start_of += part.to(tl.int64) * n_windows * n_parents
        tl.store(mass + start_of, m_total, mask=slot_mask)
