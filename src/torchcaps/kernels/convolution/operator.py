"""Convolutions with large kernels and strides as a PyTorch operator."""

import functools
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torchcaps.kernels.attend.operator import (
    exporting,
    interpreted,
    machine_obstacle,
    on_gpu,
    operator,
)

__all__ = ["convolve"]

LEAST = 64
"""Images from which it pays: a program takes 128."""
MULTIPROCESSORS = 132
UNPADDED = [0, 0]


def convolve(
    features: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: tuple[int, int],
    padding: tuple[int, int],
) -> Tensor:
    """``conv2d``, by a kernel where that is faster: in bfloat16, 5x5 or more, strides of 2 or more.

    cuDNN multiplies the input's gradient with every tap, those outside the image too, and has no
    good forward kernel for CapsNet's primary capsules.
    """
    if not _has_kernel(features, weight, stride):
        return functional.conv2d(features, weight, bias, stride, padding)
    dtype = torch.bfloat16
    out: Tensor = _wide_conv(
        _last(features.to(dtype)), _last(weight.to(dtype)), list(stride), list(padding)
    )
    if bias is not None:
        out = out + bias.float()[:, None, None]
    return out.to(dtype)


def _last(x: Tensor) -> Tensor:
    return x.contiguous(memory_format=torch.channels_last)


def _has_kernel(features: Tensor, weight: Tensor, stride: tuple[int, int]) -> bool:
    if not on_gpu(features) or machine_obstacle() is not None:
        return False
    if exporting():
        return False
    n, c, k_y, k_x = weight.shape
    wide = min(k_y, k_x) >= 5 and min(stride) > 1 and n % 64 == 0 and c % 64 == 0
    if not wide or features.dim() != 4 or features.shape[1] != c:
        return False
    device, kinds = features.device.type, {features.dtype, weight.dtype}
    if torch.is_autocast_enabled(device) and torch.float64 not in kinds:
        kinds = {torch.get_autocast_dtype(device)}
    return kinds == {torch.bfloat16} and features.shape[0] >= LEAST


@functools.cache
def _order(
    device: torch.device, sides: tuple[tuple[int, int, int, int, int], ...], back: bool
) -> tuple[Tensor, int]:
    """Places of the output or, backwards, the input, those with most taps first, and how many.

    Args:
        device: of the result.
        sides: for height and width, the input's and output's size, kernel, stride and padding.
        back: whether a place is one of the input.
    """
    counts = []
    for size, size_out, k, stride, padding in sides:
        seen = [
            [0 <= i + padding - stride * o < k for i in range(size)] for o in range(size_out)
        ]  # whether output o sees input i
        counts.append([sum(line) for line in (zip(*seen, strict=True) if back else seen)])
    taps = [y * x for y in counts[0] for x in counts[1]]
    places = sorted(range(len(taps)), key=lambda place: -taps[place])
    return torch.tensor(places, dtype=torch.int32, device=device), max(taps)


