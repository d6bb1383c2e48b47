"""Votes that have not been cast, and their batch normalization."""

from typing import Any, Literal, cast

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor, nn

import torchcaps as tc
from helpers.routings import route
from torchcaps.routing import Sizes
from torchcaps.votes import Window

sizes = st.integers(1, 4)


def slow_vote(pose: Tensor, weight: Tensor) -> Tensor:
    """One child, one parent: the pose's rows, one after the other, times the weight."""
    q, r = weight.shape
    rows = [pose[row * q : (row + 1) * q] for row in range(len(pose) // q)]
    return torch.stack(
        [sum((row[k] * weight[k, c] for k in range(q)), torch.tensor(0.0).double())
         for row in rows for c in range(r)]
    )  # fmt: skip


@settings(deadline=None, max_examples=40)
@given(b=sizes, shared=sizes, repeats=sizes, j=sizes, p=sizes, q=sizes, r=sizes)
def test_dense_votes_are_pose_times_weight(
    b: int, shared: int, repeats: int, j: int, p: int, q: int, r: int
) -> None:
    poses = torch.randn(b, shared * repeats, p * q).double()
    weight = torch.randn(shared, j, q, r).double()
    votes = tc.Votes(poses, weight)
    dense = votes.dense()
    assert dense.shape == votes.shape == (b, shared * repeats, j, p * r)
    assert dense.transpose(1, 2).is_contiguous()
    for n in range(b):
        for child in range(shared * repeats):
            for parent in range(j):
                expected = slow_vote(poses[n, child], weight[child % shared, parent])
                torch.testing.assert_close(dense[n, child, parent], expected)


def test_scale_and_bias_apply_to_every_vote() -> None:
    poses, weight = torch.randn(2, 3, 4), torch.randn(3, 5, 2, 3)
    scale, bias = torch.randn(6), torch.randn(3, 1, 6)
    plain = tc.Votes(poses, weight).dense()
    torch.testing.assert_close(tc.Votes(poses, weight, scale, bias).dense(), plain * scale + bias)


@pytest.mark.parametrize(("q", "shared"), [(4, 6), (2, 6), (2, 3)])
@pytest.mark.parametrize("per", ["entry", "capsule"])
def test_vote_norm_is_batch_norm_of_dense_votes(
    q: int, shared: int, per: Literal["entry", "capsule"]
) -> None:
    torch.manual_seed(0)
    b, i, j, e = 8, 6, 3, 4
    poses = (torch.randn(b, i, 4) + 3 * torch.randn(1, i, 4)).double().requires_grad_()
    weight = torch.randn(shared, j, q, q).double().requires_grad_()
    ours = tc.VoteNorm(i, j, e, per=per).double()
    theirs = nn.BatchNorm1d(e if per == "entry" else i * j * e, eps=1e-3, momentum=0.01).double()
    with torch.no_grad():
        ours.weight.copy_(torch.randn_like(ours.weight))
        ours.bias.copy_(torch.randn_like(ours.bias))
        theirs.weight.copy_(ours.weight.flatten())
        theirs.bias.copy_(ours.bias.flatten())
    for _ in range(2):
        got = ours(tc.Votes(poses, weight)).dense()
        dense = tc.Votes(poses, weight).dense()
        flat = dense.reshape(-1, e) if per == "entry" else dense.reshape(b, -1)
        expected = theirs(flat).reshape(b, i, j, e)
        torch.testing.assert_close(got, expected)
    towards = torch.randn_like(got)
    gradients = torch.autograd.grad((got * towards).sum(), (poses, weight))
    expecteds = torch.autograd.grad((expected * towards).sum(), (poses, weight))
    for gradient, expected_gradient in zip(gradients, expecteds, strict=True):
        torch.testing.assert_close(gradient, expected_gradient)
    assert theirs.running_mean is not None
    assert theirs.running_var is not None
    torch.testing.assert_close(ours.running_mean.flatten(), theirs.running_mean)
    torch.testing.assert_close(ours.running_var.flatten(), theirs.running_var)
    got = ours.eval()(tc.Votes(poses, weight)).dense()
    torch.testing.assert_close(got, theirs.eval()(flat).reshape(b, i, j, e))


def test_vote_norm_keeps_small_spreads_of_large_votes() -> None:
    torch.manual_seed(0)
    poses = 1000 + 0.1 * torch.randn(64, 5, 4)
    weight = torch.randn(1, 1, 4, 4).expand(5, 1, 4, 4)
    dense = tc.VoteNorm(5, 1, 4, eps=1e-8)(tc.Votes(poses, weight)).dense()
    assert dense.std(dim=(0, 1, 2)).sub(1).abs().max() < 0.05


@pytest.mark.parametrize("size", [1.0, 100.0, 1000.0])
def test_vote_norm_takes_votes_that_do_not_vary(size: float) -> None:
    for seed in range(50):
        generator = torch.Generator().manual_seed(seed)
        line, across = torch.randn(2, 4, generator=generator)
        across = across - line * (across @ line) / (line @ line)
        poses = size * torch.randn(16, 3, 1, generator=generator) * line
        weight = across[:, None].expand(3, 2, 4, 5).contiguous()
        norm = tc.VoteNorm(3, 2, 5)
        assert norm(tc.Votes(poses, weight)).dense().isfinite().all()
        assert (norm.running_var >= 0).all()


def test_vote_norm_refuses_what_it_cannot_normalize() -> None:
    norm = tc.VoteNorm(2, 2, 4, per="capsule")
    poses, weight = torch.randn(1, 2, 4), torch.randn(2, 2, 4, 4)
    with pytest.raises(ValueError, match="already have a scale or a bias"):
        norm(tc.Votes(poses, weight, bias=torch.zeros(4)))
    with pytest.raises(ValueError, match='"entry" or "capsule"'):
        tc.VoteNorm(2, 2, 4, per=cast(Any, "batch"))


def test_a_single_vote_is_normalized_by_the_running_statistics() -> None:
    norm = tc.VoteNorm(2, 2, 4, per="capsule")
    votes = tc.Votes(torch.randn(1, 2, 4), torch.randn(2, 2, 4, 4))
    dense = norm(votes).dense()
    torch.testing.assert_close(dense, votes.dense() / (1 + 1e-3) ** 0.5)
    assert (norm.running_mean == 0).all()
    assert (norm.running_var == 1).all()


@pytest.mark.parametrize("shared", [18, 9, 2])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("biased", [False, True])
def test_weighed_votes_are_the_cast_ones_times_their_coefficients(
    shared: int, scaled: bool, biased: bool
) -> None:
    torch.manual_seed(0)
    window = Window((3, 3), (2, 2)) if shared > 2 else None
    poses = torch.randn(2, 5, 5, 2, 4) if window else torch.randn(2, 18, 4)
    scale = torch.rand(8) if scaled else None
    bias = torch.randn(18, 3, 8) if biased else None
    votes = tc.Votes(poses, torch.randn(shared, 3, 2, 4), scale, bias, window=window)
    coefficients = torch.randn(18, 3)
    expected = votes.dense() * coefficients[..., None]
    weighed = votes.weighed(coefficients)
    torch.testing.assert_close(weighed.dense(), expected)
    torch.testing.assert_close(weighed.total(), expected.sum(dim=1))
    with pytest.raises(ValueError, match=r"coefficients \[3, 18\] must be \[18, 3\]"):
        votes.weighed(coefficients.T)


@pytest.mark.parametrize("penalty", ["l1", "l2"])
def test_discriminative_routing_casts_no_vote(
    penalty: Literal["l1", "l2"], monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    routing = tc.DiscriminativeRouting(Sizes(18, 3, 8, 8), penalty=penalty)
    with torch.no_grad():
        routing.coefficients.add_(torch.randn(18, 3))
    votes = tc.Votes(torch.randn(4, 18, 4), torch.randn(18, 3, 4, 8, requires_grad=True))
    targets = torch.tensor([0, 2, 1, 1])
    expected, dense = route(routing, votes.dense()), routing.objective(votes.dense(), targets)
    (climb,) = torch.autograd.grad(dense, routing.coefficients)
    monkeypatch.setattr(tc.Votes, "dense", None)
    got, objective = route(routing, votes), routing.objective(votes, targets)
    (gradient,) = torch.autograd.grad(objective, routing.coefficients)
    for one, other in zip((*got, objective, gradient), (*expected, dense, climb), strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
    for wrong in (torch.randn(4, 18, 3, 6), tc.Votes(votes.poses, torch.randn(18, 3, 4, 6))):
        with pytest.raises(ValueError, match="was built for 3 parents with poses of 8"):
            route(routing, wrong)
        with pytest.raises(ValueError, match="was built for 3 parents with poses of 8"):
            routing.objective(wrong, targets)
    with torch.autocast("cpu", torch.bfloat16):
        low = route(routing, tc.Votes(votes.poses.bfloat16(), votes.weight))
    assert low.activations.dtype == torch.float32
    torch.testing.assert_close(low.activations, expected.activations, atol=0.01, rtol=0.01)
