"""Grids and buffers of the kernels of squashing, lengths and the margin loss."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.partition import ceil_div
from torchcaps.kernels.elementwise import kernel
from torchcaps.kernels.gate import next_power

BLOCK = 2048
"""Lengths in a program of the margin loss."""


def squashed(poses: Tensor, dtype: torch.dtype) -> Tensor:
    """Return squashed poses."""
    out = poses.new_empty(poses.shape, dtype=dtype)
    _by_rows(kernel.squash_kernel, poses, out)
    return out


def squash_gradient(poses: Tensor, d_out: Tensor) -> Tensor:
    """Return the gradient of the poses."""
    d_poses = torch.empty_like(poses)
    _by_rows(kernel.squash_backward_kernel, poses, d_out, d_poses)
    return d_poses


def lengths(poses: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the lengths of poses."""
    out = poses.new_empty(poses.shape[:-1], dtype=dtype)
    _by_rows(kernel.lengths_kernel, poses, out)
    return out


def lengths_gradient(poses: Tensor, d_out: Tensor) -> Tensor:
    """Return the gradient of the poses."""
    d_poses = torch.empty_like(poses)
    _by_rows(kernel.lengths_backward_kernel, poses, d_out, d_poses)
    return d_poses


def margin(lengths: Tensor, targets: Tensor, margins: tuple[float, float, float]) -> Tensor:
    """Return the loss."""
    parts = ceil_div(lengths.numel(), BLOCK)
    total = lengths.new_empty(() if parts == 1 else parts, dtype=torch.float32)
    _by_blocks(kernel.margin_kernel, lengths, (targets, total), margins)
    return total if parts == 1 else total.sum()


def margin_gradient(
    lengths: Tensor, targets: Tensor, d_loss: Tensor, margins: tuple[float, float, float]
) -> Tensor:
    """Return the gradient of the lengths."""
    d_lengths = torch.empty_like(lengths)
    tensors = (targets, d_loss, d_lengths)
    _by_blocks(kernel.margin_backward_kernel, lengths, tensors, margins)
    return d_lengths


def _by_rows(function: Any, poses: Tensor, *tensors: Tensor) -> None:
    d = poses.shape[-1]
    n_rows, d_pad = poses.numel() // d, next_power(d)
    rows = max(1, 2048 // d_pad)
    grid = (ceil_div(n_rows, rows),)
    launch(function, grid, poses, *tensors, n_rows, d=d, d_pad=d_pad, rows=rows)


def _by_blocks(
    function: Any,
    lengths: Tensor,
    tensors: tuple[Tensor, ...],
    margins: tuple[float, float, float],
) -> None:
    n_images, n_classes = lengths.shape
    grid = (ceil_div(lengths.numel(), BLOCK),)
    numbered = tensors[0].dim() == 1
    sizes = (lengths.numel(), n_classes, n_images)
    launch(function, grid, lengths, *tensors, *sizes, *margins, numbered=numbered, block=BLOCK)
