"""Triton kernels of LayerNorm over poses: a program normalizes hundreds of short rows.

PyTorch gives every row a block of threads. For poses of 16 numbers that takes most of a training
step without ``torch.compile``. Every program sums over its rows; the sums are then added in a fixed
order.
"""

import triton
import triton.language as tl


@triton.jit
def _normalized(poses, offsets, mask, d: tl.constexpr, eps):
    """Return rows less their mean over their standard deviation, and one over the latter."""
    x = tl.load(poses + offsets, mask=mask, other=0.0).to(tl.float32)
    x = tl.where(mask, x - (tl.sum(x, axis=1) / d)[:, None], 0.0)
    scale = 1.0 / tl.sqrt(tl.sum(x * x, axis=1) / d + eps)
    return x * scale[:, None], scale


@triton.jit
def pose_norm_kernel(
    poses, weight, bias, out, n_rows, eps, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr
):
    """Normalize ``rows`` poses."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.arange(0, d_pad)
    offsets = row[:, None] * d + column[None, :]
    mask = (row < n_rows)[:, None] & (column < d)[None, :]
    x, _ = _normalized(poses, offsets, mask, d, eps)
    w = tl.load(weight + column, mask=column < d, other=0.0).to(tl.float32)
    b = tl.load(bias + column, mask=column < d, other=0.0).to(tl.float32)
    tl.store(out + offsets, x * w[None, :] + b[None, :], mask=mask)


@triton.jit
def pose_norm_backward_kernel(
    poses,
    weight,
    d_out,
    d_poses,
    d_weight,
    d_bias,
    n_rows,
    eps,
    blocks,
    d: tl.constexpr,
    d_pad: tl.constexpr,
    rows: tl.constexpr,
):
    """Write the gradient of the poses, and the program's part of those of weight and bias."""
    program = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, d_pad)
    w = tl.load(weight + column, mask=column < d, other=0.0).to(tl.float32)[None, :]
    w_total = tl.zeros([rows, d_pad], dtype=tl.float32)
    b_total = tl.zeros([rows, d_pad], dtype=tl.float32)
    for block in range(blocks):
        row = (program * blocks + block) * rows + tl.arange(0, rows)
        offsets = row[:, None] * d + column[None, :]
        mask = (row < n_rows)[:, None] & (column < d)[None, :]
        x, scale = _normalized(poses, offsets, mask, d, eps)
        g = tl.load(d_out + offsets, mask=mask, other=0.0).to(tl.float32)
        w_total += g * x
        b_total += g
        g = g * w
        g = g - x * (tl.sum(g * x, axis=1) / d)[:, None] - (tl.sum(g, axis=1) / d)[:, None]
        tl.store(d_poses + offsets, g * scale[:, None], mask=mask)
    share = program * d + column
    tl.store(d_weight + share, tl.sum(w_total, axis=0), mask=column < d)
    tl.store(d_bias + share, tl.sum(b_total, axis=0), mask=column < d)
