"""Triton kernel of a convolution with a large kernel and stride, and of its input's gradient.

A program takes one position of the output in many images. All its rows then have the same taps
inside the image, and no tap outside is multiplied. For the input's gradient of CapsNet's primary
capsules this leaves two thirds of the multiplications.
"""

import triton
import triton.language as tl


@triton.jit
def _taps(
    at, size, backward: tl.constexpr, stride: tl.constexpr, pad: tl.constexpr, k: tl.constexpr
):
    """Return along one side the first tap inside the image, the count, and input and tap number 0.

    Number n is tap n of the kernel or, backward, output n of a convolution without padding.
    """
    if backward:
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
    backward: tl.constexpr,
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
    """Write a tile [images, channels out] of one position, summed over a part of its taps.

    Inputs are ``[b height width channels]``: the features or, backward, the gradient of the output.
    Weights are ``[n k_y k_x c]``; channels of the input are ``stride_in`` apart and channels of the
    output ``stride_out``. The output is ``[parts b area_out channels_out]``. ``order`` lists the
    positions of the output, those with most taps first.
    """
    n_tiles = channels_out // columns
    m_tiles = tl.cdiv(n_images, rows)
    position = tl.load(order + tl.program_id(0) // (n_tiles * m_tiles))
    tile = tl.program_id(0) % (n_tiles * m_tiles)
    part = tl.program_id(1)
    low_y, n_y, input_y, tap_y = _taps(
        position // width_out, height, backward, stride_y, pad_y, k_y
    )
    low_x, n_x, input_x, tap_x = _taps(position % width_out, width, backward, stride_x, pad_x, k_x)
    step_y: tl.constexpr = -stride_y if backward else 1
    step_x: tl.constexpr = -stride_x if backward else 1
    row = (tile // n_tiles) * rows + tl.arange(0, rows)
    column = (tile % n_tiles) * columns + tl.arange(0, columns)
    k = tl.arange(0, depth)
    # rows past the last image read the first images again and are not stored
    image = (row % n_images).to(tl.int64) * (height * width * channels)
    left = inputs + image[:, None] + k[None, :]
    right = weight + k[:, None] * stride_in + column[None, :] * stride_out
    tap_size = channels_out if backward else channels  # c
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
    offset = (part.to(tl.int64) * n_images + row) * (area_out * channels_out)
    write = out + (offset + position * channels_out)[:, None] + column[None, :]
    tl.store(write, total.to(out.dtype.element_ty), mask=(row < n_images)[:, None])
