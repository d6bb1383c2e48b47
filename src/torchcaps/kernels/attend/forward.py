"""Triton kernel of one agreement step: couplings from votes that are cast and never stored.

    l_ij = v_ij . P_j            agreement, with P scaled beforehand, for powers of two
    c_ij = softmax_j(l_ij)       coupling, over parents
    s_j  = sum_i c_ij v_ij       pose

A program owns a tile of 64 rows and visits children one by one: one matrix product casts the votes
of all 64 rows for all parents. Parents are ``[n p r j]`` here. Everything is summed in float32 in a
fixed order: the same input gives the same bits.
"""

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    cast_votes,
    child_range,
    first_parent,
    load_by_child,
    open_links,
    open_tile,
)


@triton.jit
def load_query(parents, scale, tile, sizes: tl.constexpr):
    """Return the parents of a tile, such that a vote times its parent is a power of two."""
    query = tl.load(parents + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
    return tl.reshape(query * (scale * 1.4426950408889634), sizes.tile)


@triton.jit
def cast_logits(i, query, tile, links, votes, sizes: tl.constexpr):
    """Return the votes of child i as a tile, and their logits ``[4 inner j' j_in]``."""
    cast, _ = cast_votes(i, tile, votes, sizes)
    cast = tl.reshape(cast, sizes.tile)
    logits = tl.sum(tl.sum(cast * query, axis=4), axis=1)
    return cast, tl.where(links.parent < sizes.n_parents, logits, float("-inf"))


@triton.jit
def attend_kernel(
    votes,
    parents,
    tops,
    norms,
    couplings,
    out,
    n_part,
    scale,
    sizes: tl.constexpr,
    leaky: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the couplings of a tile with a part of the children, and sums of its votes.

    ``tops`` ``[n i]`` are the largest logits l' of all parents, and ``norms`` the sums of
    2^(l - l'). Both are None if the tile holds all parents.
    """
    first = first_parent(sizes)
    tile = open_tile(first, votes, sizes)
    links = open_links(first, votes, sizes)
    query = load_query(parents, scale, tile, sizes)
    shape: tl.constexpr = sizes.tile
    total = tl.zeros(shape, dtype=tl.float32)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, logits = cast_logits(i, query, tile, links, votes, sizes)
        if tops is None:
            largest = tl.max(tl.max(logits, axis=3), axis=2)
            if leaky:
                largest = tl.maximum(largest, 0.0)
            share = tl.exp2(logits - largest[:, :, None, None])
            norm = tl.sum(tl.sum(share, axis=3), axis=2)
            if leaky:
                norm += tl.exp2(-largest)
        else:
            largest = load_by_child(tops, i, links, votes)
            norm = load_by_child(norms, i, links, votes, other=1.0)
            share = tl.exp2(logits - largest[:, :, None, None])
        share = share * (1.0 / norm)[:, :, None, None]
        tl.store(couplings + links.offsets + i * sizes.n_parents, share, mask=links.mask)
        total += cast * share[:, None, :, :, None, :]
    size: tl.constexpr = sizes.p_size * sizes.r_size * sizes.n_parents
    offsets = tile.offsets + tl.program_id(1).to(tl.int64) * votes.n_windows * size
    tl.store(out + offsets, tl.reshape(total, [64, sizes.columns]), mask=tile.mask)
