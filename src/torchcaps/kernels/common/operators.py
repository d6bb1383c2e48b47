"""Registration of kernels as PyTorch operators: autograd, compilation, export, CUDA graphs."""

import functools
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any, final

import torch
from torch import Tensor, library
from torch._library.custom_ops import CustomOpDef
from torch.autograd import Function

from torchcaps.captured.precompilation import is_precompiling, with_placeholders
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.gate import lowered
from torchcaps.tensors import Pair
from torchcaps.votes import Votes, Window

WHOLE = Window((1, 1))


@final
class Operator:
    """A PyTorch operator that eager code calls without its dispatcher.

    The dispatcher of a Python operator costs the host about ten times an ``autograd.Function``.
    Whatever traces or intercepts operators gets the registered one.

    Args:
        registered: the operator.
        function: what it computes, on the GPU of its first tensor.
        direct: the same with its gradient, or None if it has none.
    """

    def __init__(
        self,
        registered: CustomOpDef,
        function: Callable[..., Any],
        direct: type[Function] | None,
    ) -> None:
        self.registered = registered
        self.function = function
        self.direct = direct

    def __call__(self, *arguments: Any) -> Any:
        """Call the operator."""
        if torch.compiler.is_compiling() or _is_intercepted():
            return self.registered(*arguments)
        if not (torch.is_grad_enabled() and any(map(_needs_gradient, arguments))):
            return self.function(*arguments)
        if self.direct is None:
            return self.registered(*arguments)  # which refuses the gradient
        return self.direct.apply(*arguments)


def operator(
    name: str,
    *,
    shapes: Callable[..., Any],
    save: Callable[..., None] | None = None,
    backward: Callable[..., Any] | None = None,
) -> Callable[[Callable[..., Any]], Operator]:
    """Register a function as a PyTorch operator that works on the GPU of its first tensor.

    Triton launches on the current GPU, which need not be the GPU of the tensors.

    Args:
        name: namespace and name, ``torchcaps::name``.
        shapes: maps the same arguments to empty outputs, for tracing.
        save: stores on the context what ``backward`` needs.
        backward: maps gradients of the outputs to gradients of the arguments.
    """

    def register(function: Callable[..., Any]) -> Operator:
        @functools.wraps(function)
        def on_device(first: Tensor, *rest: Any, **options: Any) -> Any:
            # entering the device that is current already would take longer than asking
            is_here = first.is_cuda and first.get_device() == torch.cuda.current_device()
            with nullcontext() if is_here else torch.cuda.device_of(first):
                output = function(first, *rest, **options)
            return with_placeholders(output) if is_precompiling() else output

        op = library.custom_op(name, on_device, mutates_args=())
        op.register_fake(shapes)
        if save is None or backward is None:
            return Operator(op, on_device, None)
        op.register_autograd(backward, setup_context=save)
        return Operator(op, on_device, _with_gradient(on_device, save, backward))

    return register


def _with_gradient(
    function: Callable[..., Any], save: Callable[..., None], backward: Callable[..., Any]
) -> type[Function]:
    """Return a function with its gradient, as autograd takes it."""

    class Direct(Function):
        @staticmethod
        def forward(ctx: Any, *arguments: Any) -> Any:
            output = function(*arguments)
            save(ctx, arguments, output)
            return output

        @staticmethod
        def backward(ctx: Any, *gradients: Any) -> Any:
            return backward(ctx, *gradients)

    return Direct


def _is_intercepted() -> bool:
    """Return whether something watches operators: fake tensors, exporters, ``torch.func``."""
    return torch._C._len_torch_dispatch_stack() > 0 or torch._C._are_functorch_transforms_active()


def _needs_gradient(argument: object) -> bool:
    return isinstance(argument, Tensor) and argument.requires_grad


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


def sides_of(window: list[int]) -> tuple[Pair, Pair, Pair]:
    """Return size, step and padding of windows, by rows and columns."""
    kernel_h, kernel_w, step_h, step_w, pad_h, pad_w = window
    return (kernel_h, kernel_w), (step_h, step_w), (pad_h, pad_w)


def layout_of(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    window: list[int],
    *,
    packed: Tensor | None = None,
) -> Layout:
    """Return the layout of votes from the arguments of an operator; see :class:`Layout`."""
    return Layout(poses, weight, bias, *sides_of(window), packed=packed)
