"""Triton kernels of EM routing, backward: gradients of child poses and weights.

The gradient of a vote is r (f + 2 h d) from the moments and dl (f' + 2 h' d) from the logits, with
names as in :mod:`torchcaps.kernels.moments.forward`; it depends on the vote, which is cast
once more. h and h' come doubled, and f' or h' may be absent.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["gaussian_child_kernel", "gaussian_weight_kernel"]


@triton.jit
def _vote_gradient(
    off, r, dl, f, h, f_logits, h_logits, has_linear: tl.constexpr, has_square: tl.constexpr
):
    """R (f + h d) from the moments and dl (f' + h' d) from the logits; h and h' come doubled."""
    if has_linear and has_square:
        return r * f + dl * f_logits + (r * h + dl * h_logits) * off
    elif has_linear:
        return r * f + dl * f_logits + r * h * off
    elif has_square:
        return r * f + (r * h + dl * h_logits) * off
    else:
        return r * (f + h * off)


@triton.jit
def gaussian_child_kernel(
    poses,
    weight,
    bias,
    activations,
    center,
    linear,
    square,
    linear_logits,
    square_logits,
    couplings,
    logits,
    d_poses,
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
    uniform: tl.constexpr,
    padded: tl.constexpr,
    has_bias: tl.constexpr,
    has_linear: tl.constexpr,
    has_square: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Gradient of child poses by window, ``[n i d]``: votes are cast once more."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    column = tl.arange(0, r_pad * j_pad)
    r = column // j_pad
    j = column % j_pad
    k = tl.arange(0, q_pad)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None] + k[None, :]
    read_mask = there[:, None] & (k < q_size)[None, :]
    weights = weight + k[:, None] * (r_pad * j_pad) + column[None, :]
    weights_mask = (k < q_size)[:, None] & (column >= 0)[None, :]
    e = p[:, None] * r_size + r[None, :]
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
    place = place + e * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    shape: tl.constexpr = [4, p_pad, inner, r_pad, j_pad]
    middle = tl.load(center + place, mask=place_mask, other=0.0).to(tl.float32)
    f = tl.load(linear + place, mask=place_mask, other=0.0)
    h = tl.load(square + place, mask=place_mask, other=0.0)
    f_logits = f
    h_logits = h
    if has_linear:
        f_logits = tl.load(linear_logits + place, mask=place_mask, other=0.0)
    if has_square:
        h_logits = tl.load(square_logits + place, mask=place_mask, other=0.0)
    middle = tl.reshape(middle, shape)
    f = tl.reshape(f, shape)
    h = tl.reshape(h, shape)
    f_logits = tl.reshape(f_logits, shape)
    h_logits = tl.reshape(h_logits, shape)

    slot = tile * per_tile + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    parent = tl.arange(0, j_pad)[None, None, :]
    slots = slot[:, :, None]
    slot_mask = (slots < n_windows) & (parent < n_parents)
    link = slots.to(tl.int64) * (n_children * n_parents) + parent
    write = d_poses + window.to(tl.int64)[:, None] * (n_children * p_size * q_size)
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
        votes = tl.dot(child, w, input_precision=precision)
        if has_bias:
            shift = tl.load(bias + i * (p_size * r_size) + e, mask=place_mask, other=0.0)
            votes += shift.to(tl.float32)
        off = tl.reshape(votes, shape) - middle
        at = slot.to(tl.int64) * n_children + i
        a = tl.load(activations + at, mask=slot < n_windows, other=0.0).to(tl.float32)[:, :, None]
        if uniform:
            share = tl.where(parent < n_parents, a / n_parents, 0.0)
            dl = share
        else:
            share = tl.load(couplings + link + i * n_parents, mask=slot_mask, other=0.0)
            share = share.to(tl.float32) * a
            dl = tl.load(logits + link + i * n_parents, mask=slot_mask, other=0.0).to(tl.float32)
        d_votes = _vote_gradient(
            off,
            share[:, None, :, None, :],
            dl[:, None, :, None, :],
            f,
            h,
            f_logits,
            h_logits,
            has_linear,
            has_square,
        )
        d_votes = tl.reshape(d_votes, [64, r_pad * j_pad]).to(operand)
        rows = tl.dot(d_votes, tl.trans(w), input_precision=precision)
        tl.store(write + i * (p_size * q_size), rows, mask=read_mask)


