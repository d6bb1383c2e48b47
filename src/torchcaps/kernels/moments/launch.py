"""Grids and buffers of the kernels of EM routing."""

from dataclasses import dataclass

import torch
from torch import Tensor

from torchcaps.kernels.common.blocks import Blocks
from torchcaps.kernels.common.fold import fold
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.common.partition import split_children
from torchcaps.kernels.moments.backward import moments_backward_kernel, survey_backward_kernel
from torchcaps.kernels.moments.forward import Form, moments_kernel, survey_kernel
from torchcaps.kernels.moments.operator import moved_center
from torchcaps.kernels.moments.products_launch import (
    can_use_products,
    product_gradients,
    uniform_backward,
    uniform_forward,
)
from torchcaps.kernels.moments.vote_gradients import gaussian_child_kernel, gaussian_weight_kernel
from torchcaps.tensors import logsumexp_over, sum_over


@dataclass(frozen=True)
class Moments:
    """Arguments of moments; without ``constant`` the couplings are uniform.

    ``center``, ``linear`` and ``square`` are ``[n j e]``, ``constant`` is ``[n j]``, and
    ``activations`` are ``[n i]``. With ``child`` ``[n i]``, parents of all slots that have the same
    number compete.
    """

    layout: Layout
    activations: Tensor
    center: Tensor
    constant: Tensor | None
    linear: Tensor | None
    square: Tensor | None
    child: Tensor | None = None

    @property
    def is_uniform(self) -> bool:
        """Return whether every parent has the same share of every child."""
        return self.constant is None

    @property
    def warps(self) -> int:
        """Twice the warps of the agreement kernels, for twice as many numbers."""
        return min(16, 2 * self.layout.warps)

    def pack(self, parents: Tensor | None) -> Tensor | None:
        """Return ``[n j e]`` as ``[n p r j]`` in float32."""
        return None if parents is None else self.layout.pack(parents, torch.float32)

    def grid(self) -> tuple[tuple[int, int], int]:
        """Return tiles and parts of the children, and the children of a part."""
        n_part, parts = split_children(self.layout.tiles, self.layout.n_children, 4)
        return (self.layout.tiles, parts), n_part

    def options(self, *, grouped: bool = True) -> dict[str, object]:
        """Return what kernels that cast votes child by child are compiled for."""
        layout = self.layout
        return {
            "sizes": layout.sizes(layout.cast_pad, warps=self.warps if grouped else 4),
            "stages": layout.cast_stages(),
            "num_warps": self.warps,
        }


def moments_forward(inputs: Moments) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return mass ``[n j]``, first and second moments ``[n j e]`` and couplings ``[n i j]``.

    The second moment is about the new mean, which may be many standard deviations away from the
    center. In float32 it takes a second pass, because a difference of two large numbers is rough.
    """
    layout = inputs.layout
    n = 0 if inputs.is_uniform else layout.n_windows
    couplings = layout.poses.new_empty(n, layout.n_children, layout.n_parents)
    if inputs.is_uniform and can_use_products(inputs):
        return *uniform_forward(inputs), couplings
    center = layout.pack(inputs.center, torch.float32)
    constant = None if inputs.constant is None else inputs.constant.float().contiguous()
    form = Form(center, constant, inputs.pack(inputs.linear), inputs.pack(inputs.square))
    known = None if inputs.is_uniform else couplings
    mass, first, second = _moments(inputs, form, known, _shares(inputs, form))
    new = moved_center(inputs.center, mass, first)
    if layout.poses.dtype == torch.bfloat16:
        step = new - inputs.center
        second = second - 2 * step * first + step.square() * mass[..., None]
    else:
        form = Form(layout.pack(new, torch.float32), None, None, None)
        _, _, second = _moments(inputs, form, known, None)
    return mass, first, second, couplings


def moments_backward(
    inputs: Moments,
    couplings: Tensor,
    step: Tensor,
    d_mass: Tensor,
    d_first: Tensor,
    d_second: Tensor,
    d_couplings: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return gradients of child poses, weight, activations, center, constant, linear and square.

    Those of the last four come from the logits alone; the caller adds those of moments about
    another center. ``step`` is the distance of the new mean from the center.
    """
    layout = inputs.layout
    if inputs.is_uniform and can_use_products(inputs):
        gradients = uniform_backward(inputs, step, d_mass, d_first, d_second)
        d_center, d_linear, d_square = (torch.zeros_like(d_first) for _ in range(3))
        return *gradients, d_center, torch.zeros_like(d_mass), d_linear, d_square
    d_mass = d_mass + (d_second * step.square()).sum(dim=-1)
    d_first = d_first - 2 * d_second * step
    center, linear, second = (
        layout.pack(x, torch.float32) for x in (inputs.center, d_first, d_second)
    )
    form = Form(center, d_mass.float().contiguous(), linear, second)
    d_activations = torch.empty_like(inputs.activations, dtype=torch.float32)
    known = None if inputs.is_uniform else couplings
    d_logits = None if known is None else torch.empty_like(known)
    d_constant, d_linear, d_square = _logit_moments(
        inputs, form, known, d_couplings, d_logits, d_activations
    )
    slope = inputs.pack(None if inputs.square is None else 2 * inputs.square)
    behind = Form(center, None, linear, 2 * second)
    ahead = Form(center, None, inputs.pack(inputs.linear), slope)
    d_poses, d_weight = _vote_gradients(inputs, behind, ahead, known, d_logits)
    d_center = torch.zeros_like(d_linear)
    if inputs.linear is not None:
        d_center -= inputs.linear * d_constant[..., None]
    if inputs.square is not None:
        d_center -= 2 * inputs.square * d_linear
    return d_poses, d_weight, d_activations, d_center, d_constant, d_linear, d_square


