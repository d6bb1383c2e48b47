"""Triton kernels of EM routing, backward, for poses with rows of four numbers: no vote is cast.

The gradient of a vote is A + B v, with A and B, one number for every vote, of the same form as in
:mod:`torchcaps.kernels.attend.backward`:

    A, B = r F + dl F', r H + dl H'          r being a share, a coupling times an activation

A vote is v = x W, so what a sum over votes needs of B v is a matrix product with squares:

    dx_q = sum_rj A W_q + sum_q' x_q' sum_rj B W_q W_q'
    dW_q = sum_n x_q A + sum_q' W_q' sum_n x_q x_q' B

Squares in bfloat16 are two numbers, what they round to and the rest.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.backward import two_products
from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["product_child_kernel", "product_weight_kernel"]


@triton.jit
def product_child_kernel(
    poses,
    weight,
    squares,
    squares_rest,
    linear,
    linear_logits,
    square,
    square_logits,
    shares,
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
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Gradient of child poses by window, ``[n i d]``."""
    tile = tl.program_id(0)
    part = tl.program_id(1)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    columns: tl.constexpr = r_pad * j_pad
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    column = tl.arange(0, columns)
    r = column // j_pad
    j = column % j_pad
    k = tl.arange(0, 16)
    q = k // 4
    other = k % 4
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None] + other[None, :]
    read_mask = there[:, None] & (other < q_size)[None, :]
    weights = weight + (q * columns)[:, None] + column[None, :]
    weights_mask = ((q < q_size) & (other == 0))[:, None] & (column >= 0)[None, :]
    pairs = ((q * q_size + other) * columns)[:, None] + column[None, :]
    pairs_mask = ((q < q_size) & (other < q_size))[:, None] & (column >= 0)[None, :]
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
    place = place + (p[:, None] * r_size + r[None, :]) * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    shape: tl.constexpr = [4, p_pad, inner, r_pad, j_pad]
    f = tl.reshape(tl.load(linear + place, mask=place_mask, other=0.0), shape)
    fl = tl.reshape(tl.load(linear_logits + place, mask=place_mask, other=0.0), shape)
    h = tl.reshape(tl.load(square + place, mask=place_mask, other=0.0), shape)
    hl = tl.reshape(tl.load(square_logits + place, mask=place_mask, other=0.0), shape)

    slot = tile * per_tile + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    slot = slot[:, :, None]
    parent = tl.arange(0, j_pad)[None, None, :]
    slot_mask = (slot < n_windows) & (parent < n_parents)
    link = slot.to(tl.int64) * (n_children * n_parents) + parent
    write = d_poses + window.to(tl.int64)[:, None] * (n_children * p_size * q_size)
    write = write + p[:, None] * q_size + tl.arange(0, 4)[None, :]
    write_mask = there[:, None] & (tl.arange(0, 4) < q_size)[None, :]

    start = part * n_part
    end = tl.minimum(start + n_part, n_children)
    for base in tl.range(start, end, block, num_stages=stages):
        for one in tl.static_range(block):
            i = base + one
            known = i < end
            offset, dy, dx = child_place(i, geometry, stride_t, n_types, width_k)
            mask = read_mask & known
            if padded:
                y = top + dy
                x = left + dx
                mask = mask & ((y >= 0) & (y < height) & (x >= 0) & (x < width))[:, None]
            child = tl.load(read + offset, mask=mask, other=0.0).to(tl.float32)
            own = i % n_weights * q_size
            w = tl.load(weights + own * columns, mask=weights_mask & known, other=0.0)
            own = own * (q_size * columns)
            ww = tl.load(squares + own + pairs, mask=pairs_mask & known, other=0.0)
            ww_rest = tl.load(squares_rest + own + pairs, mask=pairs_mask & known, other=0.0)
            c = tl.load(shares + link + i * n_parents, mask=slot_mask & known, other=0.0)
            dl = tl.load(logits + link + i * n_parents, mask=slot_mask & known, other=0.0)
            c = c.to(operand)[:, None, :, None, :]
            dl = dl.to(operand)[:, None, :, None, :]
            d_votes = tl.reshape(two_products(c, f, dl, fl, operand), [64, columns])
            d_slope = tl.reshape(two_products(c, h, dl, hl, operand), [64, columns])
            rows = tl.dot(d_votes, tl.trans(w.to(operand)), input_precision=precision)
            more = tl.dot(d_slope, tl.trans(ww.to(operand)), input_precision=precision)
            more = tl.dot(d_slope, tl.trans(ww_rest.to(operand)), more, input_precision=precision)
            rows = tl.sum(tl.reshape(rows + more * child, [64, 4, 4]), axis=2)
            tl.store(write + i * (p_size * q_size), rows, mask=write_mask & known)


