"""Grids and buffers of the kernels of EM routing that need no votes, only squares."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from torchcaps.kernels.common.blocks import Blocks
from torchcaps.kernels.common.fold import fold
from torchcaps.kernels.common.launching import launch
from torchcaps.kernels.common.layout import Layout
from torchcaps.kernels.common.partition import split_children
from torchcaps.kernels.moments.operator import moved_center
from torchcaps.kernels.moments.products import (
    Slopes,
    product_child_kernel,
    product_weight_kernel,
)
from torchcaps.kernels.moments.uniform import (
    uniform_child_kernel,
    uniform_moments_kernel,
    uniform_weight_kernel,
)

if TYPE_CHECKING:
    from torchcaps.kernels.moments.forward import Form
    from torchcaps.kernels.moments.launch import Moments

BLOCK = 4
"""Children at a time: four rows of four numbers make the 16 that a matrix product needs."""

MIN_CHILDREN = 8
"""With 1 or 2 children gradients were off by 140 and 30 %, with 8 as much as with votes."""


def can_use_products(inputs: "Moments") -> bool:
    """Return whether matrix products with squares may replace votes.

    They are sums about zero. That is too rough for float32, and for so few children that votes
    nearly equal their mean. A row of more than four numbers has too many squares, and a bias has
    none.
    """
    layout = inputs.layout
    is_small = layout.pads[1] == 4 and layout.columns <= 128
    is_rough = layout.bias is not None or layout.poses.dtype != torch.bfloat16
    return is_small and not is_rough and layout.n_children >= MIN_CHILDREN


def uniform_forward(inputs: "Moments") -> tuple[Tensor, Tensor, Tensor]:
    """Return mass ``[n j]``, first moment about the center, second about the new mean."""
    layout, j = inputs.layout, inputs.layout.n_parents
    n_part, parts = split_children(layout.tiles, layout.n_children, BLOCK)
    buffer = layout.parent_buffer(2 * parts).unflatten(0, (2, parts))
    if layout.n_windows:
        launch(
            uniform_moments_kernel,
            (layout.tiles, parts),
            layout.arguments(),
            _squares(layout),
            inputs.activations,
            *buffer.unbind(),
            n_part,
            sizes=layout.sizes(4),
            block=BLOCK,
            stages=_stages(layout),
            num_warps=layout.warps,
        )
    mean = buffer.sum(dim=1) / j
    first, second = (layout.unpack(one, torch.float32) for one in mean.unbind())
    mass = (inputs.activations.sum(dim=1, keepdim=True) / j).expand(-1, j).contiguous()
    about = first - inputs.center * mass[..., None]
    new = moved_center(inputs.center, mass, about)
    return mass, about, second + new * (new * mass[..., None] - 2 * first)


def uniform_backward(
    inputs: "Moments", step: Tensor, d_mass: Tensor, d_first: Tensor, d_second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Return gradients of child poses, weight and activations."""
    layout, j = inputs.layout, inputs.layout.n_parents
    new = inputs.center + step
    constant = d_second * new.square() - d_first * inputs.center
    constant = (d_mass.sum(dim=1) + constant.sum(dim=(1, 2))) / j
    linear = _halves(layout.pack((d_first - 2 * d_second * new) / j, torch.float32))
    square = _halves(layout.pack(d_second / j, torch.float32))
    n_part, parts = split_children(layout.tiles, layout.n_children, BLOCK)
    unfolded = layout.child_buffer()
    d_activations = torch.empty_like(inputs.activations, dtype=torch.float32)
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if layout.n_windows:
        launch(
            uniform_child_kernel,
            (layout.tiles, parts),
            layout.arguments(),
            _squares(layout),
            inputs.activations,
            constant,
            linear,
            square,
            unfolded,
            d_activations,
            n_part,
            sizes=layout.sizes(4),
            block=BLOCK,
            stages=1,  # two programs to a multiprocessor
            num_warps=layout.warps,
        )
        launch(
            uniform_weight_kernel,
            (blocks.count, blocks.parts),
            layout.arguments(),
            inputs.activations,
            linear,
            square,
            d_weight,
            blocks.tiles,
            sizes=layout.sizes(4),
            block=BLOCK,
            num_stages=2,
            num_warps=_row_warps(layout),
        )
    return fold(layout, unfolded), blocks.total(d_weight), d_activations


def product_gradients(
    inputs: "Moments", behind: "Form", ahead: "Form", couplings: Tensor, d_logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Return gradients of child poses and weight, from forms of dr and l with doubled squares."""
    layout = inputs.layout
    slopes = _slopes(behind, ahead)
    shares = torch.mul(couplings, inputs.activations[..., None], out=torch.empty_like(couplings))
    n_part, parts = split_children(layout.tiles, layout.n_children, BLOCK)
    unfolded = layout.child_buffer()
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if layout.n_windows:
        launch(
            product_child_kernel,
            (layout.tiles, parts),
            layout.arguments(),
            _squares(layout),
            slopes,
            shares,
            d_logits,
            unfolded,
            n_part,
            sizes=layout.sizes(4),
            block=2,
            stages=_stages(layout),
            num_warps=layout.warps,
        )
        launch(
            product_weight_kernel,
            (blocks.count, blocks.parts),
            layout.arguments(),
            Slopes(*(layout.by_tile(slope) for slope in slopes)),
            shares,
            d_logits,
            d_weight,
            blocks.tiles,
            sizes=layout.sizes(4),
            block=BLOCK,
            num_stages=3,
            num_warps=_row_warps(layout),
        )
    return fold(layout, unfolded), blocks.total(d_weight)


def _slopes(behind: "Form", ahead: "Form") -> Slopes:
    """Return forms about zero in bfloat16."""
    (linear, square), (linear_logits, square_logits) = _about_zero(behind), _about_zero(ahead)
    slopes = (linear, linear_logits, square, square_logits)
    return Slopes(*(slope.to(torch.bfloat16) for slope in slopes))


def _about_zero(form: "Form") -> tuple[Tensor, Tensor]:
    """Return the slope of a form where a vote is zero, and how it rises, ``[n p r j]``."""
    square = torch.zeros_like(form.center) if form.square is None else form.square
    slope = -square * form.center
    return slope if form.linear is None else form.linear + slope, square


def _halves(wide: Tensor) -> tuple[Tensor, Tensor]:
    """Return what float32 rounds to in bfloat16, and the rest."""
    high = wide.to(torch.bfloat16)
    return high, (wide - high).to(torch.bfloat16)


def _squares(layout: Layout) -> tuple[Tensor, Tensor]:
    """Return products W_q W_q' of the packed weights as halves ``[t q q' r j]``."""
    wide = layout.packed_weight.float()
    return _halves(wide[:, :, None] * wide[:, None])


def _stages(layout: Layout) -> int:
    return layout.stages(36 * BLOCK * layout.columns, 3)


def _row_warps(layout: Layout) -> int:
    """Return the warps of a product with a row for each column of a tile: 16 rows to a warp.

    With fewer warps, Triton 3.6 compiles a kernel that reads outside its tensors.
    """
    return max(4, min(2 * layout.warps, layout.columns // 16))
