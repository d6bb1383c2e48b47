"""Grids and buffers of the kernels of EM routing."""

from dataclasses import dataclass

import torch
import triton
from torch import Tensor

from torchcaps.kernels.common.layout import Blocks, Layout, fold, split
from torchcaps.kernels.moments.backward import gaussian_child_kernel, gaussian_weight_kernel
from torchcaps.kernels.moments.forward import moments_kernel
from torchcaps.kernels.moments.operator import moved_center
from torchcaps.kernels.moments.products_launch import (
    by_products,
    product_gradients,
    uniform_backward,
    uniform_forward,
)
from torchcaps.tensors import logsumexp_over, sum_over

__all__ = ["Moments", "moments_backward", "moments_forward"]


@dataclass(frozen=True)
class Moments:
    """What moments are taken of; without ``constant`` the couplings are uniform.

    ``center``, ``linear`` and ``square`` are ``[n j e]``, ``constant`` is ``[n j]``, and
    ``activations`` are ``[n i]``.
    With ``child`` ``[n i]``, parents of all slots that have the same number compete.
    """

    layout: Layout
    bias: Tensor | None
    activations: Tensor
    center: Tensor
    constant: Tensor | None
    linear: Tensor | None
    square: Tensor | None
    child: Tensor | None = None

    @property
    def uniform(self) -> bool:
        """Whether every parent has the same share of every child."""
        return self.constant is None

    @property
    def warps(self) -> int:
        """Twice those of the agreement kernels: there is twice as much to hold."""
        return min(16, 2 * self.layout.warps)

    def pack(self, parents: Tensor | None) -> Tensor | None:
        """``[n j e]`` as ``[n p r j]`` in float32."""
        return None if parents is None else self.layout.pack(parents, torch.float32)

    def by_tile(self, packed: Tensor | None) -> Tensor | None:
        """``[n p r j]`` as ``[tile r j (w p)]``."""
        return None if packed is None else self.layout.by_tile(packed)


@dataclass(frozen=True)
class Form:
    """A quadratic form of votes, packed for the kernel: of their distance from a center."""

    center: Tensor
    constant: Tensor | None
    linear: Tensor | None
    square: Tensor | None