@triton.jit
def _one_child(
    first,
    second,
    read,
    shares,
    logits,
    f,
    fl,
    h,
    hl,
    i,
    one: tl.constexpr,
    there,
    top,
    left,
    link,
    link_mask,
    geometry,
    height,
    width,
    stride_t: tl.constexpr,
    n_children,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
    n_parents: tl.constexpr,
    q_size: tl.constexpr,
    columns: tl.constexpr,
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Add a tile's part of x A, in the columns of this child, and of x x' B."""
    k = tl.arange(0, 16)
    known = i < n_children
    offset, dy, dx = child_place(i, geometry, stride_t, n_types, width_k)
    there = there & known
    if padded:
        y = top + dy
        x = left + dx
        there = there & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    read = read[:, None] + offset
    mask = there[:, None] & (k % 4 < q_size)[None, :]
    by = tl.load(read + (k % 4)[None, :], mask=mask, other=0.0).to(tl.float32)
    mask = there[:, None] & (k // 4 < q_size)[None, :]
    xx = tl.load(read + (k // 4)[None, :], mask=mask, other=0.0).to(tl.float32) * by
    x = tl.where((k // 4 == one)[None, :], by, 0.0).to(operand)
    high = xx.to(operand)
    rest = (xx - high.to(tl.float32)).to(operand)
    c = tl.load(shares + link + i * n_parents, mask=link_mask & known, other=0.0)
    dl = tl.load(logits + link + i * n_parents, mask=link_mask & known, other=0.0)
    c = c.to(operand)[None, :, :, None]
    dl = dl.to(operand)[None, :, :, None]
    d_votes = tl.reshape(two_products(c, f, dl, fl, operand), [columns, 64])
    d_slope = tl.reshape(two_products(c, h, dl, hl, operand), [columns, 64])
    first = tl.dot(d_votes, x, first, input_precision=precision)
    second = tl.dot(d_slope, high, second, input_precision=precision)
    return first, tl.dot(d_slope, rest, second, input_precision=precision)


@triton.jit
def _contracted(second, weight, i, one: tl.constexpr, q_size: tl.constexpr, columns: tl.constexpr):
    """Sum over q' of W_q' times ``[(r j) (q q')]``, in the columns of this child."""
    k = tl.arange(0, 16)
    w = weight + (i * q_size + k % 4)[None, :] * columns + tl.arange(0, columns)[:, None]
    w = tl.load(w, mask=((k % 4 < q_size) & (i >= 0))[None, :], other=0.0).to(tl.float32)
    total = tl.sum(tl.reshape(second * w, [columns, 4, 4]), axis=2)
    total = tl.where((tl.arange(0, 4) == one)[None, :, None], total[:, None, :], 0.0)
    return tl.reshape(total, [columns, 16])


@triton.jit
def product_weight_kernel(
    poses,
    weight,
    linear,
    linear_logits,
    square,
    square_logits,
    shares,
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
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Gradient of the weights ``[part i q (r j)]`` of four children over a range of tiles.

    Linear and square are ``[tile r j (w p)]`` here.
    """
    base = tl.program_id(0) * block
    part = tl.program_id(1)
    per_tile: tl.constexpr = 64 // p_pad
    columns: tl.constexpr = r_pad * j_pad
    shape: tl.constexpr = [r_pad, j_pad, per_tile, p_pad]
    row = tl.arange(0, 64)
    p = row % p_pad
    column = tl.arange(0, columns)
    r = column // j_pad
    j = column % j_pad
    column_mask = (r < r_size) & (j < n_parents)
    first = tl.zeros([columns, 16], dtype=tl.float32)
    second0 = tl.zeros([columns, 16], dtype=tl.float32)
    second1 = tl.zeros([columns, 16], dtype=tl.float32)
    second2 = tl.zeros([columns, 16], dtype=tl.float32)
    second3 = tl.zeros([columns, 16], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * per_tile + row // p_pad
        there = (window < n_windows) & (p < p_size)
        origin, top, left = window_origin(window, geometry, width_out, area_out)
        read = poses + origin + p * q_size
        place = tl.zeros([1], tl.int64) + tile
        place = (place * (r_size * n_parents) + r * n_parents + j) * 64
        place = place[:, None] + row[None, :]
        mask = column_mask[:, None] & (window < n_windows)[None, :]
        f = tl.reshape(tl.load(linear + place, mask=mask, other=0.0), shape)
        fl = tl.reshape(tl.load(linear_logits + place, mask=mask, other=0.0), shape)
        h = tl.reshape(tl.load(square + place, mask=mask, other=0.0), shape)
        hl = tl.reshape(tl.load(square_logits + place, mask=mask, other=0.0), shape)
        slot = (tile * per_tile + tl.arange(0, per_tile))[None, :]
        parent = tl.arange(0, j_pad)[:, None]
        link = slot.to(tl.int64) * (n_children * n_parents) + parent
        link_mask = (slot < n_windows) & (parent < n_parents)
        first, second0 = _one_child(
            first, second0, read, shares, logits, f, fl, h, hl, base, 0, there, top, left,
            link, link_mask, geometry, height, width, stride_t, n_children, width_k, n_types,
            n_parents, q_size, columns, padded, operand, precision,
        )  # fmt: skip
        first, second1 = _one_child(
            first, second1, read, shares, logits, f, fl, h, hl, base + 1, 1, there, top, left,
            link, link_mask, geometry, height, width, stride_t, n_children, width_k, n_types,
            n_parents, q_size, columns, padded, operand, precision,
        )  # fmt: skip
        first, second2 = _one_child(
            first, second2, read, shares, logits, f, fl, h, hl, base + 2, 2, there, top, left,
            link, link_mask, geometry, height, width, stride_t, n_children, width_k, n_types,
            n_parents, q_size, columns, padded, operand, precision,
        )  # fmt: skip
        first, second3 = _one_child(
            first, second3, read, shares, logits, f, fl, h, hl, base + 3, 3, there, top, left,
            link, link_mask, geometry, height, width, stride_t, n_children, width_k, n_types,
            n_parents, q_size, columns, padded, operand, precision,
        )  # fmt: skip
    total = first
    total += _contracted(second0, weight, base % n_weights, 0, q_size, columns)
    total += _contracted(second1, weight, (base + 1) % n_weights, 1, q_size, columns)
    total += _contracted(second2, weight, (base + 2) % n_weights, 2, q_size, columns)
    total += _contracted(second3, weight, (base + 3) % n_weights, 3, q_size, columns)
    k = tl.arange(0, 16)
    child = base + k // 4
    write = (part.to(tl.int64) * n_children + child) * q_size + k % 4
    mask = ((child < n_children) & (k % 4 < q_size))[None, :] & (column >= 0)[:, None]
    tl.store(d_weight + write[None, :] * columns + column[:, None], total, mask=mask)