@triton.jit
def gaussian_weight_kernel(
    poses,
    weight,
    bias,
    activations,
    center,
    linear,
    square,
    linear_logits,
    square_logits,
    couplings,
    logits,
    d_weight,
    n_windows,
    n_children,
    tiles,
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
    block: tl.constexpr,
    uniform: tl.constexpr,
    padded: tl.constexpr,
    has_bias: tl.constexpr,
    has_linear: tl.constexpr,
    has_square: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Gradient of the weights ``[i q (r j)]`` of a block of children over a range of tiles.

    Center, linear and square are ``[tile r j (w p)]`` here.
    """
    first_child = tl.program_id(0) * block
    part = tl.program_id(1)
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    p = row % p_pad
    column = tl.arange(0, r_pad * j_pad)
    r = column // j_pad
    j = column % j_pad
    column_mask = (r < r_size) & (j < n_parents)
    k = tl.arange(0, block * q_pad)
    g = k // q_pad
    q = k % q_pad
    child = first_child + g
    child_mask = (child < n_children) & (q < q_size)
    offset, dy, dx = child_place(child, geometry, stride_t, n_types, width_k)
    w = weight + ((child % n_weights) * q_size + q)[None, :] * (r_pad * j_pad) + column[:, None]
    w = tl.load(w, mask=child_mask[None, :] & (column >= 0)[:, None], other=0.0).to(tl.float32)
    parent = tl.arange(0, j_pad)[:, None]
    total = tl.zeros([r_pad * j_pad, block * q_pad], dtype=tl.float32)
    shape: tl.constexpr = [r_pad, j_pad, per_tile, p_pad]

    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * per_tile + row // p_pad
        there = (window < n_windows) & (p < p_size)
        origin, top, left = window_origin(window, geometry, width_out, area_out)
        mask = there[:, None] & child_mask[None, :]
        if padded:
            y = top[:, None] + dy[None, :]
            x = left[:, None] + dx[None, :]
            mask = mask & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        read = poses + (origin + p * q_size)[:, None] + (offset + q)[None, :]
        rows = tl.load(read, mask=mask, other=0.0).to(tl.float32)
        place = tl.zeros([1], tl.int64) + tile
        place = (place * (r_size * n_parents) + r * n_parents + j) * 64
        place = place[:, None] + row[None, :]
        place_mask = column_mask[:, None] & (window < n_windows)[None, :]
        middle = tl.load(center + place, mask=place_mask, other=0.0).to(tl.float32)
        f = tl.load(linear + place, mask=place_mask, other=0.0)
        h = tl.load(square + place, mask=place_mask, other=0.0)
        f_logits = f
        h_logits = h
        if has_linear:
            f_logits = tl.load(linear_logits + place, mask=place_mask, other=0.0)
        if has_square:
            h_logits = tl.load(square_logits + place, mask=place_mask, other=0.0)
        slot = (tile * per_tile + tl.arange(0, per_tile))[None, :]
        link = slot.to(tl.int64) * (n_children * n_parents) + parent
        for one in tl.static_range(block):
            i = first_child + one
            own_w = tl.where((g == one)[None, :], w, 0.0).to(operand)
            own = tl.where((g == one)[None, :], rows, 0.0).to(operand)
            votes = tl.dot(own_w, tl.trans(own), input_precision=precision)
            if has_bias:
                e = p[None, :] * r_size + r[:, None]
                shift = tl.load(
                    bias + i * (p_size * r_size) + e,
                    mask=place_mask & (p < p_size)[None, :] & (i < n_children),
                    other=0.0,
                )
                votes += shift.to(tl.float32)
            at = slot.to(tl.int64) * n_children + i
            here = (slot < n_windows) & (i < n_children)
            a = tl.load(activations + at, mask=here, other=0.0).to(tl.float32)
            if uniform:
                share = tl.where(parent < n_parents, a / n_parents, 0.0)
                dl = share
            else:
                link_mask = here & (parent < n_parents)
                share = tl.load(couplings + link + i * n_parents, mask=link_mask, other=0.0)
                share = share.to(tl.float32) * a
                dl = tl.load(logits + link + i * n_parents, mask=link_mask, other=0.0)
                dl = dl.to(tl.float32)
            d_votes = _vote_gradient(
                tl.reshape(votes - middle, shape),
                share[None, :, :, None],
                dl[None, :, :, None],
                tl.reshape(f, shape),
                tl.reshape(h, shape),
                tl.reshape(f_logits, shape),
                tl.reshape(h_logits, shape),
                has_linear,
                has_square,
            )
            d_votes = tl.reshape(d_votes, [r_pad * j_pad, 64]).to(operand)
            total = tl.dot(d_votes, own, total, input_precision=precision)

    write = d_weight + (part.to(tl.int64) * n_children + child)[None, :] * (q_size * r_pad * j_pad)
    write = write + q[None, :] * (r_pad * j_pad) + column[:, None]
    tl.store(write, total, mask=child_mask[None, :] & (column >= 0)[:, None])
