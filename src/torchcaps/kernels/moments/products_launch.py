"""Grids and buffers of the kernels of EM routing that need no votes, only squares."""

from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from torchcaps.kernels.common.layout import Blocks, Layout, fold, split
from torchcaps.kernels.moments.operator import moved_center
from torchcaps.kernels.moments.products import product_child_kernel, product_weight_kernel
from torchcaps.kernels.moments.uniform import (
    uniform_child_kernel,
    uniform_moments_kernel,
    uniform_weight_kernel,
)

if TYPE_CHECKING:
    from torchcaps.kernels.moments.launch import Form, Moments

__all__ = ["by_products", "product_gradients", "uniform_backward", "uniform_forward"]

BLOCK = 4
"""Children at a time: four rows of four numbers make the 16 that a matrix product needs."""

LEAST_CHILDREN = 8
"""With 1 or 2 children gradients were off by 1.4 and 0.3 of their size, with 8 as with votes."""


def by_products(given: "Moments") -> bool:
    """Whether matrix products with squares take the place of votes.

    They are sums about zero, which are too rough for float32, and for so few children that votes
    and their mean are nearly alike; a row of more than four numbers has too many squares, and a
    bias has none.
    """
    layout = given.layout
    small = layout.pads[1] == 4 and layout.columns <= 128
    many = layout.n_children >= LEAST_CHILDREN
    return given.bias is None and layout.poses.dtype == torch.bfloat16 and small and many


def uniform_forward(given: "Moments") -> tuple[Tensor, Tensor, Tensor]:
    """Mass ``[n j]``, first moment about the center and second about the new mean ``[n j e]``."""
    layout = given.layout
    n, i, j = layout.n_windows, layout.n_children, layout.weight.shape[1]
    tiles = triton.cdiv(n, 64 // layout.pads[0])
    n_part, parts = split(tiles, i, BLOCK)
    weight = layout.packed_weight()
    shape = (2, parts, n, layout.rows, layout.weight.shape[3], j)
    sums = layout.poses.new_empty(shape, dtype=torch.float32)
    if n:
        uniform_moments_kernel[(tiles, parts)](
            layout.poses,
            weight,
            *_squares(weight),
            given.activations,
            *sums.unbind(),
            n,
            i,
            n_part,
            stages=_stages(layout),
            **_common(layout),
        )
    mean = sums.sum(dim=1) / j
    first, second = (layout.unpack(one, torch.float32) for one in mean.unbind())
    mass = (given.activations.sum(dim=1, keepdim=True) / j).expand(n, j).contiguous()
    about = first - given.center * mass[..., None]
    new = moved_center(given.center, mass, about)
    return mass, about, second + new * (new * mass[..., None] - 2 * first)


def uniform_backward(
    given: "Moments", step: Tensor, d_mass: Tensor, d_first: Tensor, d_second: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of child poses, weight and activations."""
    layout = given.layout
    n, i, j = layout.n_windows, layout.n_children, layout.weight.shape[1]
    new = given.center + step
    constant = d_second * new.square() - d_first * given.center
    constant = (d_mass.sum(dim=1) + constant.sum(dim=(1, 2))) / j
    linear = _halves(layout.pack((d_first - 2 * d_second * new) / j, torch.float32))
    square = _halves(layout.pack(d_second / j, torch.float32))
    tiles = triton.cdiv(n, 64 // layout.pads[0])
    n_part, parts = split(tiles, i, BLOCK)
    weight = layout.packed_weight()
    unfolded = layout.poses.new_empty(n, i, layout.poses.shape[4])
    d_activations = torch.empty_like(given.activations, dtype=torch.float32)
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if n:
        uniform_child_kernel[(tiles, parts)](
            layout.poses,
            weight,
            *_squares(weight),
            given.activations,
            constant,
            *linear,
            *square,
            unfolded,
            d_activations,
            n,
            i,
            n_part,
            stages=1,  # two programs to a multiprocessor
            **_common(layout),
        )
        uniform_weight_kernel[(blocks.count, blocks.parts)](
            layout.poses,
            weight,
            given.activations,
            *linear,
            *square,
            d_weight,
            n,
            i,
            blocks.tiles,
            num_stages=2,
            **_common(layout, _row_warps(layout)),
        )
    return fold(layout, unfolded), blocks.summed(d_weight), d_activations


def product_gradients(
    given: "Moments", behind: "Form", ahead: "Form", couplings: Tensor, logits: Tensor
) -> tuple[Tensor, Tensor]:
    """Gradients of child poses and weight, from the form of dr and that of l; squares doubled."""
    layout = given.layout
    n, i = layout.n_windows, layout.n_children
    slopes, squares = zip(*(_about_zero(form) for form in (behind, ahead)), strict=True)
    forms = [form.to(torch.bfloat16) for form in (*slopes, *squares)]
    shares = torch.mul(couplings, given.activations[..., None], out=torch.empty_like(couplings))
    tiles = triton.cdiv(n, 64 // layout.pads[0])
    n_part, parts = split(tiles, i, BLOCK)
    weight = layout.packed_weight()
    unfolded = layout.poses.new_empty(n, i, layout.poses.shape[4])
    blocks = Blocks(layout)
    d_weight = blocks.buffer()
    if n:
        product_child_kernel[(tiles, parts)](
            layout.poses,
            weight,
            *_squares(weight),
            *forms,
            shares,
            logits,
            unfolded,
            n,
            i,
            n_part,
            stages=_stages(layout),
            **_common(layout) | {"block": 2},
        )
        product_weight_kernel[(blocks.count, blocks.parts)](
            layout.poses,
            weight,
            *(layout.by_tile(form) for form in forms),
            shares,
            logits,
            d_weight,
            n,
            i,
            blocks.tiles,
            num_stages=3,
            **_common(layout, _row_warps(layout)),
        )
    return fold(layout, unfolded), blocks.summed(d_weight)


def _about_zero(form: "Form") -> tuple[Tensor, Tensor]:
    """The slope of a form where a vote is zero, and how it rises, ``[n p r j]``."""
    square = torch.zeros_like(form.center) if form.square is None else form.square
    slope = -square * form.center
    return slope if form.linear is None else form.linear + slope, square


def _halves(wide: Tensor) -> tuple[Tensor, Tensor]:
    """What float32 rounds to in bfloat16, and the rest."""
    high = wide.to(torch.bfloat16)
    return high, (wide - high).to(torch.bfloat16)


def _squares(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Products W_q W_q' of packed weights ``[t q r j]``, ``[t q q' r j]``."""
    wide = weight.float()
    return _halves(wide[:, :, None] * wide[:, None])


def _stages(layout: Layout) -> int:
    return layout.stages(36 * BLOCK * layout.columns, 3)


def _row_warps(layout: Layout) -> int:
    """Warps of a product with a row to each column of a tile: 16 rows to a warp.

    With fewer, Triton 3.6 makes a kernel that reads where nothing is.
    """
    return max(4, min(2 * layout.warps, layout.columns // 16))


def _common(layout: Layout, warps: int | None = None) -> dict[str, object]:
    """What the kernels are told alike."""
    return {
        "geometry": layout.geometry(),
        "height": layout.poses.shape[1],
        "width": layout.poses.shape[2],
        "stride_t": layout.poses.stride(3),
        "n_weights": layout.weight.shape[0],
        "block": BLOCK,
        "num_warps": warps or layout.warps,
        **layout.places(),
        **layout.sizes(),
    }
