"""Weighted moments of votes as a PyTorch operator, for routings that fit Gaussians."""

from typing import Any

import torch
from torch import Tensor

from torchcaps.kernels.common.operators import layout_of, operands, operator
from torchcaps.votes import Votes


def moments(
    votes: Votes,
    activations: Tensor,
    center: Tensor,
    *,
    constant: Tensor | None = None,
    linear: Tensor | None = None,
    square: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return moments about ``center`` ``[b j e]`` of votes that are not cast.

    Child i has the weight r_ij = a_i softmax_j(l_ij), l_ij = constant_j + sum_e d (linear_je +
    square_je d) with d = v_ij - center_j; without ``constant``, a_i / (number of parents). If the
    votes say which slots show one child, the softmax is over the parents of all of these slots.

    Returns:
        sum_i r_ij ``[b j]``; sum_i r_ij (v_ij - center_j) ``[b j e]``; sum_i r_ij (v_ij - new_j)^2
        about the new mean of :func:`moved_center`, held constant; and the couplings without a_i,
        ``[b i j]``, empty if they are uniform.
    """
    poses, weight, bias, window = operands(votes)
    activations = activations.float().contiguous()
    child = None if constant is None else votes.child
    out: tuple[Tensor, Tensor, Tensor, Tensor] = _moments(
        poses, weight, bias, activations, center, constant, linear, square, child, window
    )
    return out


def moved_center(center: Tensor, mass: Tensor, first: Tensor) -> Tensor:
    """Return the mean of votes from their mass and their first moment about a center."""
    return (first + center * mass[..., None]) / (mass[..., None] + 1e-7)


def fitted(
    center: Tensor, mass: Tensor, first: Tensor, second: Tensor, *, min_variance: float
) -> tuple[Tensor, Tensor]:
    """Return means and variances ``[b j e]`` of Gaussians fitted to votes, from their moments."""
    mean = moved_center(center, mass, first)
    moved = mean - mean.detach()  # zero, with the gradient of the mean
    about = first + (center - mean.detach()) * mass[..., None]
    spread = second - 2 * moved * about
    return mean, (spread / (mass[..., None] + 1e-7)).clamp_min(0) + min_variance


def _backward_shapes(
    poses: Tensor, weight: Tensor, bias: Tensor | None, activations: Tensor, center: Tensor, *_: Any
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    def wide(*shape: int) -> Tensor:
        return center.new_empty(shape, dtype=torch.float32)

    n, j, e = center.shape
    first = (poses.new_empty(poses.shape), weight.new_empty(weight.shape))
    return *first, wide(*activations.shape), wide(n, j, e), wide(n, j), wide(n, j, e), wide(n, j, e)


@operator("torchcaps::moments_backward", shapes=_backward_shapes)
def _moments_backward(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activations: Tensor,
    center: Tensor,
    constant: Tensor | None,
    linear: Tensor | None,
    square: Tensor | None,
    child: Tensor | None,
    couplings: Tensor,
    step: Tensor,
    d_mass: Tensor,
    d_first: Tensor,
    d_second: Tensor,
    d_couplings: Tensor | None,
    window: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    from torchcaps.kernels.moments.launch import Moments, moments_backward

    layout = layout_of(poses, weight, bias, window)
    inputs = Moments(layout, activations, center, constant, linear, square, child)
    return moments_backward(inputs, couplings, step, d_mass, d_first, d_second, d_couplings)


def _shapes(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activations: Tensor,
    center: Tensor,
    constant: Tensor | None,
    *_: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    n, j, _e = center.shape
    first, second = (center.new_empty(center.shape, dtype=torch.float32) for _ in range(2))
    couplings = poses.new_empty(0 if constant is None else n, activations.shape[1], j)
    return center.new_empty((n, j), dtype=torch.float32), first, second, couplings


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, ctx.window = inputs
    ctx.set_materialize_grads(False)  # unused couplings have no gradient to read
    ctx.save_for_backward(*tensors, output[3], output[0], output[1])


def _backward(
    ctx: Any,
    d_mass: Tensor | None,
    d_first: Tensor | None,
    d_second: Tensor | None,
    d_couplings: Tensor | None,
) -> tuple[Any, ...]:
    *tensors, couplings, mass, first = ctx.saved_tensors
    center, constant, linear, square = tensors[4:8]
    step = moved_center(center, mass, first) - center
    d_mass = torch.zeros_like(mass) if d_mass is None else d_mass
    d_first = torch.zeros_like(first) if d_first is None else d_first
    d_second = torch.zeros_like(first) if d_second is None else d_second
    if d_couplings is not None:
        d_couplings = None if constant is None else d_couplings.contiguous()
    d_poses, d_weight, d_activations, d_center, *d_forms = _moments_backward(
        *tensors, couplings, step, d_mass, d_first, d_second, d_couplings, ctx.window
    )
    d_center = d_center - mass[..., None] * d_first
    forms = zip((constant, linear, square), d_forms, strict=True)
    d_forms = (None if form is None else d_form for form, d_form in forms)
    return d_poses, d_weight, None, d_activations, d_center, *d_forms, None, None


@operator("torchcaps::moments", shapes=_shapes, save=_save, backward=_backward)
def _moments(
    poses: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    activations: Tensor,
    center: Tensor,
    constant: Tensor | None,
    linear: Tensor | None,
    square: Tensor | None,
    child: Tensor | None,
    window: list[int],
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    from torchcaps.kernels.moments.launch import Moments, moments_forward

    layout = layout_of(poses, weight, bias, window)
    return moments_forward(Moments(layout, activations, center, constant, linear, square, child))
