"""Grids and buffers of the kernels of LayerNorm over poses."""

import torch
from torch import Tensor

from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.partition import ceil_div
from torchcaps.kernels.gate import next_power
from torchcaps.kernels.norm.kernel import pose_norm_backward_kernel, pose_norm_kernel

PROGRAMS = 1056
"""Programs of the backward pass: eight on each of 132 multiprocessors."""


def norm_forward(
    poses: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    """Return normalized poses."""
    n_rows, sizes = _row_sizes(poses)
    out = poses.new_empty(poses.shape, dtype=dtype)
    grid = (ceil_div(n_rows, sizes["rows"]),)
    launch(pose_norm_kernel, grid, poses, weight, bias, out, n_rows, eps, **sizes)
    return out


def norm_backward(
    poses: Tensor, weight: Tensor, d_out: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of poses, weight and bias."""
    n_rows, sizes = _row_sizes(poses)
    blocks = ceil_div(n_rows, sizes["rows"] * PROGRAMS)
    programs = ceil_div(n_rows, sizes["rows"] * blocks)
    d_poses = poses.new_empty(poses.shape)
    d_weight, d_bias = (
        poses.new_empty(programs, sizes["d"], dtype=torch.float32) for _ in range(2)
    )
    launch(
        pose_norm_backward_kernel,
        (programs,),
        poses,
        weight,
        d_out,
        d_poses,
        d_weight,
        d_bias,
        n_rows,
        eps,
        blocks,
        **sizes,
    )
    return d_poses, d_weight.sum(dim=0).to(weight.dtype), d_bias.sum(dim=0).to(weight.dtype)


def _row_sizes(poses: Tensor) -> tuple[int, dict[str, int]]:
    """Return the number of rows, and the sizes to compile in."""
    d = poses.shape[-1]
    d_pad = next_power(d)
    return poses.numel() // d, {"d": d, "d_pad": d_pad, "rows": max(1, 4096 // d_pad)}
