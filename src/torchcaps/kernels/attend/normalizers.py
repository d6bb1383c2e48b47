"""Triton kernels for parents of several tiles: what couplings take from all parents at once.

    l'_i = max_j l_ij                      largest logit
    n_i = sum_j exp(l_ij - l'_i)           norm of the couplings: c_ij = exp(l_ij - l'_i) / n_i
    m_i = sum_j c_ij dc_ij                 mean in the gradient of the logits: c_ij (dc_ij - m_i)

A program casts the votes of one tile of parents and writes its share of the sums. Shares are put
together in the order of the tiles, those of n_i as an online softmax. Powers are those of two.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.backward import coupling_gradients
from torchcaps.kernels.attend.forward import cast_logits, load_query
from torchcaps.kernels.common.tiles import (
    child_places,
    child_range,
    first_parent,
    open_links,
    open_tile,
    parent_tile_offset,
)


@triton.jit
def partial_normalizer_kernel(
    votes, parents, partial, n_part, scale, sizes: tl.constexpr, stages: tl.constexpr
):
    """Write the largest logit l of a tile, and the sum of 2^(l - largest): ``[tile n i 2]``."""
    first = first_parent(sizes)
    tile = open_tile(first, votes, sizes)
    links = open_links(first, votes, sizes)
    query = load_query(parents, scale, tile, sizes)
    places, mask = child_places(links, votes)
    write = partial + 2 * (parent_tile_offset(votes.n_children, votes, sizes) + places)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        _, logits = cast_logits(i, query, tile, links, votes, sizes)
        largest = tl.max(tl.max(logits, axis=3), axis=2)
        share = tl.exp2(logits - largest[:, :, None, None])
        norm = tl.sum(tl.sum(share, axis=3), axis=2)
        tl.store(write + 2 * i, largest, mask=mask)
        tl.store(write + 2 * i + 1, norm, mask=mask)


@triton.jit
def normalizer_kernel(
    partial, tops, norms, size, n_tiles, leaky: tl.constexpr, block: tl.constexpr
):
    """Write the largest logits ``[n i]`` of all tiles, and their sums; ``leaky`` adds a logit of 0.

    One logarithm of both would lose the digits of the sum where logits are large.
    """
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = at < size
    largest = tl.load(partial + 2 * at, mask=mask, other=0.0)
    norm = tl.load(partial + 2 * at + 1, mask=mask, other=1.0)
    if leaky:
        higher = tl.maximum(largest, 0.0)
        norm = norm * tl.exp2(largest - higher) + tl.exp2(-higher)
        largest = higher
    for _ in range(1, n_tiles):
        partial += 2 * size
        value = tl.load(partial + 2 * at, mask=mask, other=0.0)
        more = tl.load(partial + 2 * at + 1, mask=mask, other=0.0)
        higher = tl.maximum(largest, value)
        norm = norm * tl.exp2(largest - higher) + more * tl.exp2(value - higher)
        largest = higher
    tl.store(tops + at, largest, mask=mask)
    tl.store(norms + at, norm, mask=mask)


@triton.jit
def partial_mean_kernel(
    votes, d_sums, couplings, d_couplings, partial, n_part, sizes: tl.constexpr,
    stages: tl.constexpr,
):  # fmt: skip
    """Write sums over the parents of a tile of c dc and of c, ``[parent tile n i 2]``."""
    first = first_parent(sizes)
    tile = open_tile(first, votes, sizes)
    links = open_links(first, votes, sizes)
    d_sum = tl.load(d_sums + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
    d_sum = tl.reshape(d_sum, sizes.tile)
    places, mask = child_places(links, votes)
    write = partial + 2 * (parent_tile_offset(votes.n_children, votes, sizes) + places)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        _, c, d_c = coupling_gradients(i, d_sum, couplings, d_couplings, tile, links, votes, sizes)
        tl.store(write + 2 * i, tl.sum(tl.sum(c * d_c, axis=3), axis=2), mask=mask)
        tl.store(write + 2 * i + 1, tl.sum(tl.sum(c, axis=3), axis=2), mask=mask)