def _parts(tiles: int, taps: int) -> int:
    """Parts of the taps that keep all multiprocessors busy; each is written and read once."""

    def cost(parts: int) -> float:
        rounds = -(-tiles * parts // MULTIPROCESSORS)
        return rounds * -(-taps // parts) + parts * tiles / 36

    return min(range(1, 12), key=cost)


def _launched(
    inputs: Tensor,
    weight: Tensor,
    stride: Sequence[int],
    padding: Sequence[int],
    size_out: Sequence[int],
    back: bool,
) -> Tensor:
    """The output ``[b n h w]`` in float32, or the input's gradient in the weight's precision."""
    import triton.language as tl

    from torchcaps.kernels.convolution.kernel import wide_conv_kernel

    n, c, k_y, k_x = weight.shape
    channels, channels_out = (n, c) if back else (c, n)
    images, _, *size = inputs.shape
    seen, made = (size_out, size) if back else (size, size_out)
    sides = tuple(zip(seen, made, (k_y, k_x), stride, padding, strict=True))
    order, taps = _order(inputs.device, sides, back)
    columns = next(side for side in (256, 128, 64) if channels_out % side == 0)
    tiles = len(order) * -(-images // 128) * (channels_out // columns)
    parts = 1 if back else _parts(tiles, taps)
    dtype = weight.dtype if back else torch.float32
    out = inputs.new_empty(parts, images, *size_out, channels_out, dtype=dtype)
    wide_conv_kernel[(tiles, parts)](
        inputs,
        weight,
        order,
        out,
        images,
        *size,
        size_out[1],
        len(order),
        channels,
        channels_out,
        *((k_y * k_x * c, 1) if back else (1, k_y * k_x * c)),
        back=back,
        stride_y=stride[0],
        stride_x=stride[1],
        pad_y=padding[0],
        pad_x=padding[1],
        k_y=k_y,
        k_x=k_x,
        rows=128,
        columns=columns,
        depth=64,
        stages=3,
        operand=tl.float32 if interpreted() else tl.bfloat16,  # it cannot count in bfloat16
        num_warps=8 if columns == 256 else 4,
    )
    return (out[0] if parts == 1 else out.sum(dim=0)).permute(0, 3, 1, 2)


def _size_out(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> list[int]:
    sides = zip(features.shape[2:], weight.shape[2:], stride, padding, strict=True)
    return [(size + 2 * p - k) // s + 1 for size, k, s, p in sides]


@operator("torchcaps::wide_conv")
def _wide_conv(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    size_out = _size_out(features, weight, stride, padding)
    return _launched(features, weight, stride, padding, size_out, back=False)


@_wide_conv.register_fake
def _(features: Tensor, weight: Tensor, stride: list[int], padding: list[int]) -> Tensor:
    size_out = _size_out(features, weight, stride, padding)
    out = features.new_empty(features.shape[0], *size_out, weight.shape[0], dtype=torch.float32)
    return out.permute(0, 3, 1, 2)


@operator("torchcaps::wide_conv_input_gradient")
def _input_gradient(d_out: Tensor, weight: Tensor, stride: list[int], size: list[int]) -> Tensor:
    return _launched(d_out, weight, stride, UNPADDED, size, back=True)


@_input_gradient.register_fake
def _(d_out: Tensor, weight: Tensor, stride: list[int], size: list[int]) -> Tensor:
    return d_out.new_empty(d_out.shape[0], *size, weight.shape[1]).permute(0, 3, 1, 2)


def _save(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    features, weight, ctx.stride, ctx.padding = inputs
    ctx.save_for_backward(features, weight)


def _backward(ctx: Any, d_out: Tensor) -> tuple[Any, ...]:
    """The weight's gradient is left to cuDNN, which is faster there; so is a padded input's."""
    features, weight = ctx.saved_tensors
    how = (ctx.stride, ctx.padding)
    d_out = _last(d_out.to(weight.dtype))
    wanted = list(ctx.needs_input_grad[:2])
    ours = wanted[0] and not any(ctx.padding)
    d_features, d_weight, _ = torch.ops.aten.convolution_backward(
        d_out, features, weight, None, *how, [1, 1], False, [0, 0], 1,
        [wanted[0] and not ours, wanted[1], False],
    )  # fmt: skip
    if ours:
        d_features = _input_gradient(d_out, weight, ctx.stride, list(features.shape[2:]))
    return d_features, d_weight, None, None


def _save_again(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    d_out, weight, ctx.stride, _ = inputs
    ctx.save_for_backward(d_out, weight)


def _backward_again(ctx: Any, towards: Tensor) -> tuple[Any, ...]:
    """The input's gradient is linear in both: the convolution, and the weight's gradient of it."""
    d_out, weight = ctx.saved_tensors
    towards = _last(towards.to(weight.dtype))
    how = (ctx.stride, UNPADDED)
    _, d_weight, _ = torch.ops.aten.convolution_backward(
        d_out, towards, weight, None, *how, [1, 1], False, [0, 0], 1, [False, True, False]
    )
    return _wide_conv(towards, weight, *how).to(d_out.dtype), d_weight, None, None


_wide_conv.register_autograd(_backward, setup_context=_save)
_input_gradient.register_autograd(_backward_again, setup_context=_save_again)
