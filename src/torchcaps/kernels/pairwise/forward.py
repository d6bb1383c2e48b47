"""Triton kernels of pairwise routing: sums of directions of votes that are cast and never stored.

With the vote v_ij = (x_i W_ij) * scale + bias and its direction u_ij = v_ij / |v_ij|,

    T_j  = sum_i u_ij                         total, element by element
    Q_j  = sum_i u_ij^2                       squares
    l_ij = f (u_ij . T_j - |u_ij|^2)          link of child i and all others, for parent j

Parents do not compete: a program owns a tile of 64 rows and a block of parents.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import cast_votes, child_range, open_links, open_tile


class Affine(NamedTuple):
    """Scale and bias of votes ``[i e j]``, or None, and their strides.

    ``child_span`` is 0 and ``by_parent`` false if all children or parents share one.
    """

    scale: Any
    bias: Any
    child_span: Any
    entry_span: Any


@triton.jit
def affine_offsets(first, affine, sizes: tl.constexpr, by_parent: tl.constexpr):
    """Return offsets and mask ``[p j' r j_in]`` of a scale or bias."""
    p = tl.arange(0, sizes.p_pad)[:, None, None, None]
    r = tl.arange(0, sizes.r_pad)[None, None, :, None]
    at = (p * sizes.r_size + r) * affine.entry_span
    mask = (p < sizes.p_size) & (r < sizes.r_size)
    if by_parent:
        j_in: tl.constexpr = sizes.j_in
        j = first + tl.arange(0, sizes.groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
        j = j[None, :, None, :]
        at = at + j
        mask = mask & (j < sizes.n_parents)
    return at, mask


@triton.jit
def load_affine(affine, at, mask):
    """Return scale and bias of a tile; a number in place of None has no meaning."""
    scale = at
    if affine.scale is not None:
        scale = tl.load(affine.scale + at, mask=mask, other=0.0)[None, :, None, :, :, :]
    bias = at
    if affine.bias is not None:
        bias = tl.load(affine.bias + at, mask=mask, other=0.0)[None, :, None, :, :, :]
    return scale, bias


@triton.jit
def apply_affine(cast, scale, bias, affine):
    """Return votes scaled and shifted."""
    if affine.scale is not None:
        cast = cast * scale
    if affine.bias is not None:
        cast = cast + bias
    return cast


@triton.jit
def inverse_length(squared):
    """Return one over a length, zero for a vector shorter than 1e-6, which has no direction."""
    return tl.where(squared > 1e-12, tl.rsqrt(tl.maximum(squared, 1e-12)), 0.0)


@triton.jit
def sums_kernel(
    votes,
    affine,
    links,
    totals,
    squares,
    n_part,
    sizes: tl.constexpr,
    normalize: tl.constexpr,
    varied: tl.constexpr,
    by_parent: tl.constexpr,
    stages: tl.constexpr,
):
    """Write totals and squares ``[part n p r j]`` over a part of the children.

    With ``links`` ``[n i j]``, totals are weighted by them and there are no squares.
    """
    first = tl.program_id(2) * sizes.j_tile
    tile = open_tile(first, votes, sizes)
    at, at_mask = affine_offsets(first, affine, sizes, by_parent)
    if not varied:
        scale, bias = load_affine(affine, at, at_mask)
    shape: tl.constexpr = sizes.tile
    total = tl.zeros(shape, dtype=tl.float32)
    square = tl.zeros(shape, dtype=tl.float32)
    places = open_links(first, votes, sizes)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, _ = cast_votes(i, tile, votes, sizes)
        if varied:
            scale, bias = load_affine(affine, at + i * affine.child_span, at_mask)
        u = apply_affine(tl.reshape(cast, sizes.tile), scale, bias, affine)
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None, :]
        if links is not None:
            c = links + places.offsets + i * sizes.n_parents
            c = tl.load(c, mask=places.mask, other=0.0)
            total += u * c[:, None, :, :, None, :]
        else:
            total += u
            square += u * u
    size: tl.constexpr = sizes.p_size * sizes.r_size * sizes.n_parents
    offsets = tile.offsets + tl.program_id(1).to(tl.int64) * votes.n_windows * size
    flat: tl.constexpr = [64, sizes.columns]
    tl.store(totals + offsets, tl.reshape(total, flat), mask=tile.mask)
    if links is None:
        tl.store(squares + offsets, tl.reshape(square, flat), mask=tile.mask)


@triton.jit
def links_kernel(
    votes,
    affine,
    totals,
    links,
    n_part,
    factor,
    sizes: tl.constexpr,
    normalize: tl.constexpr,
    varied: tl.constexpr,
    by_parent: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the links ``[n i j]`` of a part of the children to totals ``[n p r j]``."""
    first = tl.program_id(2) * sizes.j_tile
    tile = open_tile(first, votes, sizes)
    at, at_mask = affine_offsets(first, affine, sizes, by_parent)
    if not varied:
        scale, bias = load_affine(affine, at, at_mask)
    total = tl.load(totals + tile.offsets, mask=tile.mask, other=0.0)
    total = tl.reshape(total, sizes.tile)
    places = open_links(first, votes, sizes)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, _ = cast_votes(i, tile, votes, sizes)
        if varied:
            scale, bias = load_affine(affine, at + i * affine.child_span, at_mask)
        u = apply_affine(tl.reshape(cast, sizes.tile), scale, bias, affine)
        if normalize:
            inverse = inverse_length(tl.sum(tl.sum(u * u, axis=4), axis=1))
            u = u * inverse[:, None, :, :, None, :]
        link = factor * tl.sum(tl.sum(u * (total - u), axis=4), axis=1)
        tl.store(links + places.offsets + i * sizes.n_parents, link, mask=places.mask)
