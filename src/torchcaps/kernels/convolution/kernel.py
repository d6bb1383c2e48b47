"""Triton kernel of a convolution with a large kernel and stride, and of its input's gradient.

A program takes one place of the output in many images, so that all its rows have the same taps
inside the image: none is multiplied with zeros. Of the input's gradient of CapsNet's primary
capsules that is two thirds of what a product over all taps has.
"""

import triton
import triton.language as tl

__all__ = ["wide_conv_kernel"]


@triton.jit
def _taps(at, size, back: tl.constexpr, stride: tl.constexpr, pad: tl.constexpr, k: tl.constexpr):
    """Along one side: the first of the taps that count, how many, the input and tap of number 0.

    Number n is tap n of the kernel or, backwards, output n of a convolution without padding.
    """
    if back:
        low = tl.where(at >= k, (at - k) // stride + 1, 0)
        high = tl.minimum(at // stride + 1, size)
        return low, high - low, 0, at
    else:
        low = tl.maximum(pad - stride * at, 0)
        high = tl.minimum(size + pad - stride * at, k)
        return low, tl.maximum(high - low, 0), stride * at - pad, 0


@triton.jit
def wide_conv_kernel(
    inputs,
    weight,
    order,
    out,
    n_images,
    height,
    width,
    width_out,
    area_out,
    channels,
    channels_out,
    stride_in,
    stride_out,
    back: tl.constexpr,
    stride_y: tl.constexpr,
    stride_x: tl.constexpr,
    pad_y: tl.constexpr,
    pad_x: tl.constexpr,
    k_y: tl.constexpr,
    k_x: tl.constexpr,
    rows: tl.constexpr,
    columns: tl.constexpr,
    depth: tl.constexpr,
    stages: tl.constexpr,
    operand: tl.constexpr,
):
    """A tile [images, channels out] of one place, over a part of its taps.

    From inputs ``[b height width channels]``, the features or, backwards, the gradient behind, and
    weights ``[n k_y k_x c]``, whose channels of the input are ``stride_in`` apart and those of the
    output ``stride_out``, to ``[parts b area_out channels_out]``. ``order`` has the places of the
    output, those with most taps first.
    """
    n_tiles = channels_out // columns
    m_tiles = tl.cdiv(n_images, rows)
    place = tl.load(order + tl.program_id(0) // (n_tiles * m_tiles))
    tile = tl.program_id(0) % (n_tiles * m_tiles)
    part = tl.program_id(1)
    low_y, n_y, input_y, tap_y = _taps(place // width_out, height, back, stride_y, pad_y, k_y)
    low_x, n_x, input_x, tap_x = _taps(place % width_out, width, back, stride_x, pad_x, k_x)
    step_y: tl.constexpr = -stride_y if back else 1
    step_x: tl.constexpr = -stride_x if back else 1
    row = (tile // n_tiles) * rows + tl.arange(0, rows)
    column = (tile % n_tiles) * columns + tl.arange(0, columns)
    deep = tl.arange(0, depth)
    # rows past the last image read the first ones again, and are not stored
    image = (row % n_images).to(tl.int64) * (height * width * channels)
    left = inputs + image[:, None] + deep[None, :]
    right = weight + deep[:, None] * stride_in + column[None, :] * stride_out
    tap_size = channels_out if back else channels  # c
    blocks = channels // depth
    share = tl.cdiv(n_y * n_x, tl.num_programs(1)) * blocks
    first = part * share
    last = tl.minimum(first + share, n_y * n_x * blocks)
    total = tl.zeros((rows, columns), dtype=tl.float32)
    for i in tl.range(first, last, num_stages=stages):
        channel = (i % blocks) * depth
        y = low_y + i // blocks // n_x
        x = low_x + i // blocks % n_x
        tap = (tap_y + step_y * y) * k_x + tap_x + step_x * x
        a = tl.load(left + ((input_y + y) * width + input_x + x) * channels + channel)
        b = tl.load(right + tap * tap_size + channel * stride_in)
        total = tl.dot(a.to(operand), b.to(operand), total, input_precision="ieee")
    whose = (part.to(tl.int64) * n_images + row) * (area_out * channels_out) + place * channels_out
    where = out + whose[:, None] + column[None, :]
    tl.store(where, total.to(out.dtype.element_ty), mask=(row < n_images)[:, None])
