"""Triton kernels of one agreement step, backward: gradients of child poses and weights.

The gradient of vote ij is c_ij dS_j + dl_ij P_j, with the gradient dl of the logits from
:mod:`torchcaps.kernels.attend.forward`: no vote is needed.
"""

import triton
import triton.language as tl

from torchcaps.kernels.attend.forward import child_place, window_origin

__all__ = ["child_kernel", "fold_kernel", "two_products", "weight_kernel"]


@triton.jit
def two_products(a, x, b, y, operand: tl.constexpr):
    """A x + b y, in bfloat16 two at a time."""
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


@triton.jit
def child_kernel(
    weight,
    parents,
    gradient,
    couplings,
    logits,
    d_poses,
    n_windows,
    n_children,
    n_part,
    n_weights: tl.constexpr,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    q_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    q_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    block: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """Gradient of child poses by window, ``[n i d]``, from that of the votes.

    A program owns a tile of windows and goes through blocks of children, ``block`` times ``q_pad``
    columns at a time. With ``precision`` "ieee" the products over up to 512 columns are sums of
    float32 numbers: a tensor core cuts off what it adds up.
    """
    tile = tl.program_id(0)
    part = tl.program_id(1)
    inner: tl.constexpr = 16 // p_pad
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    window = tile * per_tile + (row // 16) * inner + row % inner
    p = (row % 16) // inner
    column = tl.arange(0, r_pad * j_pad)
    r = column // j_pad
    j = column % j_pad
    k = tl.arange(0, block * q_pad)
    g = k // q_pad
    q = k % q_pad
    there = (window < n_windows) & (p < p_size)
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
    place = place + (p[:, None] * r_size + r[None, :]) * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    before = tl.load(parents + place, mask=place_mask, other=0.0)
    behind = tl.load(gradient + place, mask=place_mask, other=0.0)
    before = tl.reshape(before, [4, p_pad, inner, r_pad, j_pad])
    behind = tl.reshape(behind, [4, p_pad, inner, r_pad, j_pad])

    first = tl.arange(0, 4)
    second = tl.arange(0, inner)
    parent = tl.arange(0, j_pad)[None, None, :]
    slot = (tile * per_tile + first[:, None] * inner + second[None, :])[:, :, None]
    link = slot.to(tl.int64) * (n_children * n_parents) + parent
    link_mask = (slot < n_windows) & (parent < n_parents)
    write = d_poses + window.to(tl.int64)[:, None] * (n_children * p_size * q_size)
    write = write + p[:, None] * q_size + q[None, :]

    start = part * n_part
    for base in tl.range(start, tl.minimum(start + n_part, n_children), block, num_stages=stages):
        child = base + g
        child_mask = (child < n_children) & (q < q_size)
        if precision != "ieee":
            w = weight + ((child % n_weights) * q_size + q)[None, :] * (r_pad * j_pad)
            w = tl.load(
                w + column[:, None], mask=child_mask[None, :] & (column >= 0)[:, None], other=0.0
            )
            w = w.to(tl.float32).to(operand)
        rows = tl.zeros([64, block * q_pad], dtype=tl.float32)
        for one in tl.static_range(block):
            mask = link_mask & (base + one < n_children)
            c = tl.load(couplings + link + (base + one) * n_parents, mask=mask, other=0.0)
            dl = tl.load(logits + link + (base + one) * n_parents, mask=mask, other=0.0)
            d_votes = two_products(
                c[:, None, :, None, :], behind, dl[:, None, :, None, :], before, operand
            )
            d_votes = tl.reshape(d_votes, [64, r_pad * j_pad])
            if precision == "ieee":
                start_of = weight + ((base + one) % n_weights) * (q_size * r_pad * j_pad) + column
                for entry in range(q_size):
                    w = tl.load(start_of + entry * (r_pad * j_pad)).to(tl.float32)
                    own = tl.sum(d_votes * w[None, :], axis=1)
                    rows = tl.where(((g == one) & (q == entry))[None, :], own[:, None], rows)
            else:
                own = tl.dot(d_votes, w, input_precision=precision)
                rows = own if block == 1 else tl.where((g == one)[None, :], own, rows)
        tl.store(
            write + child[None, :] * (p_size * q_size),
            rows,
            mask=there[:, None] & child_mask[None, :],
        )


@triton.jit
def weight_kernel(
    poses,
    parents,
    gradient,
    couplings,
    logits,
    d_weight,
    n_windows,
    n_children,
    tiles,
    geometry,
    height,
    width,
    stride_t: tl.constexpr,
    width_out: tl.constexpr,
    area_out: tl.constexpr,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    q_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    q_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    block: tl.constexpr,
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Gradient of the weights ``[i q (r j)]``: child poses times the gradient of the votes.

    A program owns a block of children and a range of tiles of windows. Parents and gradient are
    ``[tile r j (w p)]`` here, 64 rows of a tile side by side, so that two lie in one register.
    """
    first_child = tl.program_id(0) * block
    part = tl.program_id(1)
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    p = row % p_pad
    column = tl.arange(0, r_pad * j_pad)
    r = column // j_pad
    j = column % j_pad
    column_mask = (r < r_size) & (j < n_parents)
    k = tl.arange(0, block * q_pad)
    g = k // q_pad
    q = k % q_pad
    child = first_child + g
    child_mask = (child < n_children) & (q < q_size)
    offset, dy, dx = child_place(child, geometry, stride_t, n_types, width_k)
    parent = tl.arange(0, j_pad)[:, None]
    total = tl.zeros([r_pad * j_pad, block * q_pad], dtype=tl.float32)

    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * per_tile + row // p_pad
        there = (window < n_windows) & (p < p_size)
        origin, top, left = window_origin(window, geometry, width_out, area_out)
        mask = there[:, None] & child_mask[None, :]
        if padded:
            y = top[:, None] + dy[None, :]
            x = left[:, None] + dx[None, :]
            mask = mask & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        read = poses + (origin + p * q_size)[:, None] + (offset + q)[None, :]
        rows = tl.load(read, mask=mask, other=0.0).to(tl.float32)
        place = tl.zeros([1], tl.int64) + tile
        place = (place * (r_size * n_parents) + r * n_parents + j) * 64
        place = place[:, None] + row[None, :]
        place_mask = column_mask[:, None] & (window < n_windows)[None, :]
        before = tl.load(parents + place, mask=place_mask, other=0.0)
        behind = tl.load(gradient + place, mask=place_mask, other=0.0)
        before = tl.reshape(before, [r_pad, j_pad, per_tile, p_pad])
        behind = tl.reshape(behind, [r_pad, j_pad, per_tile, p_pad])
        slot = (tile * per_tile + tl.arange(0, per_tile))[None, :]
        link = slot.to(tl.int64) * (n_children * n_parents) + parent
        for one in tl.static_range(block):
            i = first_child + one
            link_mask = (slot < n_windows) & (parent < n_parents) & (i < n_children)
            c = tl.load(couplings + link + i * n_parents, mask=link_mask, other=0.0)
            dl = tl.load(logits + link + i * n_parents, mask=link_mask, other=0.0)
            d_votes = two_products(
                c[None, :, :, None], behind, dl[None, :, :, None], before, operand
            )
            d_votes = tl.reshape(d_votes, [r_pad * j_pad, 64])
            own = tl.where((g == one)[None, :], rows, 0.0).to(operand)
            total = tl.dot(d_votes, own, total, input_precision=precision)

    write = d_weight + (part.to(tl.int64) * n_children + child)[None, :] * (q_size * r_pad * j_pad)
    write = write + q[None, :] * (r_pad * j_pad) + column[:, None]
    tl.store(write, total, mask=child_mask[None, :] & (column >= 0)[:, None])


@triton.jit
def fold_kernel(
    unfolded,
    grid,
    size,
    height,
    width,
    kernel_h: tl.constexpr,
    kernel_w: tl.constexpr,
    step_h: tl.constexpr,
    step_w: tl.constexpr,
    pad_h: tl.constexpr,
    pad_w: tl.constexpr,
    height_out,
    width_out,
    entries: tl.constexpr,
    block: tl.constexpr,
):
    """Sum ``[(b h' w') k e]`` over the windows that show a place: ``[b h w e]``."""
    at = tl.program_id(0).to(tl.int64) * block + tl.arange(0, block)
    mask = at < size
    entry = at % entries
    place = at // entries
    x = place % width
    y = (place // width) % height
    b = place // width // height
    total = tl.zeros([block], dtype=tl.float32)
    for ky in tl.static_range(kernel_h):
        for kx in tl.static_range(kernel_w):
            top = y + pad_h - ky
            left = x + pad_w - kx
            oy = top // step_h
            ox = left // step_w
            hit = (top >= 0) & (top % step_h == 0) & (oy < height_out)
            hit = hit & (left >= 0) & (left % step_w == 0) & (ox < width_out)
            window = (b * height_out + oy) * width_out + ox
            source = (window * (kernel_h * kernel_w) + ky * kernel_w + kx) * entries + entry
            total += tl.load(unfolded + source, mask=mask & hit, other=0.0).to(tl.float32)
    tl.store(grid + at, total, mask=mask)