def moments_forward(given: Moments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Mass ``[n j]``, first and second moments ``[n j e]`` and couplings ``[n i j]``.

    The second moment is about the new mean, which may be many deviations away from the center: in
    float32 it is taken in a second pass, as the difference of two large numbers would be rough.
    """
    layout = given.layout
    n, i, j = layout.n_windows, layout.n_children, layout.weight.shape[1]
    couplings = layout.poses.new_empty(0 if given.uniform else n, i, j)
    if given.uniform and by_products(given):
        return *uniform_forward(given), couplings
    constant = None if given.constant is None else given.constant.float().contiguous()
    center = layout.pack(given.center, torch.float32)
    form = Form(center, constant, given.pack(given.linear), given.pack(given.square))
    shares = None
    if given.child is not None:
        normalizer = _survey(given, form, couplings, None, backward=False)
        shares = (normalizer - logsumexp_over(normalizer, given.child)).exp()
    mass, first, second = _moments(given, form, couplings, slot_sums=shares)
    new = moved_center(given.center, mass, first)
    if layout.poses.dtype == torch.bfloat16:
        step = new - given.center
        second = second - 2 * step * first + step.square() * mass[..., None]
    else:
        form = Form(layout.pack(new, torch.float32), None, None, None)
        _, _, second = _moments(given, form, couplings, coupled=not given.uniform)
    return mass, first, second, couplings


def moments_backward(
    given: Moments,
    couplings: Tensor,
    step: Tensor,
    d_mass: Tensor,
    d_first: Tensor,
    d_second: Tensor,
    d_couplings: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Gradients of child poses, weight, activations, center, constant, linear and square.

    Those of the last four are of the logits alone: moments about another center are the caller's.
    ``step`` is how far the new mean is from the center.
    """
    layout = given.layout
    if given.uniform and by_products(given):
        found = uniform_backward(given, step, d_mass, d_first, d_second)
        d_center, d_linear, d_square = (torch.zeros_like(d_first) for _ in range(3))
        return *found, d_center, torch.zeros_like(d_mass), d_linear, d_square
    d_mass = d_mass + (d_second * step.square()).sum(dim=-1)
    d_first = d_first - 2 * d_second * step
    center = layout.pack(given.center, torch.float32)
    linear, second = (layout.pack(d, torch.float32) for d in (d_first, d_second))
    d_activations = torch.empty_like(given.activations, dtype=torch.float32)
    logits = torch.empty_like(couplings)
    form = Form(center, d_mass.float().contiguous(), linear, second)
    mean = None
    if given.child is not None:
        sums = _survey(given, form, couplings, d_couplings, backward=True)
        mean, total = (sum_over(part, given.child) for part in sums.unbind(dim=2))
        mean = mean / total.clamp_min(0.5)
    d_constant, d_linear, d_square = _moments(
        given, form, couplings, d_couplings, logits, d_activations, mean
    )
    slope = given.pack(None if given.square is None else 2 * given.square)
    behind = Form(center, None, linear, 2 * second)
    ahead = Form(center, None, given.pack(given.linear), slope)
    d_poses, d_weight = _gradients(given, behind, ahead, couplings, logits)
    d_center = torch.zeros_like(d_linear)
    if given.linear is not None:
        d_center -= given.linear * d_constant[..., None]
    if given.square is not None:
        d_center -= 2 * given.square * d_linear
    return d_poses, d_weight, d_activations, d_center, d_constant, d_linear, d_square


def _survey(
    given: Moments, form: Form, couplings: Tensor, gradient: Tensor | None, *, backward: bool
) -> Tensor:
    """What every slot adds to the sums over its child, ``[n i]``; backward two, ``[n i 2]``."""
    layout = given.layout
    shape = (layout.n_windows, layout.n_children, *((2,) if backward else ()))
    slot_sums = layout.poses.new_empty(shape, dtype=torch.float32)
    _launch(given, form, couplings, gradient, slot_sums=slot_sums, survey=True, backward=backward)
    return slot_sums


def _moments(
    given: Moments,
    form: Form,
    couplings: Tensor,
    gradient: Tensor | None = None,
    logits: Tensor | None = None,
    d_activations: Tensor | None = None,
    slot_sums: Tensor | None = None,
    *,
    coupled: bool = False,
) -> tuple[Tensor, Tensor, Tensor]:
    """Moments by the form; backward, with ``logits`` to write, by the gradient of the logits."""
    layout = given.layout
    n, j = layout.n_windows, layout.weight.shape[1]
    _, _, parts = _tiles(layout)
    mass = layout.poses.new_empty((parts, n, j), dtype=torch.float32)
    shape = (parts, n, layout.rows, layout.weight.shape[3], j)
    first, second = (layout.poses.new_empty(shape, dtype=torch.float32) for _ in range(2))
    _launch(
        given,
        form,
        couplings,
        gradient,
        logits,
        d_activations,
        slot_sums,
        (mass, first, second),
        backward=logits is not None,
        coupled=coupled,
    )
    first, second = (layout.unpack(m.sum(dim=0), torch.float32) for m in (first, second))
    return mass.sum(dim=0), first, second


def _tiles(layout: Layout) -> tuple[int, int, int]:
    """Tiles of windows, children to a program, and programs to a tile."""
    tiles = int(triton.cdiv(layout.n_windows, 64 // layout.pads[0]))
    return tiles, *split(tiles, layout.n_children, 4)


def _launch(
    given: Moments,
    form: Form,
    couplings: Tensor,
    gradient: Tensor | None = None,
    logits: Tensor | None = None,
    d_activations: Tensor | None = None,
    slot_sums: Tensor | None = None,
    moments: tuple[Tensor, Tensor, Tensor] | tuple[None, None, None] = (None, None, None),
    *,
    backward: bool,
    survey: bool = False,
    coupled: bool = False,
) -> None:
    layout = given.layout
    q_pad = max(16, layout.pads[1])
    tiles, n_part, parts = _tiles(layout)
    if tiles:
        moments_kernel[(tiles, parts)](
            layout.poses,
            layout.packed_weight(),
            given.bias,
            given.activations,
            form.center,
            form.constant,
            form.linear,
            form.square,
            couplings,
            gradient,
            logits,
            d_activations,
            slot_sums,
            *moments,
            layout.n_windows,
            layout.n_children,
            n_part,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            n_weights=layout.weight.shape[0],
            q_pad=q_pad,
            groups=given.warps // 4,
            uniform=given.uniform,
            coupled=coupled,
            surveyed=slot_sums is not None and not survey,
            survey=survey,
            backward=backward,
            has_bias=given.bias is not None,
            has_linear=form.linear is not None,
            has_square=form.square is not None,
            has_gradient=gradient is not None,
            stages=layout.stages(q_pad * (64 + layout.columns), biased=given.bias is not None),
            num_warps=given.warps,
            **layout.places(),
            **layout.sizes(),
        )


def _gradients(
    given: Moments, behind: Form, ahead: Form, couplings: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of child poses and weight, from the form of dr and that of l; squares doubled."""
    shared = (given, behind, ahead, couplings, logits)
    if not given.uniform and by_products(given):
        return product_gradients(*shared)
    return _child_gradient(*shared), _weight_gradient(*shared)


def _child_gradient(
    given: Moments, behind: Form, ahead: Form, couplings: Tensor, logits: Tensor
) -> Tensor:
    """Gradient of the child poses ``[b h w t d]``."""
    layout = given.layout
    n, i = layout.n_windows, layout.n_children
    tiles = triton.cdiv(n, 64 // layout.pads[0])
    q_pad = max(16, layout.pads[1])
    n_part, parts = split(tiles, i, 4)
    unfolded = layout.poses.new_empty(n, i, layout.poses.shape[4])
    if n:
        gaussian_child_kernel[(tiles, parts)](
            layout.poses,
            layout.packed_weight(),
            given.bias,
            given.activations,
            behind.center,
            behind.linear,
            behind.square,
            ahead.linear,
            ahead.square,
            couplings,
            logits,
            unfolded,
            n,
            i,
            n_part,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            n_weights=layout.weight.shape[0],
            q_pad=q_pad,
            uniform=given.uniform,
            has_bias=given.bias is not None,
            has_linear=ahead.linear is not None,
            has_square=ahead.square is not None,
            stages=layout.stages(q_pad * (64 + layout.columns), biased=given.bias is not None),
            num_warps=given.warps,
            **layout.places(),
            **layout.sizes(),
        )
    return fold(layout, unfolded)


def _weight_gradient(
    given: Moments, behind: Form, ahead: Form, couplings: Tensor, logits: Tensor
) -> Tensor:
    """Gradient of the weight ``[t j q r]``: sums over ranges of windows, then over these."""
    layout = given.layout
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if layout.n_windows:
        gaussian_weight_kernel[(blocks.count, blocks.parts)](
            layout.poses,
            layout.packed_weight(),
            given.bias,
            given.activations,
            *(given.by_tile(packed) for packed in (behind.center, behind.linear, behind.square)),
            *(given.by_tile(packed) for packed in (ahead.linear, ahead.square)),
            couplings,
            logits,
            d_weight,
            layout.n_windows,
            layout.n_children,
            blocks.tiles,
            layout.geometry(),
            *layout.poses.shape[1:3],
            layout.poses.stride(3),
            n_weights=layout.weight.shape[0],
            q_pad=layout.pads[1],
            block=blocks.size,
            uniform=given.uniform,
            has_bias=given.bias is not None,
            has_linear=ahead.linear is not None,
            has_square=ahead.square is not None,
            num_warps=given.warps,
            num_stages=layout.stages(256 * layout.columns, 2),
            **layout.places(),
            **layout.sizes(),
        )
    return blocks.summed(d_weight)
