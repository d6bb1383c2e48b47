"""LayerNorm over poses as a PyTorch operator."""

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from torchcaps.kernels.attend.operator import machine_obstacle, on_gpu, operator, power

__all__ = ["pose_norm"]

PROGRAMS = 1056
"""Programs of the backward pass: eight to each of 132 multiprocessors."""


def pose_norm(
    norm: nn.Module, poses: Tensor, *, plain: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """``norm(poses)``, by a kernel if it is a LayerNorm over short rows on a GPU.

    Under autocast the kernel writes what autocast multiplies in, as all that follows rounds to that
    anyway. Compiled code has it too: its two passes beat what the compiler makes of LayerNorm.

    Args:
        norm: a LayerNorm, or another module that is left to itself.
        poses: ``[... d]``.
        plain: what to call where there is no kernel; None is ``norm``.
    """
    if _has_kernel(norm, poses):
        device = poses.device.type
        lowers = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lowers else poses.dtype
        out: Tensor = _pose_norm(poses.contiguous(), norm.weight, norm.bias, norm.eps, dtype)
        return out
    return norm(poses) if plain is None else plain(poses)


def _has_kernel(norm: nn.Module, poses: Tensor) -> TypeGuard[nn.LayerNorm]:
    if not on_gpu(poses) or not isinstance(norm, nn.LayerNorm):
        return False
    if norm.weight is None or norm.bias is None or machine_obstacle() is not None:
        return False
    if len(norm.normalized_shape) != 1 or norm.normalized_shape[0] != poses.shape[-1]:
        return False
    known = poses.dtype in (torch.float32, torch.bfloat16)
    return known and poses.shape[-1] <= 256 and poses.numel() > 0


def _rows(d: int) -> int:
    return max(1, 4096 // power(d))


@operator("torchcaps::pose_norm")
def _pose_norm(
    poses: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    from torchcaps.kernels.norm.kernel import pose_norm_kernel

    d = poses.shape[-1]
    n_rows, rows = poses.numel() // d, _rows(d)
    out = poses.new_empty(poses.shape, dtype=dtype)
    grid = (-(-n_rows // rows),)
    pose_norm_kernel[grid](poses, weight, bias, out, n_rows, eps, d=d, d_pad=power(d), rows=rows)
    return out


@_pose_norm.register_fake
def _(poses: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return poses.new_empty(poses.shape, dtype=dtype)


@operator("torchcaps::pose_norm_backward")
def _pose_norm_backward(
    poses: Tensor, weight: Tensor, d_out: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    from torchcaps.kernels.norm.kernel import pose_norm_backward_kernel

    d = poses.shape[-1]
    n_rows, rows = poses.numel() // d, _rows(d)
    blocks = -(-n_rows // (rows * PROGRAMS))
    programs = -(-n_rows // (rows * blocks))
    d_poses = poses.new_empty(poses.shape)
    d_weight, d_bias = (poses.new_empty(programs, d, dtype=torch.float32) for _ in range(2))
    pose_norm_backward_kernel[(programs,)](
        poses,
        weight,
        d_out,
        d_poses,
        d_weight,
        d_bias,
        n_rows,
        eps,
        blocks,
        d=d,
        d_pad=power(d),
        rows=rows,
    )
    return d_poses, d_weight.sum(dim=0).to(weight.dtype), d_bias.sum(dim=0).to(weight.dtype)


@_pose_norm_backward.register_fake
def _(poses: Tensor, weight: Tensor, d_out: Tensor, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    return poses.new_empty(poses.shape), torch.empty_like(weight), torch.empty_like(weight)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    poses, weight, _, eps, _ = inputs
    ctx.save_for_backward(poses, weight)
    ctx.eps = eps


def _backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    poses, weight = ctx.saved_tensors
    gradients = _pose_norm_backward(poses, weight, d_out.contiguous(), ctx.eps)
    return *gradients, None, None


_pose_norm.register_autograd(_backward, setup_context=_save)
