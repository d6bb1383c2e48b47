"""LayerNorm over poses as a PyTorch operator."""

from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch import Tensor, nn

from torchcaps.kernels.common.operators import operator
from torchcaps.kernels.gate import is_on_gpu, machine_obstacle

MAX_SIZE = 256
"""Numbers in a pose that a program can hold."""


def pose_norm(
    norm: nn.Module, poses: Tensor, *, plain: Callable[[Tensor], Tensor] | None = None
) -> Tensor:
    """Return ``norm(poses)``, by a kernel if ``norm`` is a LayerNorm over short rows on a GPU.

    Under autocast the kernel writes in the precision of autocast, to which all that follows rounds
    anyway. Compiled code calls the kernel too: it is faster than the compiler's LayerNorm.

    Args:
        norm: a LayerNorm, or another module, which is called as it is.
        poses: ``[... d]``.
        plain: the function to call where there is no kernel; None is ``norm``.
    """
    if _has_kernel(norm, poses):
        device = poses.device.type
        lowers = torch.is_autocast_enabled(device)
        dtype = torch.get_autocast_dtype(device) if lowers else poses.dtype
        out: Tensor = _pose_norm(poses.contiguous(), norm.weight, norm.bias, norm.eps, dtype)
        return out
    return norm(poses) if plain is None else plain(poses)


def _has_kernel(norm: nn.Module, poses: Tensor) -> TypeGuard[nn.LayerNorm]:
    if not is_on_gpu(poses) or not isinstance(norm, nn.LayerNorm):
        return False
    if norm.weight is None or norm.bias is None or machine_obstacle() is not None:
        return False
    if len(norm.normalized_shape) != 1 or norm.normalized_shape[0] != poses.shape[-1]:
        return False
    is_supported = poses.dtype in (torch.float32, torch.bfloat16)
    return is_supported and poses.shape[-1] <= MAX_SIZE and poses.numel() > 0


def _backward_shapes(poses: Tensor, weight: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    return poses.new_empty(poses.shape), torch.empty_like(weight), torch.empty_like(weight)


@operator("torchcaps::pose_norm_backward", shapes=_backward_shapes)
def _pose_norm_backward(
    poses: Tensor, weight: Tensor, d_out: Tensor, eps: float
) -> tuple[Tensor, Tensor, Tensor]:
    from torchcaps.kernels.norm.launch import norm_backward

    return norm_backward(poses, weight, d_out, eps)


def _shapes(poses: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype) -> Tensor:
    return poses.new_empty(poses.shape, dtype=dtype)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    poses, weight, _, ctx.eps, _ = inputs
    ctx.save_for_backward(poses, weight)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    poses, weight = ctx.saved_tensors
    gradients = _pose_norm_backward(poses, weight, d_out.contiguous(), ctx.eps)
    return *gradients, None, None


@operator("torchcaps::pose_norm", shapes=_shapes, save=_save, backward=_backward)
def _pose_norm(
    poses: Tensor, weight: Tensor, bias: Tensor, eps: float, dtype: torch.dtype
) -> Tensor:
    from torchcaps.kernels.norm.launch import norm_forward

    return norm_forward(poses, weight, bias, eps, dtype)
