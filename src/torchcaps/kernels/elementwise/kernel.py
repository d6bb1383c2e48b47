"""Triton kernels of squashing, lengths and the margin loss.

PyTorch launches fourteen kernels for squashing and more than twenty for its gradient. A program
here takes hundreds of short poses. Lengths are taken of poses divided by their largest entry where
it is above one, so that squares neither overflow nor lose large entries.
"""

import triton
import triton.language as tl


@triton.jit
def _directions(poses, n_rows, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr):
    """Return poses, their lengths, their directions (zero for zero), offsets and mask."""
    row = tl.program_id(0).to(tl.int64) * rows + tl.arange(0, rows)
    column = tl.arange(0, d_pad)
    offsets = row[:, None] * d + column[None, :]
    mask = (row < n_rows)[:, None] & (column < d)[None, :]
    x = tl.load(poses + offsets, mask=mask, other=0.0).to(tl.float32)
    scale = tl.maximum(tl.max(tl.abs(x), axis=1), 1.0)
    scaled = x / scale[:, None]
    short = tl.sqrt(tl.sum(scaled * scaled, axis=1))
    direction = scaled / tl.where(short == 0.0, 1.0, short)[:, None]
    return x, scale * short, direction, offsets, mask, row


@triton.jit
def squash_kernel(poses, out, n_rows, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr):
    """Write ``s n / (1 + n^2)``; the smaller of n and 1/n gives the same factor."""
    x, n, _, offsets, mask, _ = _directions(poses, n_rows, d, d_pad, rows)
    m = tl.where(n > 1.0, 1.0 / tl.maximum(n, 1.0), n)
    tl.store(out + offsets, x * (m / (1.0 + m * m))[:, None], mask=mask)


@triton.jit
def squash_backward_kernel(
    poses, d_out, d_poses, n_rows, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr
):
    """Write the gradient ``f g + u (u g) n f'`` with f the factor and u the direction."""
    _, n, u, offsets, mask, _ = _directions(poses, n_rows, d, d_pad, rows)
    m = tl.where(n > 1.0, 1.0 / tl.maximum(n, 1.0), n)
    factor = m / (1.0 + m * m)
    slope = factor * (1.0 - m * m) / (1.0 + m * m)
    slope = tl.where(n > 1.0, -slope, slope)
    g = tl.load(d_out + offsets, mask=mask, other=0.0).to(tl.float32)
    along = tl.sum(g * u, axis=1)
    gradient = factor[:, None] * g + u * (along * slope)[:, None]
    tl.store(d_poses + offsets, gradient, mask=mask)


@triton.jit
def lengths_kernel(poses, out, n_rows, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr):
    """Write the length of every pose."""
    _, n, _, _, _, row = _directions(poses, n_rows, d, d_pad, rows)
    tl.store(out + row, n, mask=row < n_rows)


@triton.jit
def lengths_backward_kernel(
    poses, d_out, d_poses, n_rows, d: tl.constexpr, d_pad: tl.constexpr, rows: tl.constexpr
):
    """Write the gradient: the direction times the gradient of the length."""
    _, _, u, offsets, mask, row = _directions(poses, n_rows, d, d_pad, rows)
    g = tl.load(d_out + row, mask=row < n_rows, other=0.0).to(tl.float32)
    tl.store(d_poses + offsets, u * g[:, None], mask=mask)


@triton.jit
def _margins(
    lengths, targets, size, n_classes, present, absent, numbered: tl.constexpr, block: tl.constexpr
):
    """Return targets, by how much lengths are too short and too long, offsets and mask.

    A class number that does not exist makes the target, and so the loss, NaN.
    """
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = at < size
    x = tl.load(lengths + at, mask=mask, other=0.0).to(tl.float32)
    if numbered:
        label = tl.load(targets + at // n_classes, mask=mask, other=0)
        is_class = (label >= 0) & (label < n_classes)
        t = tl.where(is_class, (label == at % n_classes).to(tl.float32), float("nan"))
    else:
        t = tl.load(targets + at, mask=mask, other=0).to(tl.float32)
    short = tl.maximum(present - x, 0.0, propagate_nan=tl.PropagateNan.ALL)
    long = tl.maximum(x - absent, 0.0, propagate_nan=tl.PropagateNan.ALL)
    return t, short, long, at, mask


@triton.jit
def margin_kernel(
    lengths,
    targets,
    total,
    size,
    n_classes,
    n_images,
    present,
    absent,
    absent_weight,
    numbered: tl.constexpr,
    block: tl.constexpr,
):
    """Write the program's part of the loss."""
    t, short, long, _, mask = _margins(
        lengths, targets, size, n_classes, present, absent, numbered, block
    )
    cost = t * (short * short) + absent_weight * (1.0 - t) * (long * long)
    tl.store(total + tl.program_id(0), tl.sum(tl.where(mask, cost, 0.0), axis=0) / n_images)


@triton.jit
def margin_backward_kernel(
    lengths,
    targets,
    d_loss,
    d_lengths,
    size,
    n_classes,
    n_images,
    present,
    absent,
    absent_weight,
    numbered: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient of the lengths."""
    t, short, long, at, mask = _margins(
        lengths, targets, size, n_classes, present, absent, numbered, block
    )
    g = tl.load(d_loss).to(tl.float32) * 2.0 / n_images
    tl.store(d_lengths + at, g * (absent_weight * (1.0 - t) * long - t * short), mask=mask)
