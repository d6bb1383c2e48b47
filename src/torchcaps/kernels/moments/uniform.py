"""Triton kernels of EM routing's first iteration: with uniform couplings, no vote is cast.

A vote is v = x W, row by row of a pose, so its square is a matrix product too:

    v_r^2 = sum_qq' x_q x_q' W_qr W_q'r

A child has 16 products x_q x_q' where a tile of 32 parents has 128 votes. Sums over children or
windows, weighted by activations, are taken by the tensor cores:

    sum_i a_i v, sum_i a_i v^2 = (a x) W, (a x x') (W W')          moments
    T, G                       = F W^T, H (W W')^T                 for the gradients
    dx, da                     = a (T + 2 G x), K + x . (T + G x)  of poses and activations
    dW                         = (a x)^T F + 2 ((a x x')^T H) W    of weights

K + F v + H v^2 is the gradient of r_ij, over the number of parents. Moments about zero are larger
than those about the mean, so an operand in bfloat16 is two numbers: its rounded value and the rest.
Rows are (w p), columns (r j), products (i q q') of a block of children.
"""

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    child_offset,
    child_range,
    parent_columns,
    plain_rows,
    window_origin,
)


@triton.jit
def halves(x, operand: tl.constexpr):
    """Return what x rounds to, and the rest."""
    high = x.to(operand)
    return high, (x - high.to(tl.float32)).to(operand)


@triton.jit
def pose_squares(x, y, block: tl.constexpr):
    """Return x_q y_q' of every child: ``[64 (i q)]`` twice gives ``[64 (i q q')]``."""
    x = tl.reshape(x, [64, block, 4])
    y = tl.reshape(y, [64, block, 4])
    return tl.reshape(x[:, :, :, None] * y[:, :, None, :], [64, block * 16])


@triton.jit
def load_block(tile, base, end, activations, votes, sizes: tl.constexpr, block: tl.constexpr):
    """Return poses and activations ``[64 (i q)]`` of a block of children, in float32."""
    window, p, row_mask = plain_rows(tile, votes, sizes)
    origin, top, left = window_origin(window, votes, sizes)
    poses = votes.poses + (origin + p * sizes.q_size)[:, None]
    weights = activations + (window.to(tl.int64) * votes.n_children)[:, None]
    k = tl.arange(0, block * 4)
    child = base + k // 4
    offset, dy, dx = child_offset(child, votes, sizes)
    mask = row_mask[:, None] & ((child < end) & (k % 4 < sizes.q_size))[None, :]
    a = tl.load(weights + child[None, :], mask=mask, other=0.0).to(tl.float32)
    if sizes.padded:
        y = top[:, None] + dy[None, :]
        x = left[:, None] + dx[None, :]
        mask = mask & (y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width)
    x = tl.load(poses + (offset + k % 4)[None, :], mask=mask, other=0.0).to(tl.float32)
    return x, a


