"""Triton kernels of EM routing: weighted moments of votes that are cast and never stored.

With d = v_ij - m_j, the distance of a vote from the previous mean of its parent,

    l_ij = k_j + sum_e d (f_je + h_je d)       a quadratic form of the vote
    r_ij = a_i softmax_j(l_ij)                 E-step, line 3 (f = 0), and M-step, line 2
    M_j, D_j, S_j = sum_i r_ij (1, d, d^2)     the sums for M-step, lines 3 and 4

If all parents of a child compete, not only those of one window, the softmax also runs over the
slots i that show the child. A survey then first writes log sum_j exp(l_ij) of every slot. The
softmax of it over the slots of a child is the share by which the softmax over j is multiplied.
"""

from typing import Any, NamedTuple

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import cast_votes, child_range, open_links, open_tile


class Form(NamedTuple):
    """A quadratic form of votes, in their distance from a center; None is zero.

    ``center``, ``linear`` and ``square`` are ``[n p r j]``, ``constant`` is ``[n j]``.
    """

    center: Any
    constant: Any
    linear: Any
    square: Any


@triton.jit
def load_form(form, tile, links, votes, sizes: tl.constexpr):
    """Return a form with the numbers of a tile in place of pointers.

    Numbers in place of None have no meaning: Triton 3.6 cannot return None.
    """
    center = tl.load(form.center + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
    center = tl.reshape(center, sizes.tile)
    square = center
    if form.square is not None:
        square = tl.load(form.square + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
        square = tl.reshape(square, sizes.tile)
    linear = center
    if form.linear is not None:
        linear = tl.load(form.linear + tile.offsets, mask=tile.mask, other=0.0).to(tl.float32)
        linear = tl.reshape(linear, sizes.tile)
    constant = center
    if form.constant is not None:
        offsets = links.slot[:, :, None, None].to(tl.int64) * sizes.n_parents + links.parent
        constant = tl.load(form.constant + offsets, mask=links.mask, other=0.0).to(tl.float32)
    return Form(center, constant, linear, square)


@triton.jit
def vote_distance(i, tile, center, votes, sizes: tl.constexpr):
    """Return the distance of child i's votes from a center."""
    cast, _ = cast_votes(i, tile, votes, sizes)
    return tl.reshape(cast, sizes.tile) - center


@triton.jit
def load_activations(activations, i, links, votes):
    """Return offsets and values ``[4 inner]`` of child i's activations."""
    at = links.slot.to(tl.int64) * votes.n_children + i
    return at, tl.load(activations + at, mask=links.slot < votes.n_windows, other=0.0).to(
        tl.float32
    )


@triton.jit
def evaluate(form, x, d):
    """Return the value of a form, whose numbers are x, at distance d, summed over the pose."""
    if form.linear is not None and form.square is not None:
        return x.constant + tl.sum(tl.sum(d * (x.linear + x.square * d), axis=4), axis=1)
    elif form.linear is not None:
        return x.constant + tl.sum(tl.sum(d * x.linear, axis=4), axis=1)
    else:
        return x.constant + tl.sum(tl.sum(d * d * x.square, axis=4), axis=1)


@triton.jit
def softmax(logits, links, sizes: tl.constexpr):
    """Return exponentials over parents, their sum and the largest logit."""
    logits = tl.where(links.parent < sizes.n_parents, logits, float("-inf"))
    largest = tl.max(tl.max(logits, axis=3), axis=2)
    exponentials = tl.exp(logits - largest[:, :, None, None])
    return exponentials, tl.sum(tl.sum(exponentials, axis=3), axis=2), largest


@triton.jit
def store_moments(moments, mass, first, second, tile, links, votes, sizes: tl.constexpr):
    """Store this program's sums of one, d and d^2."""
    part = tl.program_id(1).to(tl.int64)
    size: tl.constexpr = sizes.p_size * sizes.r_size * sizes.n_parents
    offsets = tile.offsets + part * votes.n_windows * size
    shape: tl.constexpr = [64, sizes.columns]
    tl.store(moments[1] + offsets, tl.reshape(first, shape), mask=tile.mask)
    tl.store(moments[2] + offsets, tl.reshape(second, shape), mask=tile.mask)
    offsets = links.slot[:, :, None, None].to(tl.int64) * sizes.n_parents + links.parent
    offsets += part * votes.n_windows * sizes.n_parents
    tl.store(moments[0] + offsets, mass, mask=links.mask)


@triton.jit
def survey_kernel(votes, form, log_sums, n_part, sizes: tl.constexpr, stages: tl.constexpr):
    """Write the log of the sum over parents of the exponentials of every slot, ``[n i]``."""
    tile = open_tile(0, votes, sizes)
    links = open_links(0, votes, sizes)
    numbers = load_form(form, tile, links, votes, sizes)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        d = vote_distance(i, tile, numbers.center, votes, sizes)
        _, norm, largest = softmax(evaluate(form, numbers, d), links, sizes)
        at = links.slot.to(tl.int64) * votes.n_children + i
        tl.store(log_sums + at, largest + tl.log(norm), mask=links.slot < votes.n_windows)


@triton.jit
def moments_kernel(
    votes,
    activations,
    form,
    couplings,
    shares,
    moments,
    n_part,
    sizes: tl.constexpr,
    stages: tl.constexpr,
):
    """Write moments of a tile over a part of the children.

    The form gives the logits, and couplings are written. A form without constant is no logit:
    couplings are then read or, if they are None, uniform. Couplings that are read need only the
    second moment.

    Args:
        votes: the votes.
        activations: ``[n i]``.
        form: the logits, or a center alone.
        couplings: ``[n i j]``, or None.
        shares: share of every slot in its child, ``[n i]``; None is one.
        moments: sums of one ``[part n j]``, of d and of d^2 ``[part n p r j]``.
        n_part: children of a program.
        sizes: sizes compiled in.
        stages: children read ahead.
    """
    tile = open_tile(0, votes, sizes)
    links = open_links(0, votes, sizes)
    numbers = load_form(form, tile, links, votes, sizes)
    link_shape: tl.constexpr = sizes.link_tile
    shape: tl.constexpr = sizes.tile
    first = tl.zeros(shape, dtype=tl.float32)
    second = tl.zeros(shape, dtype=tl.float32)
    mass = tl.zeros(link_shape, dtype=tl.float32)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        d = vote_distance(i, tile, numbers.center, votes, sizes)
        at, a = load_activations(activations, i, links, votes)
        step = i * sizes.n_parents
        if form.constant is not None:
            c, norm, _ = softmax(evaluate(form, numbers, d), links, sizes)
            scale = 1.0 / norm
            if shares is not None:
                scale *= tl.load(shares + at, mask=links.slot < votes.n_windows, other=0.0)
            c = c * scale[:, :, None, None]
            tl.store(couplings + links.offsets + step, c, mask=links.mask)
            r = c * a[:, :, None, None]
        elif couplings is not None:
            c = tl.load(couplings + links.offsets + step, mask=links.mask, other=0.0)
            r = c.to(tl.float32) * a[:, :, None, None]
        else:
            uniform = tl.where(links.parent < sizes.n_parents, 1.0 / sizes.n_parents, 0.0)
            r = uniform * a[:, :, None, None]
        weighted = d * r[:, None, :, :, None, :]
        second += weighted * d
        if form.constant is not None or couplings is None:
            first += weighted
            mass += r
    store_moments(moments, mass, first, second, tile, links, votes, sizes)