def _shares(inputs: Moments, form: Form) -> Tensor | None:
    """Return the share of every slot in its child ``[n i]``, if slots compete."""
    if inputs.child is None:
        return None
    log_sums = torch.empty_like(inputs.activations, dtype=torch.float32)
    grid, n_part = inputs.grid()
    if log_sums.numel():
        launch(
            survey_kernel,
            grid,
            inputs.layout.arguments(),
            form,
            log_sums,
            n_part,
            **inputs.options(),
        )
    return (log_sums - logsumexp_over(log_sums, inputs.child)).exp()


def _moments(
    inputs: Moments, form: Form, couplings: Tensor | None, shares: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return moments weighted by activations and couplings."""
    layout = inputs.layout
    grid, n_part = inputs.grid()
    sums = _buffers(layout, grid[1])
    if layout.n_windows:
        launch(
            moments_kernel,
            grid,
            layout.arguments(),
            inputs.activations,
            form,
            couplings,
            shares,
            sums,
            n_part,
            **inputs.options(),
        )
    return _totals(layout, sums)


def _logit_moments(
    inputs: Moments,
    form: Form,
    couplings: Tensor | None,
    d_couplings: Tensor | None,
    d_logits: Tensor | None,
    d_activations: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return moments weighted by the gradient of the logits, which is written."""
    layout = inputs.layout
    grid, n_part = inputs.grid()
    common = (layout.arguments(), inputs.activations, form, couplings, d_couplings)
    sums, means = _buffers(layout, grid[1]), None
    if inputs.child is not None:
        shape = (*inputs.activations.shape, 2)
        slots = inputs.activations.new_empty(shape, dtype=torch.float32)
        if layout.n_windows:
            launch(survey_backward_kernel, grid, *common, slots, n_part, **inputs.options())
        means, total = (sum_over(one, inputs.child) for one in slots.unbind(dim=2))
        means = means / total.clamp_min(0.5)
    if layout.n_windows:
        launch(
            moments_backward_kernel,
            grid,
            *common,
            means,
            d_logits,
            d_activations,
            sums,
            n_part,
            **inputs.options(),
        )
    return _totals(layout, sums)


def _buffers(layout: Layout, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    """Return room for sums of one ``[part n j]``, of d and of d^2 ``[part n p r j]``."""
    mass = layout.poses.new_empty((parts, layout.n_windows, layout.n_parents), dtype=torch.float32)
    return mass, layout.parent_buffer(parts), layout.parent_buffer(parts)


def _totals(layout: Layout, sums: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    mass, first, second = (one.sum(dim=0) for one in sums)
    return mass, layout.unpack(first, torch.float32), layout.unpack(second, torch.float32)


def _vote_gradients(
    inputs: Moments, behind: Form, ahead: Form, couplings: Tensor | None, d_logits: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Return gradients of child poses and weight, from forms of dr and l with doubled squares."""
    if couplings is not None and d_logits is not None and can_use_products(inputs):
        return product_gradients(inputs, behind, ahead, couplings, d_logits)
    forms = (behind, ahead, couplings, d_logits)
    return _child_gradient(inputs, *forms), _weight_gradient(inputs, *forms)


def _child_gradient(
    inputs: Moments, behind: Form, ahead: Form, couplings: Tensor | None, d_logits: Tensor | None
) -> Tensor:
    """Return the gradient of the child poses ``[b h w t d]``."""
    layout = inputs.layout
    unfolded = layout.child_buffer()
    grid, n_part = inputs.grid()
    if layout.n_windows:
        launch(
            gaussian_child_kernel,
            grid,
            layout.arguments(),
            inputs.activations,
            behind,
            ahead,
            couplings,
            d_logits,
            unfolded,
            n_part,
            **inputs.options(grouped=False),
        )
    return fold(layout, unfolded)


def _weight_gradient(
    inputs: Moments, behind: Form, ahead: Form, couplings: Tensor | None, d_logits: Tensor | None
) -> Tensor:
    """Return the gradient of the weight ``[t j q r]``, summed over ranges of windows."""
    layout, blocks = inputs.layout, Blocks(inputs.layout)
    d_weight = blocks.buffer()
    if layout.n_windows:
        launch(
            gaussian_weight_kernel,
            (blocks.count, blocks.parts),
            layout.arguments(),
            inputs.activations,
            _by_tile(layout, behind),
            _by_tile(layout, ahead),
            couplings,
            d_logits,
            d_weight,
            blocks.tiles,
            sizes=layout.sizes(layout.pads[1]),
            block=blocks.size,
            num_warps=inputs.warps,
            num_stages=layout.stages(256 * layout.columns, 2),
        )
    return blocks.total(d_weight)


def _by_tile(layout: Layout, form: Form) -> Form:
    """Return a form without constant as ``[tile r j (w p)]``."""
    center, _, *slopes = form
    linear, square = (None if one is None else layout.by_tile(one) for one in slopes)
    return Form(layout.by_tile(center), None, linear, square)
