"""Triton kernels of one agreement step: couplings from votes that are cast and never stored.

    l_ij = v_ij . P_j            agreement, P being scaled beforehand
    c_ij = softmax_j(l_ij)       coupling, over parents
    s_j  = sum_i c_ij v_ij       pose

A program owns a tile of 64 rows, a row being one row p of the pose of one window, and goes through
children one by one: one matrix product casts the votes of all 64 rows for all parents. Columns are
(r j) with j innermost, and rows (w p w') with 16 rows to a warp, so that sums over a pose stay
inside a thread but for one shuffle, and no warp waits for another one.

Parents are ``[n p r j]`` here, weights ``[t q r j]``; sizes ending in ``_pad`` are powers of two.
Everything is summed in float32 in a fixed order: the same input gives the same bits.
"""

import triton
import triton.language as tl

__all__ = ["attend_kernel", "fold_kernel", "spread_kernel"]


@triton.jit
def _origin(window, geometry, width_out: tl.constexpr, area_out: tl.constexpr):
    """Offset of a window's first child, and the grid row and column it has."""
    stride_b, stride_h, stride_w, step_h, step_w, pad_h, pad_w = geometry
    place = window % area_out
    y = (place // width_out) * step_h - pad_h
    x = (place % width_out) * step_w - pad_w
    return (window // area_out).to(tl.int64) * stride_b + y * stride_h + x * stride_w, y, x


@triton.jit
def _child(i, geometry, stride_t, n_types: tl.constexpr, width_k: tl.constexpr):
    """Offset of child i in its window, and the row and column of its place there."""
    _, stride_h, stride_w, _, _, _, _ = geometry
    place = i // n_types
    y = place // width_k
    x = place % width_k
    return y * stride_h + x * stride_w + (i % n_types) * stride_t, y, x


@triton.jit
def attend_kernel(
    poses,
    weight,
    bias,
    parents,
    couplings,
    gradient,
    logits,
    out,
    n_windows,
    n_children,
    n_part,
    geometry,
    height,
    width,
    stride_t,
    scale,
    width_out: tl.constexpr,
    area_out: tl.constexpr,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
    n_weights: tl.constexpr,
    n_parents: tl.constexpr,
    p_size: tl.constexpr,
    q_size: tl.constexpr,
    r_size: tl.constexpr,
    p_pad: tl.constexpr,
    q_pad: tl.constexpr,
    r_pad: tl.constexpr,
    j_pad: tl.constexpr,
    backward: tl.constexpr,
    leaky: tl.constexpr,
    padded: tl.constexpr,
    has_bias: tl.constexpr,
    has_gradient: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
    stages: tl.constexpr,
):
    """One step for a tile of windows and a part of the children.

    Forward: ``parents`` are P; writes couplings and the weighted sum of the votes. Backward:
    ``parents`` are the gradient of the sum, ``gradient`` that of the couplings; reads couplings,
    writes the gradient of the logits, times scale, and of P.
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
    k = tl.arange(0, q_pad)
    there = (window < n_windows) & (p < p_size)
    origin, top, left = _origin(window, geometry, width_out, area_out)
    read = poses + (origin + p * q_size)[:, None] + k[None, :]
    read_mask = there[:, None] & (k < q_size)[None, :]
    weights = weight + k[:, None] * (r_pad * j_pad) + column[None, :]
    weights_mask = (k < q_size)[:, None] & (column >= 0)[None, :]

    e = p[:, None] * r_size + r[None, :]
    place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents) + e * n_parents + j[None, :]
    place_mask = there[:, None] & ((r < r_size) & (j < n_parents))[None, :]
    given = tl.load(parents + place, mask=place_mask, other=0.0).to(tl.float32)
    given = tl.reshape(given * (1.0 if backward else scale), [4, p_pad, inner, r_pad, j_pad])
    total = tl.zeros([4, p_pad, inner, r_pad, j_pad], dtype=tl.float32)

    first = tl.arange(0, 4)
    second = tl.arange(0, inner)
    parent = tl.arange(0, j_pad)[None, None, :]
    slot = (tile * per_tile + first[:, None] * inner + second[None, :])[:, :, None]
    slot_mask = (slot < n_windows) & (parent < n_parents)
    link = slot.to(tl.int64) * (n_children * n_parents) + parent

    start = part * n_part
    for i in tl.range(start, tl.minimum(start + n_part, n_children), num_stages=stages):
        offset, dy, dx = _child(i, geometry, stride_t, n_types, width_k)
        mask = read_mask
        if padded:
            y = top + dy
            x = left + dx
            mask = mask & ((y >= 0) & (y < height) & (x >= 0) & (x < width))[:, None]
        child = tl.load(read + offset, mask=mask, other=0.0).to(tl.float32).to(operand)
        w = tl.load(
            weights + (i % n_weights) * (q_size * r_pad * j_pad), mask=weights_mask, other=0.0
        )
        votes = tl.dot(child, w.to(tl.float32).to(operand), input_precision=precision)
        if has_bias:
            shift = tl.load(bias + i * (p_size * r_size) + e, mask=place_mask, other=0.0)
            votes += shift.to(tl.float32)
        votes = tl.reshape(votes, [4, p_pad, inner, r_pad, j_pad])
        agreement = tl.sum(tl.sum(votes * given, axis=3), axis=1)
        if backward:
            c = tl.load(couplings + link + i * n_parents, mask=slot_mask, other=0.0).to(tl.float32)
            if has_gradient:
                more = tl.load(gradient + link + i * n_parents, mask=slot_mask, other=0.0)
                agreement += more.to(tl.float32)
            weigh = scale * c * (agreement - tl.sum(c * agreement, axis=2)[:, :, None])
            tl.store(logits + link + i * n_parents, weigh, mask=slot_mask)
        else:
            agreement = tl.where(parent < n_parents, agreement, float("-inf"))
            most = tl.max(agreement, axis=2)
            if leaky:
                most = tl.maximum(most, 0.0)
            weigh = tl.exp(agreement - most[:, :, None])
            norm = tl.sum(weigh, axis=2)
            if leaky:
                norm += tl.exp(-most)
            weigh = weigh * (1.0 / norm)[:, :, None]
            tl.store(couplings + link + i * n_parents, weigh, mask=slot_mask)
        total += votes * weigh[:, None, :, None, :]

    place += part.to(tl.int64) * n_windows * (p_size * r_size * n_parents)
    tl.store(out + place, tl.reshape(total, [64, r_pad * j_pad]), mask=place_mask)


@triton.jit
def _two_products(a, x, b, y, operand: tl.constexpr):
    """a x + b y, in bfloat16 two at a time."""
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
def spread_kernel(
    poses,
    weight,
    parents,
    gradient,
    couplings,
    logits,
    d_poses,
    d_weight,
    n_windows,
    n_children,
    tiles,
    geometry,
    height,
    width,
    stride_t,
    width_out: tl.constexpr,
    area_out: tl.constexpr,
    width_k: tl.constexpr,
    n_types: tl.constexpr,
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
    padded: tl.constexpr,
    operand: tl.constexpr,
    precision: tl.constexpr,
):
    """Gradients of child poses and weights from those of the votes, for ``block`` children.

    The gradient of vote ij is c_ij dS_j + dl_ij P_j: it needs no votes. A program owns a block of
    children and a range of tiles of windows; ``block`` times ``q_pad`` columns share one product.
    """
    first_child = tl.program_id(0) * block
    part = tl.program_id(1)
    per_tile: tl.constexpr = 64 // p_pad
    row = tl.arange(0, 64)
    p = row // per_tile
    column = tl.arange(0, r_pad * j_pad)
    r = column // j_pad
    j = column % j_pad
    k = tl.arange(0, block * q_pad)
    g = k // q_pad
    q = k % q_pad
    child = first_child + g
    child_mask = (child < n_children) & (q < q_size)
    offset, dy, dx = _child(child, geometry, stride_t, n_types, width_k)
    e = p[:, None] * r_size + r[None, :]
    column_mask = (r < r_size) & (j < n_parents)
    w_read = weight + (child % n_weights)[None, :] * (q_size * r_pad * j_pad)
    w_read = w_read + q[None, :] * (r_pad * j_pad) + column[:, None]
    all_w = tl.load(w_read, mask=child_mask[None, :] & (column >= 0)[:, None], other=0.0)
    all_w = all_w.to(tl.float32)
    total = tl.zeros([block * q_pad, r_pad * j_pad], dtype=tl.float32)
    parent = tl.arange(0, j_pad)[None, :]

    for tile in range(part * tiles, part * tiles + tiles):
        window = tile * per_tile + row % per_tile
        there = (window < n_windows) & (p < p_size)
        origin, top, left = _origin(window, geometry, width_out, area_out)
        mask = there[:, None] & child_mask[None, :]
        if padded:
            y = top[:, None] + dy[None, :]
            x = left[:, None] + dx[None, :]
            mask = mask & (y >= 0) & (y < height) & (x >= 0) & (x < width)
        read = poses + (origin + p * q_size)[:, None] + (offset + q)[None, :]
        rows = tl.load(read, mask=mask, other=0.0).to(tl.float32)
        place = window.to(tl.int64)[:, None] * (p_size * r_size * n_parents)
        place = place + e * n_parents + j[None, :]
        place_mask = there[:, None] & column_mask[None, :]
        before = tl.load(parents + place, mask=place_mask, other=0.0)
        behind = tl.load(gradient + place, mask=place_mask, other=0.0)
        before = tl.reshape(before, [p_pad, per_tile, r_pad, j_pad])
        behind = tl.reshape(behind, [p_pad, per_tile, r_pad, j_pad])
        d_rows = tl.zeros([64, block * q_pad], dtype=tl.float32)
        slot = (tile * per_tile + tl.arange(0, per_tile))[:, None]
        link = slot.to(tl.int64) * (n_children * n_parents) + parent
        for one in tl.static_range(block):
            i = first_child + one
            link_mask = (slot < n_windows) & (parent < n_parents) & (i < n_children)
            c = tl.load(couplings + link + i * n_parents, mask=link_mask, other=0.0)
            dl = tl.load(logits + link + i * n_parents, mask=link_mask, other=0.0)
            c = c[None, :, None, :]
            dl = dl[None, :, None, :]
            d_votes = _two_products(c, behind, dl, before, operand)
            d_votes = tl.reshape(d_votes, [64, r_pad * j_pad])
            own_w = tl.where((g == one)[None, :], all_w, 0.0).to(operand)
            own = tl.where((g == one)[None, :], rows, 0.0).to(operand)
            d_rows = tl.dot(d_votes, own_w, d_rows, input_precision=precision)
            total = tl.dot(tl.trans(own), d_votes, total, input_precision=precision)
        write = d_poses + window.to(tl.int64)[:, None] * (n_children * p_size * q_size)
        write = write + child[None, :] * (p_size * q_size) + p[:, None] * q_size + q[None, :]
        tl.store(write, d_rows, mask=there[:, None] & child_mask[None, :])

    write = d_weight + (part.to(tl.int64) * n_children + child)[:, None] * (q_size * r_pad * j_pad)
    write = write + q[:, None] * (r_pad * j_pad) + column[None, :]
    tl.store(write, total, mask=child_mask[:, None] & (column >= 0)[None, :])


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
