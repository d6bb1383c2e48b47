"""Triton kernels of one agreement step, backward.

The gradient dl of the logits follows from that of the couplings, s . dS; the first kernel casts the
votes once more for it. The gradient of vote ij is c_ij dS_j + dl_ij P_j, for which the other two
kernels need no vote.
"""

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import (
    cast_votes,
    child_range,
    first_parent,
    load_by_child,
    load_children,
    open_links,
    open_tile,
    parent_columns,
    parent_offsets,
    parent_tile_offset,
    transposed_offsets,
    two_products,
    warp_rows,
    weight_rows,
)


@triton.jit
def coupling_gradients(i, d_sum, couplings, d_couplings, tile, links, votes, sizes: tl.constexpr):
    """Return the votes of child i as a tile, and its couplings and their gradients."""
    cast, _ = cast_votes(i, tile, votes, sizes)
    cast = tl.reshape(cast, sizes.tile)
    d_c = tl.sum(tl.sum(cast * d_sum, axis=4), axis=1)
    step = i * sizes.n_parents
    c = tl.load(couplings + links.offsets + step, mask=links.mask, other=0.0).to(tl.float32)
    if d_couplings is not None:
        d_link = tl.load(d_couplings + links.offsets + step, mask=links.mask, other=0.0)
        d_c += d_link.to(tl.float32)
    return cast, c, d_c


