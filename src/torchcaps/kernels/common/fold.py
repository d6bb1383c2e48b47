"""Sums of gradients over the windows that show one child."""

import triton
import triton.language as tl
from torch import Tensor

from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout

BLOCK = 1024


@triton.jit
def fold_kernel(
    unfolded,
    grid,
    size,
    height,
    width,
    height_out,
    width_out,
    kernel: tl.constexpr,
    stride: tl.constexpr,
    padding: tl.constexpr,
    entries: tl.constexpr,
    block: tl.constexpr,
):
    """Sum ``[(b h' w') k e]`` over the windows that show a position, ``[b h w e]``."""
    kernel_h: tl.constexpr = kernel[0]
    kernel_w: tl.constexpr = kernel[1]
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = at < size
    entry = at % entries
    position = at // entries
    x = position % width
    y = (position // width) % height
    b = position // width // height
    total = tl.zeros([block], dtype=tl.float32)
    for ky in tl.static_range(kernel_h):
        for kx in tl.static_range(kernel_w):
            top = y + padding[0] - ky
            left = x + padding[1] - kx
            oy = top // stride[0]
            ox = left // stride[1]
            hit = (top >= 0) & (top % stride[0] == 0) & (oy < height_out)
            hit = hit & (left >= 0) & (left % stride[1] == 0) & (ox < width_out)
            window = (b * height_out + oy) * width_out + ox
            source = (window * (kernel_h * kernel_w) + ky * kernel_w + kx) * entries + entry
            total += tl.load(unfolded + source, mask=mask & hit, other=0.0).to(tl.float32)
    tl.store(grid + at, total, mask=mask)


def fold(layout: Layout, unfolded: Tensor) -> Tensor:
    """Sum gradients of windows ``[parts n i d]`` to gradients of the grid ``[b h w t d]``."""
    poses = layout.poses
    unfolded = unfolded[0] if len(unfolded) == 1 else unfolded.sum(dim=0).to(poses.dtype)
    if layout.size_out == (1, 1) and layout.kernel == tuple(poses.shape[1:3]):
        return unfolded.view(poses.shape)
    grid = poses.new_empty(poses.shape)
    size = grid.numel()
    if size:
        launch(
            fold_kernel,
            (triton.cdiv(size, BLOCK),),
            unfolded,
            grid,
            size,
            *poses.shape[1:3],
            *layout.size_out,
            kernel=layout.kernel,
            stride=layout.stride,
            padding=layout.padding,
            entries=poses.shape[3] * poses.shape[4],
            block=BLOCK,
        )
    return grid
