"""Triton kernels for parents of several tiles: what couplings take from all parents at once.

    L_i = log sum_j exp(l_ij)    normalizer of the couplings: c_ij = exp(l_ij - L_i)
    m_i = sum_j c_ij dc_ij       mean in the gradient of the logits: dl_ij = c_ij (dc_ij - m_i)

A program casts the votes of one tile of parents and writes its share of L_i or m_i. Shares are put
together in the order of the tiles, those of L_i as an online softmax. Logarithms are to base two.
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
    """Write the logarithm of the sum of 2^l over the parents of a tile, ``[parent tile n i]``."""
    first = first_parent(sizes)
    tile = open_tile(first, votes, sizes)
    links = open_links(first, votes, sizes)
    query = load_query(parents, scale, tile, sizes)
    places, mask = child_places(links, votes)
    write = partial + parent_tile_offset(votes.n_children, votes, sizes) + places
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        _, logits = cast_logits(i, query, tile, links, votes, sizes)
        largest = tl.max(tl.max(logits, axis=3), axis=2)
        share = tl.exp2(logits - largest[:, :, None, None])
        norm = tl.sum(tl.sum(share, axis=3), axis=2)
        tl.store(write + i, largest + tl.log2(norm), mask=mask)


@triton.jit
def normalizer_kernel(
    partial, normalizers, size, n_tiles, leaky: tl.constexpr, block: tl.constexpr
):
    """Write the normalizers ``[n i]`` from those of the tiles; ``leaky`` adds a logit of zero."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = at < size
    largest = tl.load(partial + at, mask=mask, other=0.0)
    norm = tl.full([block], 1.0, dtype=tl.float32)
    if leaky:
        norm = tl.exp2(tl.minimum(largest, 0.0)) + tl.exp2(-tl.maximum(largest, 0.0))
        largest = tl.maximum(largest, 0.0)
    for _ in range(1, n_tiles):
        partial += size
        value = tl.load(partial + at, mask=mask, other=0.0)
        higher = tl.maximum(largest, value)
        norm = norm * tl.exp2(largest - higher) + tl.exp2(value - higher)
        largest = higher
    tl.store(normalizers + at, largest + tl.log2(norm), mask=mask)


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
