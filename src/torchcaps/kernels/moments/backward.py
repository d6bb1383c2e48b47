"""Triton kernels of EM routing, backward: the gradient of the logits.

The gradient of r_ij is a quadratic form of the vote, with names as in
:mod:`torchcaps.kernels.moments.forward`. The gradients of k, f and h are moments weighted by the
gradient of l_ij, so the kernels look like those forward.

If all parents of a child compete, a survey first writes sum_j c_ij dc_ij and sum_j c_ij of every
slot. Their sums over the slots of a child give the mean that a softmax subtracts.
"""

import triton
import triton.language as tl

from torchcaps.kernels.common.tiles import child_range, open_links, open_tile
from torchcaps.kernels.moments.forward import (
    evaluate,
    load_activations,
    load_form,
    store_moments,
    vote_distance,
)


@triton.jit
def load_couplings(couplings, i, links, sizes: tl.constexpr):
    """Return the couplings of child i, uniform if they are None."""
    if couplings is None:
        return tl.where(links.parent < sizes.n_parents, 1.0 / sizes.n_parents, 0.0)
    else:
        step = i * sizes.n_parents
        c = tl.load(couplings + links.offsets + step, mask=links.mask, other=0.0)
        return c.to(tl.float32)


@triton.jit
def coupling_gradient(d_share, d_mean, c, a, d_couplings, i, links, sizes: tl.constexpr):
    """Return the gradient of couplings, from that of shares r, and the sum of both over parents."""
    d_c = d_share * a[:, :, None, None]
    mean = d_mean * a
    if d_couplings is not None:
        step = i * sizes.n_parents
        direct = tl.load(d_couplings + links.offsets + step, mask=links.mask, other=0.0)
        direct = direct.to(tl.float32)
        d_c += direct
        mean += tl.sum(tl.sum(c * direct, axis=3), axis=2)
    return d_c, mean, tl.sum(tl.sum(c, axis=3), axis=2)


@triton.jit
def survey_backward_kernel(
    votes,
    activations,
    form,
    couplings,
    d_couplings,
    sums,
    n_part,
    sizes: tl.constexpr,
    stages: tl.constexpr,
):
    """Write the sums over parents of c dc and of c of every slot, ``[n i 2]``."""
    tile = open_tile(0, votes, sizes)
    links = open_links(0, votes, sizes)
    numbers = load_form(form, tile, links, votes, sizes)
    start, end = child_range(n_part, votes)
    for i in tl.range(start, end, num_stages=stages):
        d = vote_distance(i, tile, numbers.center, votes, sizes)
        at, a = load_activations(activations, i, links, votes)
        d_share = evaluate(form, numbers, d)
        c = load_couplings(couplings, i, links, sizes)
        d_mean = tl.sum(tl.sum(c * d_share, axis=3), axis=2)
        _, mean, total = coupling_gradient(d_share, d_mean, c, a, d_couplings, i, links, sizes)
        tl.store(sums + 2 * at, mean, mask=links.slot < votes.n_windows)
        tl.store(sums + 2 * at + 1, total, mask=links.slot < votes.n_windows)


@triton.jit
def moments_backward_kernel(
    votes,
    activations,
    form,
    couplings,
    d_couplings,
    means,
    d_logits,
    d_activations,
    moments,
    n_part,
    sizes: tl.constexpr,
    stages: tl.constexpr,
):
    """Write gradients of logits and activations, and moments weighted by that of the logits.

    Args:
        votes: the votes.
        activations: ``[n i]``.
        form: the gradient of shares r.
        couplings: ``[n i j]``; None is uniform, with no gradient of logits.
        d_couplings: gradient that reaches the couplings directly, or None.
        means: mean of a child's gradient over all that compete for it, ``[n i]``; None is to take
            the mean over the parents of one window.
        d_logits: ``[n i j]``.
        d_activations: ``[n i]``.
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
        d_share = evaluate(form, numbers, d)
        c = load_couplings(couplings, i, links, sizes)
        d_mean = tl.sum(tl.sum(c * d_share, axis=3), axis=2)
        tl.store(d_activations + at, d_mean, mask=links.slot < votes.n_windows)
        d_c, mean, total = coupling_gradient(d_share, d_mean, c, a, d_couplings, i, links, sizes)
        if means is not None:
            mean = tl.load(means + at, mask=links.slot < votes.n_windows, other=0.0)
        else:
            mean = mean / tl.maximum(total, 0.5)
        d_logit = c * (d_c - mean[:, :, None, None])
        if couplings is not None:
            tl.store(d_logits + links.offsets + i * sizes.n_parents, d_logit, mask=links.mask)
            weighted = d * d_logit[:, None, :, :, None, :]
            second += weighted * d
            first += weighted
            mass += d_logit
    store_moments(moments, mass, first, second, tile, links, votes, sizes)
