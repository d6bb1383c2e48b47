"""Sums and links of votes as PyTorch operators, for pairwise routing."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.kernels.attend.operator import layout_of, operands, operator
from torchcaps.votes import Votes

if TYPE_CHECKING:
    from torchcaps.kernels.pairwise.launch import Scaled

__all__ = ["pairwise_links", "pairwise_sums"]


def pairwise_sums(votes: Votes, *, normalize: bool) -> tuple[Tensor, Tensor]:
    """Sums over children of votes that are not cast and of their squares, ``[b j e]`` in float32.

    ``normalize`` takes the direction of a vote, zero if it is shorter than 1e-6, for the vote.
    """
    out: tuple[Tensor, Tensor] = _sums(*_operands(votes), normalize)
    return out


def pairwise_links(votes: Votes, total: Tensor, *, normalize: bool, factor: float) -> Tensor:
    """Factor times vote . (total - vote), ``[b i j]``, for totals ``[b j e]``.

    Casts the votes once more; compiled code leaves it out if nobody looks at the links.
    """
    out: Tensor = _links(*_operands(votes), total, normalize, factor)
    return out


def _operands(votes: Votes) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, list[int]]:
    poses, weight, _, window = operands(replace(votes, scale=None, bias=None))
    scale, bias = (None if x is None else x.float() for x in (votes.scale, votes.bias))
    return poses, weight, scale, bias, window


def _scaled(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    normalize: bool,
) -> "Scaled":
    from torchcaps.kernels.pairwise.launch import Scaled

    return Scaled(layout_of(poses, weight, window), scale, bias, normalize)


def _shape(poses: Tensor, weight: Tensor, window: list[int]) -> tuple[int, int, int, int]:
    """Windows, children, parents and the size of a parent's pose."""
    n = poses.shape[0]
    for side in range(2):
        kernel, step, pad = window[side::2]
        n *= (poses.shape[1 + side] + 2 * pad - kernel) // step + 1
    _, j, q, r = weight.shape
    return n, window[0] * window[1] * poses.shape[3], j, poses.shape[4] // q * r


@operator("torchcaps::pairwise_sums")
def _sums(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    from torchcaps.kernels.pairwise.launch import pairwise_sums

    return pairwise_sums(_scaled(poses, weight, scale, bias, window, normalize))


@_sums.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    n, _, j, e = _shape(poses, weight, window)
    total = poses.new_empty(n, j, e, dtype=torch.float32)
    return total, torch.empty_like(total)


@operator("torchcaps::pairwise_links")
def _links(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    total: Tensor,
    normalize: bool,
    factor: float,
) -> Tensor:
    from torchcaps.kernels.pairwise.launch import pairwise_links

    return pairwise_links(_scaled(poses, weight, scale, bias, window, normalize), total, factor)


@_links.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    total: Tensor,
    normalize: bool,
    factor: float,
) -> Tensor:
    return poses.new_empty(_shape(poses, weight, window)[:3])


@operator("torchcaps::pairwise_weighed")
def _weighed(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    links: Tensor,
    normalize: bool,
) -> Tensor:
    from torchcaps.kernels.pairwise.launch import weighed_total

    return weighed_total(_scaled(poses, weight, scale, bias, window, normalize), links)


@_weighed.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    links: Tensor,
    normalize: bool,
) -> Tensor:
    n, _, j, e = _shape(poses, weight, window)
    return poses.new_empty(n, j, e, dtype=torch.float32)


@operator("torchcaps::pairwise_backward")
def _pairwise_backward(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    linear: Tensor,
    square: Tensor | None,
    links: Tensor | None,
    normalize: bool,
    shifts: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from torchcaps.kernels.pairwise.launch import pairwise_backward

    votes = _scaled(poses, weight, scale, bias, window, normalize)
    return pairwise_backward(votes, linear, square, links, shifts=shifts)


@_pairwise_backward.register_fake
def _(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    linear: Tensor,
    square: Tensor | None,
    links: Tensor | None,
    normalize: bool,
    shifts: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    none = linear.new_empty(0, dtype=torch.float32)
    return (
        poses.new_empty(poses.shape),
        weight.new_empty(weight.shape),
        none if scale is None else scale.new_empty(scale.shape),
        bias.new_empty(bias.shape) if bias is not None and shifts else torch.empty_like(none),
    )


def _gradients(
    ctx: Any, saved: list[Any], linear: Tensor, square: Tensor | None, links: Tensor | None
) -> tuple[Any, ...]:
    """Gradients of poses, weight, scale, bias and window."""
    shifts = ctx.needs_input_grad[3]
    d_poses, d_weight, d_scale, d_bias = _pairwise_backward(
        *saved, ctx.window, linear, square, links, ctx.normalize, shifts
    )
    scaled = saved[2] is not None
    return d_poses, d_weight, d_scale if scaled else None, d_bias if shifts else None, None


def _save_sums(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, window, normalize = inputs
    ctx.save_for_backward(*tensors)
    ctx.window, ctx.normalize = window, normalize


def _sums_backward(ctx: Any, d_total: Tensor | None, d_squares: Tensor | None) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    n, _, j, e = _shape(saved[0], saved[1], ctx.window)
    zeros = saved[0].new_zeros(n, j, e, dtype=torch.float32)
    d_total = zeros if d_total is None else d_total
    doubled = zeros if d_squares is None else 2 * d_squares
    return *_gradients(ctx, saved, d_total, doubled, None), None


def _save_links(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, window, total, normalize, factor = inputs
    ctx.save_for_backward(*tensors, total)
    ctx.window, ctx.normalize, ctx.factor = window, normalize, factor


def _links_backward(ctx: Any, d_links: Tensor) -> tuple[Any, ...]:
    *saved, total = ctx.saved_tensors
    links = (ctx.factor * d_links.float()).contiguous()
    d_total = _weighed(*saved, ctx.window, links, ctx.normalize)
    return *_gradients(ctx, saved, total, None, links), d_total, None, None


_sums.register_autograd(_sums_backward, setup_context=_save_sums)
_links.register_autograd(_links_backward, setup_context=_save_links)
