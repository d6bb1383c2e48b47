"""Registration of kernels as PyTorch operators: autograd, compilation, export, CUDA graphs."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, library
from torch._library.custom_ops import CustomOpDef

from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.gate import lowered
from torchcaps.votes import Votes, Window

WHOLE = Window((1, 1))


def operator(
    name: str,
    *,
    shapes: Callable[..., Any],
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], CustomOpDef]:
    """Register a function as a PyTorch operator that works on the GPU of its first tensor.

    Triton launches on the current GPU, which need not be the GPU of the tensors.

    Args:
        name: namespace and name, ``torchcaps::name``.
        shapes: maps the same arguments to empty outputs, for tracing.
        save: stores on the context what ``backward`` needs.
        backward: maps gradients of the outputs to gradients of the arguments.
    """

    def register(function: Callable[..., Any]) -> CustomOpDef:
        @functools.wraps(function)
        def on_device(first: Tensor, *rest: Any, **options: Any) -> Any:
            with torch.cuda.device_of(first):
                return function(first, *rest, **options)

        op = library.custom_op(name, on_device, mutates_args=())
        op.register_fake(shapes)
        if backward is not None:
            op.register_autograd(backward, setup_context=save)
        return op

    return register


def operands(votes: Votes) -> tuple[Tensor, Tensor, Tensor | None, list[int]]:
    """Return poses ``[b h w t d]``, weight, bias ``[i e]`` and window, as operators take them."""
    votes = lowered(votes)
    poses, bias = votes.poses, votes.bias
    if votes.window is None:
        poses = poses[:, None, None]
    if poses.stride(-1) != 1:
        poses = poses.contiguous()
    if bias is not None:
        # kernels read a bias as contiguous, which a broadcast one is not
        bias = bias.expand(votes.shape[1], 1, votes.shape[3])[:, 0].contiguous()
    return poses, votes.weight, bias, [n for side in votes.window or WHOLE for n in side]


def layout_of(poses: Tensor, weight: Tensor, bias: Tensor | None, window: list[int]) -> Layout:
    """Return the layout of votes from the arguments of an operator."""
    kernel_h, kernel_w, step_h, step_w, pad_h, pad_w = window
    return Layout(poses, weight, bias, (kernel_h, kernel_w), (step_h, step_w), (pad_h, pad_w))
