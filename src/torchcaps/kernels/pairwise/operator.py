"""Sums and links of votes as PyTorch operators, for pairwise routing."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from torchcaps.kernels.common.operators import layout_of, operands, operator, sides_of
from torchcaps.tensors import output_size
from torchcaps.votes import Votes

if TYPE_CHECKING:
    from torchcaps.kernels.pairwise.launch import AffineVotes


def pairwise_sums(votes: Votes, *, normalize: bool) -> tuple[Tensor, Tensor]:
    """Return sums over children of votes that are not cast, and of their squares, ``[b j e]``.

    Both are float32. ``normalize`` replaces a vote by its direction, which is zero if the vote is
    shorter than 1e-6.
    """
    out: tuple[Tensor, Tensor] = _sums(*_affine_operands(votes), normalize)
    return out


def pairwise_links(votes: Votes, total: Tensor, *, normalize: bool, factor: float) -> Tensor:
    """Return factor times vote . (total - vote), ``[b i j]``, for totals ``[b j e]``.

    The votes are cast once more. Compiled code drops this if nothing uses the links.
    """
    out: Tensor = _links(*_affine_operands(votes), total, normalize, factor)
    return out


def _affine_operands(
    votes: Votes,
) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, list[int]]:
    poses, weight, _, window = operands(replace(votes, scale=None, bias=None))
    scale, bias = (None if x is None else x.float() for x in (votes.scale, votes.bias))
    return poses, weight, scale, bias, window


def _affine_votes(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    normalize: bool,
) -> "AffineVotes":
    from torchcaps.kernels.pairwise.launch import AffineVotes

    return AffineVotes(layout_of(poses, weight, None, window), scale, bias, normalize)


def _shape(poses: Tensor, weight: Tensor, window: list[int]) -> tuple[int, int, int, int]:
    """Return the numbers of windows, children, parents and entries of a parent's pose."""
    b, *sides, n_types, d = poses.shape
    _, j, q, r = weight.shape
    kernel, stride, padding = sides_of(window)
    height, width = output_size((sides[0], sides[1]), kernel, stride, padding)
    return b * height * width, window[0] * window[1] * n_types, j, d // q * r


def _total_shape(
    poses: Tensor, weight: Tensor, scale: Any, bias: Any, window: list[int], *_: Any
) -> Tensor:
    n, _i, j, e = _shape(poses, weight, window)
    return poses.new_empty(n, j, e, dtype=torch.float32)


def _backward_shapes(
    poses: Tensor, weight: Tensor, scale: Tensor | None, bias: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shifts = rest[-1]
    none = poses.new_empty(0, dtype=torch.float32)
    return (
        poses.new_empty(poses.shape),
        weight.new_empty(weight.shape),
        none if scale is None else scale.new_empty(scale.shape),
        bias.new_empty(bias.shape) if bias is not None and shifts else torch.empty_like(none),
    )


@operator("torchcaps::pairwise_backward", shapes=_backward_shapes)
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

    votes = _affine_votes(poses, weight, scale, bias, window, normalize)
    return pairwise_backward(votes, linear, square, links, shifts=shifts)


def _gradients(
    ctx: Any, saved: list[Any], linear: Tensor, square: Tensor | None, links: Tensor | None
) -> tuple[Any, ...]:
    """Return gradients of poses, weight, scale, bias and window."""
    shifts = ctx.needs_input_grad[3]
    d_poses, d_weight, d_scale, d_bias = _pairwise_backward(
        *saved, ctx.window, linear, square, links, ctx.normalize, shifts
    )
    has_scale = saved[2] is not None
    return d_poses, d_weight, d_scale if has_scale else None, d_bias if shifts else None, None


@operator("torchcaps::pairwise_weighted", shapes=_total_shape)
def _weighted(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    links: Tensor,
    normalize: bool,
) -> Tensor:
    from torchcaps.kernels.pairwise.launch import weighted_total

    return weighted_total(_affine_votes(poses, weight, scale, bias, window, normalize), links)


def _sums_shapes(*arguments: Any) -> tuple[Tensor, Tensor]:
    total = _total_shape(*arguments)
    return total, torch.empty_like(total)


def _save_sums(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    *tensors, ctx.window, ctx.normalize = inputs
    ctx.save_for_backward(*tensors)


def _sums_backward(ctx: Any, d_total: Tensor | None, d_squares: Tensor | None) -> tuple[Any, ...]:
    saved = list(ctx.saved_tensors)
    zeros = torch.zeros_like(_total_shape(*saved, ctx.window))
    d_total = zeros if d_total is None else d_total
    doubled = zeros if d_squares is None else 2 * d_squares
    return *_gradients(ctx, saved, d_total, doubled, None), None


@operator("torchcaps::pairwise_sums", shapes=_sums_shapes, save=_save_sums, backward=_sums_backward)
def _sums(
    poses: Tensor,
    weight: Tensor,
    scale: Tensor | None,
    bias: Tensor | None,
    window: list[int],
    normalize: bool,
) -> tuple[Tensor, Tensor]:
    from torchcaps.kernels.pairwise.launch import pairwise_sums

    return pairwise_sums(_affine_votes(poses, weight, scale, bias, window, normalize))


def _links_shape(
    poses: Tensor, weight: Tensor, scale: Any, bias: Any, window: list[int], *_: Any
) -> Tensor:
    return poses.new_empty(_shape(poses, weight, window)[:3])


def _save_links(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    *tensors, ctx.window, total, ctx.normalize, ctx.factor = inputs
    ctx.save_for_backward(*tensors, total)


def _links_backward(ctx: Any, d_links: Tensor) -> tuple[Any, ...]:
    *saved, total = ctx.saved_tensors
    links = (ctx.factor * d_links.float()).contiguous()
    d_total = _weighted(*saved, ctx.window, links, ctx.normalize)
    return *_gradients(ctx, saved, total, None, links), d_total, None, None


@operator(
    "torchcaps::pairwise_links", shapes=_links_shape, save=_save_links, backward=_links_backward
)
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

    votes = _affine_votes(poses, weight, scale, bias, window, normalize)
    return pairwise_links(votes, total, factor)
