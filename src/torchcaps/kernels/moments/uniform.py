"""Triton kernels of EM routing's first iteration: with uniform couplings, no vote is cast.

A vote is v = x W, row by row of a pose, so its square is a matrix product too:

    v_r^2 = sum_qq' x_q x_q' W_qr W_q'r

A child has 16 products x_q x_q' where a tile of 32 parents has 128 votes, and sums over children
or windows, weighed by activations, happen inside the tensor cores:

    sum_i a_i v, sum_i a_i v^2 = (a x) W, (a x x') (W W')          moments
    T, G                       = F W^T, H (W W')^T                 for the gradients
    dx, da                     = a (T + 2 G x), K + x . (T + G x)  of poses and activations
    dW                         = (a x)^T F + 2 ((a x x')^T H) W    of weights

where K + F v + H v^2 is the gradient of r_ij, over the number of parents. An operand in bfloat16 is
two numbers, what it rounds to and the rest: moments about zero are larger than those about the
mean. Rows are (w p), columns (r j), products (i q q') of a block of children.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["uniform_child_kernel", "uniform_moments_kernel", "uniform_weight_kernel"]


@triton.jit
def _halves(x, operand: tl.constexpr):
    """What x rounds to, and the rest."""
    high = x.to(operand)
    return high, (x - high.to(tl.float32)).to(operand)


@triton.jit
def _squares(x, y, rows: tl.constexpr, block: tl.constexpr):
    """x_q y_q' of every child: ``[rows (i q)]`` twice gives ``[rows (i q q')]``."""
    x = tl.reshape(x, [rows, block, 4])
    y = tl.reshape(y, [rows, block, 4])
    return tl.reshape(x[:, :, :, None] * y[:, :, None, :], [rows, block * 16])


@triton.jit
def _children(
    read,
    weights,
    base,
    end,
    there,
    top,
    left,
    geometry,
    height,
    width,
    stride_t: tl.constexpr,
    n_children,
    n_types: tl.constexpr,
    width_k: tl.constexpr,
    q_size: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
):
    """Poses and activations ``[rows (i q)]`` of a block of children, in float32."""
    k = tl.arange(0, block * 4)
    child = base + k // 4
    offset, dy, dx = child_place(child, geometry, stride_t, n_types, width_k)
    mask = there[:, None] & ((child < end) & (k % 4 < q_size))[None, :]
    a = tl.load(weights + child[None, :], mask=mask, other=0.0).to(tl.float32)
    if padded:
        y = top[:, None] + dy[None, :]
        x = left[:, None] + dx[None, :]
        mask = mask & (y >= 0) & (y < height) & (x >= 0) & (x < width)
    x = tl.load(read + (offset + k % 4)[None, :], mask=mask, other=0.0).to(tl.float32)
    return x, a


@triton.jit
def uniform_moments_kernel(
    poses,
    weight,
    squares,
    squares_rest,
    activations,
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
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Sums of a v and a v^2 ``[part n p r j]`` of a tile over a part of the children."""
    columns: tl.constexpr = r_pad * j_pad
    row = tl.arange(0, 64)
    window = tl.program_id(0) * (64 // p_pad) + row // p_pad
    p = row % p_pad
    column = tl.arange(0, columns)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None]
    active = activations + (window.to(tl.int64) * n_children)[:, None]
    k = tl.arange(0, block * 4)
    kk = tl.arange(0, block * 16)
    first = tl.zeros([64, columns], dtype=tl.float32)
    second = tl.zeros([64, columns], dtype=tl.float32)
    start = tl.program_id(1) * n_part
    end = tl.minimum(start + n_part, n_children)
    for base in tl.range(start, end, block, num_stages=stages):
        x, a = _children(
            read, active, base, end, there, top, left, geometry, height, width, stride_t,
            n_children, n_types, width_k, q_size, block, padded,
        )  # fmt: skip
        at = (base + k // 4) % n_weights * q_size + k % 4
        mask = ((base + k // 4 < end) & (k % 4 < q_size))[:, None] & (column >= 0)[None, :]
        w = tl.load(weight + at[:, None] * columns + column[None, :], mask=mask, other=0.0)
        at = ((base + kk // 16) % n_weights * q_size + kk // 4 % 4) * q_size + kk % 4
        mask = (base + kk // 16 < end) & (kk // 4 % 4 < q_size) & (kk % 4 < q_size)
        mask = mask[:, None] & (column >= 0)[None, :]
        pair = at[:, None] * columns + column[None, :]
        ww = tl.load(squares + pair, mask=mask, other=0.0).to(operand)
        ww_rest = tl.load(squares_rest + pair, mask=mask, other=0.0).to(operand)
        w = w.to(operand)
        ax, ax_rest = _halves(a * x, operand)
        axx, axx_rest = _halves(_squares(a * x, x, 64, block), operand)
        first = tl.dot(ax, w, first, input_precision=precision)
        first = tl.dot(ax_rest, w, first, input_precision=precision)
        second = tl.dot(axx, ww, second, input_precision=precision)
        second = tl.dot(axx_rest, ww, second, input_precision=precision)
        second = tl.dot(axx, ww_rest, second, input_precision=precision)
    r = column // j_pad
    j = column % j_pad
    out = (tl.program_id(1).to(tl.int64) * n_windows + window)[:, None] * p_size + p[:, None]
    out = (out * r_size + r[None, :]) * n_parents + j[None, :]
    mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    tl.store(first_moment + out, first, mask=mask)
    tl.store(second_moment + out, second, mask=mask)


@triton.jit
def uniform_child_kernel(
    poses,
    weight,
    squares,
    squares_rest,
    activations,
    constant,
    linear,
    linear_rest,
    square,
    square_rest,
    d_poses,
    d_activations,
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
    """Gradients of child poses by window, ``[n i d]``, and of activations ``[n i]``.

    Linear and square are ``[n p r j]``; constant is ``[n]``, summed over parents.
    """
    columns: tl.constexpr = r_pad * j_pad
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    window = tl.program_id(0) * per_tile + row // p_pad
    p = row % p_pad
    column = tl.arange(0, columns)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = window_origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None]
    active = activations + (window.to(tl.int64) * n_children)[:, None]
    r = column // j_pad
    j = column % j_pad
    place = (window.to(tl.int64)[:, None] * p_size + p[:, None]) * r_size + r[None, :]
    place = place * n_parents + j[None, :]
    mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    f = tl.load(linear + place, mask=mask, other=0.0).to(operand)
    f_rest = tl.load(linear_rest + place, mask=mask, other=0.0).to(operand)
    h = tl.load(square + place, mask=mask, other=0.0).to(operand)
    h_rest = tl.load(square_rest + place, mask=mask, other=0.0).to(operand)
    slot = tl.program_id(0) * per_tile + tl.arange(0, per_tile)
    one = tl.load(constant + slot, mask=slot < n_windows, other=0.0)
    k = tl.arange(0, block * 4)
    kk = tl.arange(0, block * 16)
    write = (window.to(tl.int64) * n_children)[:, None] * (p_size * q_size)
    write = d_poses + write + (p * q_size)[:, None]
    start = tl.program_id(1) * n_part
    end = tl.minimum(start + n_part, n_children)
    for base in tl.range(start, end, block, num_stages=stages):
        x, a = _children(
            read, active, base, end, there, top, left, geometry, height, width, stride_t,
            n_children, n_types, width_k, q_size, block, padded,
        )  # fmt: skip
        child = base + k // 4
        at = child % n_weights * q_size + k % 4
        known = (child < end) & (k % 4 < q_size)
        mask = known[:, None] & (column >= 0)[None, :]
        w = tl.load(weight + at[:, None] * columns + column[None, :], mask=mask, other=0.0)
        at = ((base + kk // 16) % n_weights * q_size + kk // 4 % 4) * q_size + kk % 4
        mask = (base + kk // 16 < end) & (kk // 4 % 4 < q_size) & (kk % 4 < q_size)
        mask = mask[:, None] & (column >= 0)[None, :]
        pair = at[:, None] * columns + column[None, :]
        ww = tl.trans(tl.load(squares + pair, mask=mask, other=0.0).to(operand))
        ww_rest = tl.trans(tl.load(squares_rest + pair, mask=mask, other=0.0).to(operand))
        w = tl.trans(w.to(operand))
        t = tl.dot(f, w, input_precision=precision)
        t = tl.dot(f_rest, w, t, input_precision=precision)
        g = tl.dot(h, ww, input_precision=precision)
        g = tl.dot(h_rest, ww, g, input_precision=precision)
        g = tl.dot(h, ww_rest, g, input_precision=precision)
        other = tl.reshape(x, [64, block, 4])[:, :, None, :]
        gx = tl.sum(tl.reshape(g, [64, block, 4, 4]) * other, axis=3)
        gx = tl.reshape(gx, [64, block * 4])
        tl.store(
            write + child[None, :] * (p_size * q_size) + (k % 4)[None, :],
            a * (t + 2.0 * gx),
            mask=there[:, None] & known[None, :],
        )
        of_a = tl.reshape(x * (t + gx), [per_tile, p_pad, block, 4])
        of_a = tl.sum(tl.sum(of_a, axis=3), axis=1) + one[:, None]
        child = base + tl.arange(0, block)
        tl.store(
            d_activations + slot.to(tl.int64)[:, None] * n_children + child[None, :],
            of_a,
            mask=(slot < n_windows)[:, None] & (child < end)[None, :],
        )


@triton.jit
def uniform_weight_kernel(
    poses,
    weight,
    activations,
    linear,
    linear_rest,
    square,
    square_rest,
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
    """Gradient of the weights ``[part i q (r j)]`` of a block of children over a range of tiles."""
    columns: tl.constexpr = r_pad * j_pad
    base = tl.program_id(0) * block
    part = tl.program_id(1)
    row = tl.arange(0, 64)
    p = row % p_pad
    column = tl.arange(0, columns)
    r = column // j_pad
    j = column % j_pad
    column_mask = (r < r_size) & (j < n_parents)
    first = tl.zeros([columns, block * 4], dtype=tl.float32)
    second = tl.zeros([columns, block * 16], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * (64 // p_pad) + row // p_pad
        there = (window < n_windows) & (p < p_size)
        origin, top, left = window_origin(window, geometry, width_out, area_out)
        read = poses + (origin + p * q_size)[:, None]
        active = activations + (window.to(tl.int64) * n_children)[:, None]
        x, a = _children(
            read, active, base, n_children, there, top, left, geometry, height, width, stride_t,
            n_children, n_types, width_k, q_size, block, padded,
        )  # fmt: skip
        place = (window.to(tl.int64)[:, None] * p_size + p[:, None]) * r_size + r[None, :]
        place = place * n_parents + j[None, :]
        mask = there[:, None] & column_mask[None, :]
        f = tl.trans(tl.load(linear + place, mask=mask, other=0.0).to(operand))
        f_rest = tl.trans(tl.load(linear_rest + place, mask=mask, other=0.0).to(operand))
        h = tl.trans(tl.load(square + place, mask=mask, other=0.0).to(operand))
        h_rest = tl.trans(tl.load(square_rest + place, mask=mask, other=0.0).to(operand))
        ax, ax_rest = _halves(a * x, operand)
        axx, axx_rest = _halves(_squares(a * x, x, 64, block), operand)
        first = tl.dot(f, ax, first, input_precision=precision)
        first = tl.dot(f_rest, ax, first, input_precision=precision)
        first = tl.dot(f, ax_rest, first, input_precision=precision)
        second = tl.dot(h, axx, second, input_precision=precision)
        second = tl.dot(h_rest, axx, second, input_precision=precision)
        second = tl.dot(h, axx_rest, second, input_precision=precision)
    kk = tl.arange(0, block * 16)
    other = base + kk // 16
    w = weight + ((other % n_weights) * q_size + kk % 4)[None, :] * columns + column[:, None]
    mask = ((other < n_children) & (kk % 4 < q_size))[None, :] & (column >= 0)[:, None]
    w = tl.load(w, mask=mask, other=0.0).to(tl.float32)
    total = first + 2.0 * tl.sum(tl.reshape(second * w, [columns, block * 4, 4]), axis=2)
    k = tl.arange(0, block * 4)
    child = base + k // 4
    write = (part.to(tl.int64) * n_children + child) * q_size + k % 4
    mask = ((child < n_children) & (k % 4 < q_size))[None, :] & (column >= 0)[:, None]
    tl.store(d_weight + write[None, :] * columns + column[:, None], total, mask=mask)
