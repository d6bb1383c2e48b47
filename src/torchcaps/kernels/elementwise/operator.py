"""Squashing, lengths and the margin loss as PyTorch operators.

The functions have the meaning of their namesakes in :mod:`torchcaps.functional`, which run where
there is no kernel, and in compiled code, where the compiler fuses them with their neighbours.
"""

from collections.abc import Callable
from functools import partial, wraps
from typing import Any

import torch
from torch import Tensor

from torchcaps import functional
from torchcaps.kernels.common.operators import operator
from torchcaps.kernels.gate import is_on_gpu, machine_obstacle

MAX_SIZE = 1024
"""Numbers in a pose that a program can hold."""


@wraps(functional.squash)
def squash(poses: Tensor) -> Tensor:
    """Squash poses, by a kernel on a GPU."""
    if not _has_kernel(poses):
        return functional.squash(poses)
    out: Tensor = _squash(poses.contiguous(), _wide(poses))
    return out


def squash_lowered(poses: Tensor) -> Tensor:
    """Squash poses; under autocast the kernel writes in its precision, as votes are cast in it."""
    if not _has_kernel(poses):
        return functional.squash(poses)
    device = poses.device.type
    lowers = torch.is_autocast_enabled(device)
    dtype = torch.get_autocast_dtype(device) if lowers else poses.dtype
    out: Tensor = _squash(poses.contiguous(), dtype)
    return out


@wraps(functional.lengths)
def lengths(poses: Tensor) -> Tensor:
    """Return lengths, by a kernel on a GPU."""
    if not _has_kernel(poses):
        return functional.lengths(poses)
    out: Tensor = _lengths(poses.contiguous(), _wide(poses))
    return out


@wraps(functional.margin_loss)
def margin_loss(
    lengths: Tensor,
    targets: Tensor,
    *,
    present: float = 0.9,
    absent: float = 0.1,
    absent_weight: float = 0.5,
) -> Tensor:
    """Return the margin loss, by a kernel on a GPU."""
    margins = (present, absent, absent_weight)
    if not _has_kernel(lengths) or lengths.dtype != torch.float32 or _is_differentiated(targets):
        return functional.margin_loss(
            lengths, targets, present=present, absent=absent, absent_weight=absent_weight
        )
    functional.check_targets(targets, lengths, several=True)
    out: Tensor = _margin(lengths.contiguous(), targets.contiguous(), *map(float, margins))
    return out


def _has_kernel(poses: object) -> bool:
    if torch.compiler.is_compiling() or not isinstance(poses, Tensor) or not is_on_gpu(poses):
        return False
    if poses.dtype not in (torch.float32, torch.bfloat16) or machine_obstacle() is not None:
        return False
    return poses.dim() > 0 and 0 < poses.shape[-1] <= MAX_SIZE and poses.numel() > 0


def _is_differentiated(targets: object) -> bool:
    return not isinstance(targets, Tensor) or targets.requires_grad


def _wide(poses: Tensor) -> torch.dtype:
    """Return the precision of PyTorch's norms: under autocast they are float32."""
    return torch.float32 if torch.is_autocast_enabled(poses.device.type) else poses.dtype


def _differentiable(plain: Callable[[Tensor], Tensor], inputs: Tensor, d_out: Tensor) -> Tensor:
    """Return the gradient of the plain function, which can be differentiated again."""
    out = plain(inputs)
    (gradient,) = torch.autograd.grad(out, inputs, d_out.to(out.dtype), create_graph=True)
    return gradient


def _same_shape(poses: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(poses)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(inputs[0])


@operator("torchcaps::squash_backward", shapes=_same_shape)
def _squash_backward(poses: Tensor, d_out: Tensor) -> Tensor:
    from torchcaps.kernels.elementwise.launch import squash_gradient

    return squash_gradient(poses, d_out)


def _squash_shapes(poses: Tensor, dtype: torch.dtype) -> Tensor:
    return poses.new_empty(poses.shape, dtype=dtype)


def _backward_of_squash(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    (poses,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        return _differentiable(functional.squash, poses, d_out), None
    return _squash_backward(poses, d_out.contiguous()), None


@operator("torchcaps::squash", shapes=_squash_shapes, save=_save, backward=_backward_of_squash)
def _squash(poses: Tensor, dtype: torch.dtype) -> Tensor:
    from torchcaps.kernels.elementwise.launch import squashed

    return squashed(poses, dtype)


@operator("torchcaps::lengths_backward", shapes=_same_shape)
def _lengths_backward(poses: Tensor, d_out: Tensor) -> Tensor:
    from torchcaps.kernels.elementwise.launch import lengths_gradient

    return lengths_gradient(poses, d_out)


def _lengths_shapes(poses: Tensor, dtype: torch.dtype) -> Tensor:
    return poses.new_empty(poses.shape[:-1], dtype=dtype)


def _backward_of_lengths(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    (poses,) = ctx.saved_tensors
    if torch.is_grad_enabled():
        return _differentiable(functional.lengths, poses, d_out), None
    return _lengths_backward(poses, d_out.contiguous()), None


@operator("torchcaps::lengths", shapes=_lengths_shapes, save=_save, backward=_backward_of_lengths)
def _lengths(poses: Tensor, dtype: torch.dtype) -> Tensor:
    from torchcaps.kernels.elementwise import launch

    return launch.lengths(poses, dtype)


def _margin_gradient_shapes(lengths: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(lengths)


@operator("torchcaps::margin_loss_backward", shapes=_margin_gradient_shapes)
def _margin_backward(
    lengths: Tensor,
    targets: Tensor,
    d_loss: Tensor,
    present: float,
    absent: float,
    absent_weight: float,
) -> Tensor:
    from torchcaps.kernels.elementwise.launch import margin_gradient

    return margin_gradient(lengths, targets, d_loss, (present, absent, absent_weight))


def _margin_shapes(lengths: Tensor, *_: Any) -> Tensor:
    return lengths.new_empty(())


def _save_margin(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    lengths, targets, *ctx.margins = inputs
    ctx.save_for_backward(lengths, targets)


def _backward_of_margin(ctx: Any, d_loss: Tensor) -> tuple[Any, ...]:
    lengths, targets = ctx.saved_tensors
    if torch.is_grad_enabled():
        present, absent, weight = ctx.margins
        loss = partial(
            functional.margin_loss,
            targets=targets,
            present=present,
            absent=absent,
            absent_weight=weight,
        )
        return _differentiable(loss, lengths, d_loss), None, None, None, None
    return _margin_backward(lengths, targets, d_loss, *ctx.margins), None, None, None, None


@operator(
    "torchcaps::margin_loss",
    shapes=_margin_shapes,
    save=_save_margin,
    backward=_backward_of_margin,
)
def _margin(
    lengths: Tensor, targets: Tensor, present: float, absent: float, absent_weight: float
) -> Tensor:
    from torchcaps.kernels.elementwise.launch import margin

    return margin(lengths, targets, (present, absent, absent_weight))