@triton.jit
def load_weights(base, end, votes, squares, sizes: tl.constexpr, block: tl.constexpr):
    """Return weights ``[(i q) (r j)]`` of a block, and their squares ``[(i q q') (r j)]``."""
    columns: tl.constexpr = sizes.columns
    column = tl.arange(0, columns)
    k = tl.arange(0, block * 4)
    kk = tl.arange(0, block * 16)
    child = base + k // 4
    at = child % sizes.n_weights * sizes.q_size + k % 4
    mask = ((child < end) & (k % 4 < sizes.q_size))[:, None] & (column >= 0)[None, :]
    w = tl.load(votes.weight + at[:, None] * columns + column[None, :], mask=mask, other=0.0)
    child = base + kk // 16
    at = (child % sizes.n_weights * sizes.q_size + kk // 4 % 4) * sizes.q_size + kk % 4
    mask = (child < end) & (kk // 4 % 4 < sizes.q_size) & (kk % 4 < sizes.q_size)
    mask = mask[:, None] & (column >= 0)[None, :]
    pair = at[:, None] * columns + column[None, :]
    high = tl.load(squares[0] + pair, mask=mask, other=0.0).to(sizes.operand)
    rest = tl.load(squares[1] + pair, mask=mask, other=0.0).to(sizes.operand)
    return w.to(sizes.operand), high, rest


@triton.jit
def load_halves(pair, offsets, mask, operand: tl.constexpr):
    """Return both halves of a tile of numbers."""
    high = tl.load(pair[0] + offsets, mask=mask, other=0.0).to(operand)
    return high, tl.load(pair[1] + offsets, mask=mask, other=0.0).to(operand)


@triton.jit
def uniform_moments_kernel(
    votes,
    squares,
    activations,
    first_moment,
    second_moment,
    n_part,
    sizes: tl.constexpr,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    """Write sums of a v and a v^2 ``[part n p r j]`` of a tile over a part of the children."""
    columns: tl.constexpr = sizes.columns
    first = tl.zeros([64, columns], dtype=tl.float32)
    second = tl.zeros([64, columns], dtype=tl.float32)
    start, end = child_range(n_part, votes)
    for base in tl.range(start, end, block, num_stages=stages):
        x, a = load_block(tl.program_id(0), base, end, activations, votes, sizes, block)
        w, ww, ww_rest = load_weights(base, end, votes, squares, sizes, block)
        ax, ax_rest = halves(a * x, sizes.operand)
        axx, axx_rest = halves(pose_squares(a * x, x, block), sizes.operand)
        first = tl.dot(ax, w, first, input_precision=sizes.precision)
        first = tl.dot(ax_rest, w, first, input_precision=sizes.precision)
        second = tl.dot(axx, ww, second, input_precision=sizes.precision)
        second = tl.dot(axx_rest, ww, second, input_precision=sizes.precision)
        second = tl.dot(axx, ww_rest, second, input_precision=sizes.precision)
    window, p, row_mask = plain_rows(tl.program_id(0), votes, sizes)
    r, j, column_mask = parent_columns(0, sizes)
    out = (tl.program_id(1).to(tl.int64) * votes.n_windows + window)[:, None] * sizes.p_size
    out = ((out + p[:, None]) * sizes.r_size + r[None, :]) * sizes.n_parents + j[None, :]
    mask = row_mask[:, None] & column_mask[None, :]
    tl.store(first_moment + out, first, mask=mask)
    tl.store(second_moment + out, second, mask=mask)


@triton.jit
def uniform_child_kernel(
    votes,
    squares,
    activations,
    constant,
    linear,
    square,
    d_poses,
    d_activations,
    n_part,
    sizes: tl.constexpr,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    """Write gradients of child poses by window, ``[n i d]``, and of activations ``[n i]``.

    Linear and square are pairs of halves ``[n p r j]``. The constant is ``[n]``, summed over
    parents.
    """
    windows: tl.constexpr = sizes.windows
    window, p, row_mask = plain_rows(tl.program_id(0), votes, sizes)
    r, j, column_mask = parent_columns(0, sizes)
    offsets = (window.to(tl.int64)[:, None] * sizes.p_size + p[:, None]) * sizes.r_size + r[None, :]
    offsets = offsets * sizes.n_parents + j[None, :]
    mask = row_mask[:, None] & column_mask[None, :]
    f, f_rest = load_halves(linear, offsets, mask, sizes.operand)
    h, h_rest = load_halves(square, offsets, mask, sizes.operand)
    slot = tl.program_id(0) * windows + tl.arange(0, windows)
    shift = tl.load(constant + slot, mask=slot < votes.n_windows, other=0.0)
    k = tl.arange(0, block * 4)
    d_child: tl.constexpr = sizes.p_size * sizes.q_size
    write = (window.to(tl.int64) * votes.n_children)[:, None] * d_child
    write = d_poses + write + (p * sizes.q_size)[:, None]
    start, end = child_range(n_part, votes)
    for base in tl.range(start, end, block, num_stages=stages):
        x, a = load_block(tl.program_id(0), base, end, activations, votes, sizes, block)
        w, ww, ww_rest = load_weights(base, end, votes, squares, sizes, block)
        w = tl.trans(w)
        ww = tl.trans(ww)
        ww_rest = tl.trans(ww_rest)
        t = tl.dot(f, w, input_precision=sizes.precision)
        t = tl.dot(f_rest, w, t, input_precision=sizes.precision)
        g = tl.dot(h, ww, input_precision=sizes.precision)
        g = tl.dot(h_rest, ww, g, input_precision=sizes.precision)
        g = tl.dot(h, ww_rest, g, input_precision=sizes.precision)
        other = tl.reshape(x, [64, block, 4])[:, :, None, :]
        gx = tl.sum(tl.reshape(g, [64, block, 4, 4]) * other, axis=3)
        gx = tl.reshape(gx, [64, block * 4])
        child = base + k // 4
        child_mask = (child < end) & (k % 4 < sizes.q_size)
        tl.store(
            write + child[None, :] * d_child + (k % 4)[None, :],
            a * (t + 2.0 * gx),
            mask=row_mask[:, None] & child_mask[None, :],
        )
        d_a = tl.reshape(x * (t + gx), [windows, sizes.p_pad, block, 4])
        d_a = tl.sum(tl.sum(d_a, axis=3), axis=1) + shift[:, None]
        child = base + tl.arange(0, block)
        tl.store(
            d_activations + slot.to(tl.int64)[:, None] * votes.n_children + child[None, :],
            d_a,
            mask=(slot < votes.n_windows)[:, None] & (child < end)[None, :],
        )


@triton.jit
def uniform_weight_kernel(
    votes,
    activations,
    linear,
    square,
    d_weight,
    tiles,
    sizes: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient of the weights ``[part i q (r j)]`` of a block of children."""
    columns: tl.constexpr = sizes.columns
    base = tl.program_id(0) * block
    part = tl.program_id(1)
    column = tl.arange(0, columns)
    r, j, column_mask = parent_columns(0, sizes)
    first = tl.zeros([columns, block * 4], dtype=tl.float32)
    second = tl.zeros([columns, block * 16], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        window, p, row_mask = plain_rows(tile, votes, sizes)
        x, a = load_block(tile, base, votes.n_children, activations, votes, sizes, block)
        offsets = window.to(tl.int64)[:, None] * sizes.p_size + p[:, None]
        offsets = (offsets * sizes.r_size + r[None, :]) * sizes.n_parents + j[None, :]
        mask = row_mask[:, None] & column_mask[None, :]
        f, f_rest = load_halves(linear, offsets, mask, sizes.operand)
        h, h_rest = load_halves(square, offsets, mask, sizes.operand)
        f = tl.trans(f)
        f_rest = tl.trans(f_rest)
        h = tl.trans(h)
        h_rest = tl.trans(h_rest)
        ax, ax_rest = halves(a * x, sizes.operand)
        axx, axx_rest = halves(pose_squares(a * x, x, block), sizes.operand)
        first = tl.dot(f, ax, first, input_precision=sizes.precision)
        first = tl.dot(f_rest, ax, first, input_precision=sizes.precision)
        first = tl.dot(f, ax_rest, first, input_precision=sizes.precision)
        second = tl.dot(h, axx, second, input_precision=sizes.precision)
        second = tl.dot(h_rest, axx, second, input_precision=sizes.precision)
        second = tl.dot(h, axx_rest, second, input_precision=sizes.precision)
    kk = tl.arange(0, block * 16)
    other = base + kk // 16
    w = votes.weight + ((other % sizes.n_weights) * sizes.q_size + kk % 4)[None, :] * columns
    mask = (other < votes.n_children) & (kk % 4 < sizes.q_size)
    mask = mask[None, :] & (column >= 0)[:, None]
    w = tl.load(w + column[:, None], mask=mask, other=0.0).to(tl.float32)
    total = first + 2.0 * tl.sum(tl.reshape(second * w, [columns, block * 4, 4]), axis=2)
    k = tl.arange(0, block * 4)
    child = base + k // 4
    write = (part.to(tl.int64) * votes.n_children + child) * sizes.q_size + k % 4
    mask = ((child < votes.n_children) & (k % 4 < sizes.q_size))[None, :] & (column >= 0)[:, None]
    tl.store(d_weight + write[None, :] * columns + column[:, None], total, mask=mask)