@triton.jit
def attend_backward_kernel(
    votes,
    d_sums,
    means,
    couplings,
    d_couplings,
    d_logits,
    d_parents,
    n_part,
    scale,
    sizes: tl.constexpr,
    leaky: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of the logits, times scale, and sums for the gradient of the parents.

    ``means`` ``[n i]`` are those of the couplings' gradients, or None if the tile holds all
    parents. Rounded couplings do not sum to one, so the mean is divided by their sum.
    """
    first = first_parent(sizes)
    tile = open_tile(first, votes, sizes)
    links = open_links(first, votes, sizes)
    d_sum = tl.load(d_sums + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
    d_sum = tl.reshape(d_sum, sizes.tile)
    shape: tl.constexpr = sizes.tile
    total = tl.zeros(shape, dtype=tl.float32)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        cast, c, d_c = coupling_gradients(
            i, d_sum, couplings, d_couplings, tile, links, votes, sizes
        )
        if means is None:
            mean = tl.sum(tl.sum(c * d_c, axis=3), axis=2)
            if not leaky:
                mean = mean / tl.maximum(tl.sum(tl.sum(c, axis=3), axis=2), 0.5)
        else:
            mean = load_by_child(means, i, links, votes)
        d_logit = scale * c * (d_c - mean[:, :, None, None])
        tl.store(d_logits + links.offsets + i * sizes.n_parents, d_logit, mask=links.mask)
        total += cast * d_logit[:, None, :, :, None, :]
    size: tl.constexpr = sizes.p_size * sizes.r_size * sizes.n_parents
    offsets = tile.offsets + tl.program_id(1).to(tl.int64) * votes.n_windows * size
    tl.store(d_parents + offsets, tl.reshape(total, [64, sizes.columns]), mask=tile.mask)


@triton.jit
def child_kernel(
    votes,
    parents,
    d_sums,
    couplings,
    d_logits,
    d_poses,
    n_part,
    sizes: tl.constexpr,
    block: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the gradient of child poses by window, ``[parent tile n i d]``, from the votes' own.

    A program visits blocks of children, ``block`` times ``q_pad`` columns at a time. With precision
    "ieee" the products over up to 512 columns are sums of float32 numbers, because a tensor core
    truncates what it adds.
    """
    window, p, row_mask = warp_rows(votes, sizes)
    first = first_parent(sizes)
    r, j, column_mask = parent_columns(first, sizes)
    links = open_links(first, votes, sizes)
    width: tl.constexpr = sizes.r_pad * sizes.j_pad
    column = tl.arange(0, sizes.columns)
    k = tl.arange(0, block * sizes.q_pad)
    g = k // sizes.q_pad
    q = k % sizes.q_pad
    offsets = parent_offsets(window, p[:, None] * sizes.r_size + r[None, :], j, sizes)
    mask = row_mask[:, None] & column_mask[None, :]
    parent = tl.reshape(tl.load(parents + offsets, mask=mask, other=0.0), sizes.tile)
    d_sum = tl.reshape(tl.load(d_sums + offsets, mask=mask, other=0.0), sizes.tile)
    d_child: tl.constexpr = sizes.p_size * sizes.q_size
    write = d_poses + window.to(tl.int64)[:, None] * (votes.n_children * d_child)
    write = write + parent_tile_offset(votes.n_children * d_child, votes, sizes)
    write = write + p[:, None] * sizes.q_size + q[None, :]
    start, end = child_range(n_part, votes)
    for base in tl.range(start, end, block, num_stages=stages):
        child = base + g
        child_mask = (child < votes.n_children) & (q < sizes.q_size)
        if sizes.precision != "ieee":
            w = votes.weight + weight_rows(child % sizes.n_weights, q, first, sizes)[None, :]
            w_mask = child_mask[None, :] & (column >= 0)[:, None]
            w = tl.load(w + column[:, None], mask=w_mask, other=0.0)
            w = w.to(tl.float32).to(sizes.operand)
        rows = tl.zeros([64, block * sizes.q_pad], dtype=tl.float32)
        for one in tl.static_range(block):
            link_mask = links.mask & (base + one < votes.n_children)
            step = (base + one) * sizes.n_parents
            c = tl.load(couplings + links.offsets + step, mask=link_mask, other=0.0)
            dl = tl.load(d_logits + links.offsets + step, mask=link_mask, other=0.0)
            c = c[:, None, :, :, None, :]
            dl = dl[:, None, :, :, None, :]
            d_votes = two_products(c, d_sum, dl, parent, sizes.operand)
            d_votes = tl.reshape(d_votes, [64, sizes.columns])
            if sizes.precision == "ieee":
                start_w = ((base + one) % sizes.n_weights) * (sizes.q_size * width)
                for entry in range(sizes.q_size):
                    row = start_w + weight_rows(0, entry, first, sizes)
                    w = tl.load(votes.weight + row + column)
                    d_entry = tl.sum(d_votes * w.to(tl.float32)[None, :], axis=1)
                    here = ((g == one) & (q == entry))[None, :]
                    rows = tl.where(here, d_entry[:, None], rows)
            else:
                d_rows = tl.dot(d_votes, w, input_precision=sizes.precision)
                rows = d_rows if block == 1 else tl.where((g == one)[None, :], d_rows, rows)
        write_mask = row_mask[:, None] & child_mask[None, :]
        tl.store(write + child[None, :] * d_child, rows, mask=write_mask)


@triton.jit
def weight_kernel(
    votes,
    parents,
    d_sums,
    couplings,
    d_logits,
    d_weight,
    tiles,
    sizes: tl.constexpr,
    block: tl.constexpr,
):
    """Write the gradient of the weights ``[part i q (r j)]``: child poses times that of the votes.

    A program owns a block of children, a range of tiles and a tile of parents. Parents and the
    gradient of the sums are ``[tile r j (w p)]`` here, 64 rows of a tile side by side, so that two
    lie in one register.
    """
    first_child = tl.program_id(0) * block
    part = tl.program_id(1)
    first = first_parent(sizes)
    columns: tl.constexpr = sizes.columns
    width: tl.constexpr = sizes.r_pad * sizes.j_pad
    column = tl.arange(0, columns)
    shape: tl.constexpr = [sizes.r_pad, sizes.j_tile, sizes.windows, sizes.p_pad]
    k = tl.arange(0, block * sizes.q_pad)
    g = k // sizes.q_pad
    q = k % sizes.q_pad
    child = first_child + g
    child_mask = (child < votes.n_children) & (q < sizes.q_size)
    j = first + tl.arange(0, sizes.j_tile)[:, None]
    total = tl.zeros([columns, block * sizes.q_pad], dtype=tl.float32)
    for tile in range(part * tiles, part * tiles + tiles):
        rows = load_children(tile, child, q, child_mask, votes, sizes)
        offsets, mask = transposed_offsets(tile, first, votes, sizes)
        parent = tl.reshape(tl.load(parents + offsets, mask=mask, other=0.0), shape)
        d_sum = tl.reshape(tl.load(d_sums + offsets, mask=mask, other=0.0), shape)
        slot = (tile * sizes.windows + tl.arange(0, sizes.windows))[None, :]
        links = slot.to(tl.int64) * (votes.n_children * sizes.n_parents) + j
        for one in tl.static_range(block):
            i = first_child + one
            link_mask = (slot < votes.n_windows) & (j < sizes.n_parents) & (i < votes.n_children)
            c = tl.load(couplings + links + i * sizes.n_parents, mask=link_mask, other=0.0)
            dl = tl.load(d_logits + links + i * sizes.n_parents, mask=link_mask, other=0.0)
            c = c[None, :, :, None]
            dl = dl[None, :, :, None]
            d_votes = two_products(c, d_sum, dl, parent, sizes.operand)
            d_votes = tl.reshape(d_votes, [columns, 64])
            poses = tl.where((g == one)[None, :], rows, 0.0).to(sizes.operand)
            total = tl.dot(d_votes, poses, total, input_precision=sizes.precision)
    write = (part.to(tl.int64) * votes.n_children + child)[None, :]
    write = d_weight + write * (sizes.q_size * width)
    write = write + weight_rows(0, q, first, sizes)[None, :] + column[:, None]
    tl.store(write, total, mask=child_mask[None, :] & (column >= 0)[:, None])
