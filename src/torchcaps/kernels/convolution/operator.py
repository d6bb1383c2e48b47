"""Convolutions with large kernels and strides as a PyTorch operator."""

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.kernels.common.operators import operator
from torchcaps.kernels.gate import is_exporting, is_on_gpu, machine_obstacle

MIN_IMAGES = 64
"""Smallest batch for which the kernel is faster: a program takes 128 images."""

UNPADDED = [0, 0]


def convolve(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Tensor:
    """Return ``conv2d``, by a kernel where that is faster than cuDNN.

    That is in bfloat16, from kernels of 5x5 and strides of 2 on. For the gradient of the input
    cuDNN multiplies with every tap, even those outside the image. It also has no good forward
    kernel for CapsNet's primary capsules.
    """
    if not _has_kernel(features, weight, stride):
        return functional.conv2d(features, weight, bias, stride, padding)
    dtype = torch.bfloat16
    out: Tensor = _wide_conv(
        _channels_last(features.to(dtype)),
        _channels_last(weight.to(dtype)),
        list(stride),
        list(padding),
    )
    if bias is not None:
        out = out + bias.float()[:, None, None]
    return out.to(dtype)


def _channels_last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _has_kernel(features: Tensor, weight: Tensor, stride: tuple[int, int]) -> bool:
    if not is_on_gpu(features) or machine_obstacle() is not None or is_exporting():
        return False
    n, c, k_y, k_x = weight.shape
    is_wide = min(k_y, k_x) >= 5 and min(stride) > 1 and n % 64 == 0 and c % 64 == 0
    if not is_wide or features.dim() != 4 or features.shape[1] != c:
        return False
    device, dtypes = features.device.type, {features.dtype, weight.dtype}
    if torch.is_autocast_enabled(device) and torch.float64 not in dtypes:
        dtypes = {torch.get_autocast_dtype(device)}
    return dtypes == {torch.bfloat16} and features.shape[0] >= MIN_IMAGES


def _size_out(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> list[int]:
    sides = zip(features.shape[2:], weight.shape[2:], stride, padding, strict=True)
    return [(size + 2 * p - k) // s + 1 for size, k, s, p in sides]


def _input_gradient_shapes(
    d_out: Tensor, weight: Tensor, stride: list[int], size: list[int]
) -> Tensor:
    return d_out.new_empty(d_out.shape[0], *size, weight.shape[1]).permute(0, 3, 1, 2)


def _save_input_gradient(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    d_out, weight, ctx.stride, _ = inputs
    ctx.save_for_backward(d_out, weight)


def _input_gradient_backward(ctx: Any, d_gradient: Tensor) -> tuple[Any, ...]:
    """Differentiate once more: the input's gradient is linear in both of its arguments."""
    d_out, weight = ctx.saved_tensors
    d_gradient = _channels_last(d_gradient.to(weight.dtype))
    geometry = (ctx.stride, UNPADDED)
    _, d_weight, _ = torch.ops.aten.convolution_backward(
        d_out, d_gradient, weight, None, *geometry, [1, 1], False, [0, 0], 1, [False, True, False]
    )
    return _wide_conv(d_gradient, weight, *geometry).to(d_out.dtype), d_weight, None, None


@operator(
    "torchcaps::wide_conv_input_gradient",
    shapes=_input_gradient_shapes,
    save=_save_input_gradient,
    backward=_input_gradient_backward,
)
def _input_gradient(d_out: Tensor, weight: Tensor, stride: list[int], size: list[int]) -> Tensor:
    from torchcaps.kernels.convolution.launch import wide_conv

    return wide_conv(d_out, weight, stride, UNPADDED, size, backward=True)


def _shapes(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    size_out = _size_out(features, weight, stride, padding)
    out = features.new_empty(features.shape[0], *size_out, weight.shape[0], dtype=torch.float32)
    return out.permute(0, 3, 1, 2)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, weight, ctx.stride, ctx.padding = inputs
    ctx.save_for_backward(features, weight)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    """Leave the weight's gradient and a padded input's to cuDNN, which is faster there."""
    features, weight = ctx.saved_tensors
    geometry = (ctx.stride, ctx.padding)
    d_out = _channels_last(d_out.to(weight.dtype))
    needs_input, needs_weight = ctx.needs_input_grad[:2]
    by_kernel = needs_input and not any(ctx.padding)
    d_features, d_weight, _ = torch.ops.aten.convolution_backward(
        d_out, features, weight, None, *geometry, [1, 1], False, [0, 0], 1,
        [needs_input and not by_kernel, needs_weight, False],
    )  # fmt: skip
    if by_kernel:
        d_features = _input_gradient(d_out, weight, ctx.stride, list(features.shape[2:]))
    return d_features, d_weight, None, None


@operator("torchcaps::wide_conv", shapes=_shapes, save=_save, backward=_backward)
def _wide_conv(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    from torchcaps.kernels.convolution.launch import wide_conv

    size_out = _size_out(features, weight, stride, padding)
    return wide_conv(features, weight, stride, padding, size_out, backward=False)
