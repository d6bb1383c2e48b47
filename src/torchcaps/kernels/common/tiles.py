"""Triton functions that the kernels share: where votes lie in memory, and how a tile is cast.

Triton inlines these functions, so they cost nothing. ``votes`` and ``sizes`` are the
``VoteArguments`` and ``VoteSizes`` of :mod:`torchcaps.kernels.common.arguments`.

Rows of a tile are (w p w') with 16 rows to a warp and columns are (j' r j_in), so that sums over a
pose stay inside a thread but for one shuffle. Kernels for the gradient of weights take plain rows
(w p) instead, and transposed tiles.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl


class Tile(NamedTuple):
    """The tile of one program: pointers to what its rows and columns read, and masks."""

    window: Any
    p: Any
    entry: Any
    offsets: Any
    mask: Any
    poses: Any
    poses_mask: Any
    top: Any
    left: Any
    weights: Any
    weights_mask: Any


class Links(NamedTuple):
    """Offsets of a tile's couplings to child 0, ``[4 inner j' j_in]``, and its windows."""

    slot: Any
    parent: Any
    offsets: Any
    mask: Any


@triton.jit
def window_origin(window, votes, sizes: tl.constexpr):
    """Return the offset of a window's first child, and its row and column on the grid."""
    area_out = votes.height_out * votes.width_out
    position = window % area_out
    y = (position // votes.width_out) * (votes.step_h_plus_1 - 1) - votes.pad_h
    x = (position % votes.width_out) * (votes.step_w_plus_1 - 1) - votes.pad_w
    image = (window // area_out).to(tl.int64) * votes.stride_b
    return image + y * votes.stride_h + x * votes.stride_w, y, x


@triton.jit
def child_offset(i, votes, sizes: tl.constexpr):
    """Return the offset of child i in its window, and its row and column there."""
    position = i // sizes.n_types
    y = position // sizes.width_k
    x = position % sizes.width_k
    offset = y * votes.stride_h + x * votes.stride_w + (i % sizes.n_types) * sizes.stride_t
    return offset, y, x


@triton.jit
def child_range(n_part, votes):
    """Return the first child of this program and the end of its part."""
    start = tl.program_id(1) * n_part
    return start, tl.minimum(start + n_part, votes.n_children)


@triton.jit
def warp_rows(votes, sizes: tl.constexpr):
    """Return window, pose row and mask of the rows (w p w') of this program's tile."""
    row = tl.arange(0, 64)
    inner: tl.constexpr = sizes.inner
    window = tl.program_id(0) * sizes.windows + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    return window, p, (window < votes.n_windows) & (p < sizes.p_size)


@triton.jit
def plain_rows(tile, votes, sizes: tl.constexpr):
    """Return window, pose row and mask of the rows (w p) of a tile."""
    row = tl.arange(0, 64)
    window = tile * sizes.windows + row // sizes.p_pad
    p = row % sizes.p_pad
    return window, p, (window < votes.n_windows) & (p < sizes.p_size)


@triton.jit
def first_parent(sizes: tl.constexpr):
    """Return the first parent of this program's tile; programs of axis 2 share the parents."""
    if sizes.tiled:
        return tl.program_id(2) * sizes.j_tile
    else:
        return 0


@triton.jit
def parent_tile_offset(entries, votes, sizes: tl.constexpr):
    """Return where this program's tile of parents begins in ``[parent tile n entries]``."""
    if sizes.tiled:
        return tl.program_id(2).to(tl.int64) * votes.n_windows * entries
    else:
        return 0


@triton.jit
def parent_columns(first, sizes: tl.constexpr):
    """Return pose column, parent and mask of the columns (j' r j_in), from parent ``first`` on."""
    column = tl.arange(0, sizes.columns)
    j_in: tl.constexpr = sizes.j_in
    if sizes.groups == 1:
        r = column // j_in
        j = first + column % j_in
    else:
        r = (column // j_in) % sizes.r_pad
        j = first + column // (sizes.r_pad * j_in) * j_in + column % j_in
    return r, j, (r < sizes.r_size) & (j < sizes.n_parents)


@triton.jit
def weight_rows(i, q, first, sizes: tl.constexpr):
    """Return offsets of rows q of the weights i, from parent ``first`` on."""
    width: tl.constexpr = sizes.r_pad * sizes.j_pad
    if sizes.tiled:
        return i * (sizes.q_size * width) + first * (sizes.q_size * sizes.r_pad) + q * sizes.columns
    else:
        return (i * sizes.q_size + q) * width


@triton.jit
def parent_offsets(window, entry, j, sizes: tl.constexpr):
    """Return offsets of parents ``[n p r j]``."""
    size: tl.constexpr = sizes.p_size * sizes.r_size * sizes.n_parents
    return window.to(tl.int64)[:, None] * size + entry * sizes.n_parents + j[None, :]


@triton.jit
def open_tile(first, votes, sizes: tl.constexpr):
    """Return the tile of this program, with the parents from ``first`` on."""
    window, p, row_mask = warp_rows(votes, sizes)
    r, j, column_mask = parent_columns(first, sizes)
    k = tl.arange(0, sizes.q_pad)
    origin, top, left = window_origin(window, votes, sizes)
    poses = votes.poses + (origin + p * sizes.q_size)[:, None] + k[None, :]
    poses_mask = row_mask[:, None] & (k < sizes.q_size)[None, :]
    weights = votes.weight + weight_rows(0, k, first, sizes)[:, None]
    if sizes.tiled:
        weights = weights + tl.arange(0, sizes.columns)[None, :]
    else:
        weights = weights + (r * sizes.j_pad + j)[None, :]
    weights_mask = (k < sizes.q_size)[:, None] & (tl.arange(0, sizes.columns) >= 0)[None, :]
    entry = p[:, None] * sizes.r_size + r[None, :]
    offsets = parent_offsets(window, entry, j, sizes)
    mask = row_mask[:, None] & column_mask[None, :]
    return Tile(
        window, p, entry, offsets, mask, poses, poses_mask, top, left, weights, weights_mask
    )


@triton.jit
def open_links(first, votes, sizes: tl.constexpr):
    """Return where this program's couplings lie, from parent ``first`` on."""
    j_in: tl.constexpr = sizes.j_in
    inner: tl.constexpr = sizes.inner
    slot = tl.program_id(0) * sizes.windows
    slot = slot + tl.arange(0, 4)[:, None] * inner + tl.arange(0, inner)[None, :]
    parent = first + tl.arange(0, sizes.groups)[:, None] * j_in + tl.arange(0, j_in)[None, :]
    parent = parent[None, None, :, :]
    slots = slot[:, :, None, None]
    offsets = slots.to(tl.int64) * (votes.n_children * sizes.n_parents) + parent
    return Links(slot, parent, offsets, (slots < votes.n_windows) & (parent < sizes.n_parents))


@triton.jit
def child_places(links, votes):
    """Return offsets ``[4 inner]`` of child 0 of a tile's windows in ``[n i]``, and a mask."""
    return links.slot.to(tl.int64) * votes.n_children, links.slot < votes.n_windows


@triton.jit
def load_by_child(numbers, i, links, votes, other: tl.constexpr = 0.0):
    """Return one number per window ``[4 inner]`` for child i, of ``[n i]``; ``other`` elsewhere."""
    places, mask = child_places(links, votes)
    return tl.load(numbers + places + i, mask=mask, other=other)


@triton.jit
def cast_votes(i, tile, votes, sizes: tl.constexpr):
    """Return the votes ``[64 (r j)]`` of child i for a tile, and its weights ``[q (r j)]``."""
    offset, dy, dx = child_offset(i, votes, sizes)
    mask = tile.poses_mask
    if sizes.padded:
        y = tile.top + dy
        x = tile.left + dx
        mask = mask & ((y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width))[:, None]
    child = tl.load(tile.poses + offset, mask=mask, other=0.0).to(tl.float32).to(sizes.operand)
    w = tile.weights + (i % sizes.n_weights) * (sizes.q_size * sizes.r_pad * sizes.j_pad)
    w = tl.load(w, mask=tile.weights_mask, other=0.0).to(tl.float32).to(sizes.operand)
    cast = tl.dot(child, w, input_precision=sizes.precision)
    if votes.bias is not None:
        shift = votes.bias + i * (sizes.p_size * sizes.r_size)
        if sizes.tiled:
            p = tl.arange(0, sizes.p_pad)[:, None]
            r = tl.arange(0, sizes.r_pad)[None, :]
            entry_mask = (p < sizes.p_size) & (r < sizes.r_size)
            shift = tl.load(shift + p * sizes.r_size + r, mask=entry_mask, other=0.0)
            shift = shift.to(tl.float32)[None, :, None, None, :, None]
            cast = tl.reshape(tl.reshape(cast, sizes.tile) + shift, [64, sizes.columns])
        else:
            cast += tl.load(shift + tile.entry, mask=tile.mask, other=0.0).to(tl.float32)
    return cast, w


@triton.jit
def load_children(tile, i, q, mask, votes, sizes: tl.constexpr):
    """Return poses ``[64 (i q)]`` of children i in plain rows, in float32.

    Args:
        tile: number of the tile.
        i: child of each column.
        q: pose column of each column.
        mask: columns to read.
        votes: the votes.
        sizes: sizes compiled in.
    """
    window, p, row_mask = plain_rows(tile, votes, sizes)
    offset, dy, dx = child_offset(i, votes, sizes)
    origin, top, left = window_origin(window, votes, sizes)
    mask = row_mask[:, None] & mask[None, :]
    if sizes.padded:
        y = top[:, None] + dy[None, :]
        x = left[:, None] + dx[None, :]
        mask = mask & (y >= 0) & (y < votes.height) & (x >= 0) & (x < votes.width)
    poses = votes.poses + (origin + p * sizes.q_size)[:, None] + (offset + q)[None, :]
    return tl.load(poses, mask=mask, other=0.0).to(tl.float32)


@triton.jit
def transposed_offsets(tile, first, votes, sizes: tl.constexpr):
    """Return offsets and mask ``[(r j) 64]`` of parents ``[tile r j (w p)]``."""
    row = tl.arange(0, 64)
    r, j, column_mask = parent_columns(first, sizes)
    window = tile * sizes.windows + row // sizes.p_pad
    offsets = tl.zeros([1], tl.int64) + tile
    offsets = (offsets * (sizes.r_size * sizes.n_parents) + r * sizes.n_parents + j) * 64
    mask = column_mask[:, None] & (window < votes.n_windows)[None, :]
    return offsets[:, None] + row[None, :], mask


@triton.jit
def two_products(a, x, b, y, operand: tl.constexpr):
    """Return a x + b y, in bfloat16 two at a time."""
    if operand == tl.bfloat16:
        a, x = tl.broadcast(a, x)
        b, y = tl.broadcast(b, y)
        return tl.inline_asm_elementwise(
            "{ .reg .b32 t; mul.rn.bf16x2 t, $1, $2; fma.rn.bf16x2 $0, $3, $4, t; }",
            "=r,r,r,r,r",
            [a, x, b, y],
            dtype=tl.bfloat16,
            is_pure=True,
            pack=2,
        )
    else:
        return a.to(tl.float32) * x.to(tl.float32) + b.to(tl.float32) * y.to(tl.float32)
