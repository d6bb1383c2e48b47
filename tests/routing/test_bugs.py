"""The bugs of public capsule code, one test each; the letters are those of the bug list.

B10, B15, B16, B18 and B19 are about data, training and reports, which have tests of their own.
"""

import math
from functools import partial

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from helpers.routings import ROUTINGS, route
from torchcaps.functional import unit
from torchcaps.routing import Sizes
from torchcaps.tensors import windows


def test_b1_windows_do_not_mix_pose_and_position() -> None:
    # A 5x5 grid with poses of 4, numbered: the first entry of the first window is the first pose.
    poses = torch.arange(100.0).reshape(1, 5, 5, 1, 4)
    shown = windows(poses, (3, 3), (1, 1), (0, 0))
    assert shown[0, 0, 0, 0, 0].tolist() == [0, 1, 2, 3]
    for y in range(3):
        for x in range(3):
            for k in range(9):
                expected = poses[0, y + k // 3, x + k % 3, 0]
                assert torch.equal(shown[0, y, x, k, 0], expected)


def test_b2_children_do_not_compete_for_parents_in_dynamic_routing() -> None:
    couplings = tc.dynamic_routing(torch.randn(2, 7, 3, 5)).couplings
    torch.testing.assert_close(couplings.sum(dim=2), torch.ones(2, 7))
    assert not torch.allclose(couplings.sum(dim=1), torch.ones(2, 3))


def test_b3_squash_is_over_the_pose() -> None:
    capsules = tc.PrimaryCapsules(4, 6, 8, kernel_size=3)(100 * torch.randn(2, 4, 7, 7))
    assert capsules.poses.shape == (2, 5, 5, 6, 8)
    lengths = tc.lengths(capsules.poses)
    assert (lengths < 1).all()
    assert lengths.mean() > 0.9


def test_b4_a_capsule_is_neighboring_channels_at_one_position() -> None:
    layer = tc.PrimaryCapsules(6, 3, 2, nonlinearity=None, bias=False)
    layer.pose_conv.weight = nn.Parameter(torch.eye(6).reshape(6, 6, 1, 1))
    features = torch.arange(6.0 * 4 * 5).reshape(1, 6, 4, 5)
    poses = layer(features).poses
    for t in range(3):
        for y in range(4):
            for x in range(5):
                assert torch.equal(poses[0, y, x, t], features[0, 2 * t : 2 * t + 2, y, x])
    flat = tc.Capsules(poses).flat().poses
    assert torch.equal(flat[0, (2 * 5 + 3) * 3 + 1], features[0, 2:4, 2, 3])


@pytest.mark.parametrize("name", ROUTINGS)
def test_b5_and_b17_a_batch_of_one_gives_the_same(name: str) -> None:
    torch.manual_seed(0)
    routing = ROUTINGS[name](Sizes(6, 3, 8, 4)).double()
    votes, activations = torch.randn(4, 6, 3, 4).double(), torch.rand(4, 6).double()
    votes[1:] *= 100
    alone = route(routing, votes[:1], activations[:1])
    together = route(routing, votes, activations)
    for one, many in zip(alone, together, strict=True):
        assert one.shape[0] == 1
        torch.testing.assert_close(one[0], many[0])


@pytest.mark.parametrize("function", [tc.squash, tc.lengths, tc.normalized_lengths, unit])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_b6_zero_vectors_have_a_zero_gradient(function: object, dtype: torch.dtype) -> None:
    assert callable(function)
    poses = torch.zeros(3, 4, dtype=dtype, requires_grad=True)
    out = function(poses)
    assert (out == 0).all()
    out.sum().backward()
    assert poses.grad is not None
    assert (poses.grad == 0).all()


def test_b6_a_dead_network_still_has_a_gradient() -> None:
    layer = tc.PrimaryCapsules(2, 3, 4)
    nn.init.zeros_(layer.pose_conv.weight)
    assert layer.pose_conv.bias is not None
    nn.init.zeros_(layer.pose_conv.bias)
    last = tc.LinearCapsules(12, 5, 4, 8)
    routed = last(layer(torch.randn(2, 2, 2, 2)))
    tc.margin_loss(routed.activations, torch.tensor([0, 1])).backward()
    gradients = [p.grad for p in (*layer.parameters(), *last.parameters())]
    assert all(g is not None and bool(g.isfinite().all()) for g in gradients)


@pytest.mark.parametrize("size", [1e-30, 1e-10, 1.0, 1e10, 1e30])
def test_b6_squash_is_right_at_any_size(size: float) -> None:
    got = tc.squash(torch.tensor([3 * size, -4 * size]))
    n = 5 * size
    shrunk = n * n / (1 + n * n) if n < 1e9 else 1.0
    torch.testing.assert_close(got, shrunk * torch.tensor([0.6, -0.8]))


def test_b7_the_margin_loss_is_squared_and_summed() -> None:
    lengths = torch.full((3, 10), 0.1)
    loss = tc.margin_loss(lengths, torch.tensor([0, 1, 2]))
    assert loss.item() == pytest.approx(0.8**2, rel=1e-5)
    wrong = torch.full((3, 10), 0.9)
    assert tc.margin_loss(wrong, torch.tensor([0, 1, 2])).item() == pytest.approx(9 * 0.5 * 0.8**2)


def test_b8_the_reconstruction_weighs_what_the_papers_say() -> None:
    images, blank = torch.ones(2, 1, 28, 28), torch.zeros(2, 1, 28, 28)
    assert tc.reconstruction_loss(blank, images).item() == pytest.approx(0.0005 * 784)
    mean = tc.reconstruction_loss(blank, images, reduction="mean", weight=0.392)
    assert mean.item() == pytest.approx(0.0005 * 784)


def test_b9_the_mask_is_the_label_in_training_and_the_prediction_at_test() -> None:
    decoder = tc.FullyConnectedDecoder(3, 4, (1, 4, 4))
    poses, scores = torch.randn(1, 3, 4), torch.tensor([[0.0, 1.0, 0.0]])
    label = torch.tensor([2])
    by_label, by_prediction = (decoder.decode(poses, torch.tensor([k])) for k in (2, 1))
    assert torch.equal(decoder.train()(poses, scores, label), by_label)
    assert torch.equal(decoder.eval()(poses, scores, label), by_prediction)
    assert not torch.equal(by_label, by_prediction)


def test_b11_gradients_flow_through_every_iteration() -> None:
    votes = torch.randn(1, 4, 3, 2).double().requires_grad_()

    def detached(votes: Tensor) -> Tensor:
        with torch.no_grad():
            logits = torch.zeros(1, 4, 3).double()
            for _ in range(2):
                poses = tc.squash(torch.einsum("bij,bije->bje", logits.softmax(-1), votes))
                logits = logits + torch.einsum("bije,bje->bij", votes, poses)
        return tc.squash(torch.einsum("bij,bije->bje", logits.softmax(-1), votes))

    poses = tc.dynamic_routing(votes).poses
    cut = detached(votes)
    torch.testing.assert_close(poses, cut)
    whole_gradient, cut_gradient = (
        torch.autograd.grad(p.square().sum(), votes)[0] for p in (poses, cut)
    )
    assert not torch.allclose(whole_gradient, cut_gradient, rtol=1e-2)


def test_b12_child_and_parent_activations_count() -> None:
    torch.manual_seed(0)
    votes = torch.randn(1, 5, 3, 4)
    route = partial(tc.em_routing, votes, beta_u=0.0)
    full = route(torch.ones(1, 5), beta_a=0.0)
    one_absent = route(torch.tensor([[0.0, 1, 1, 1, 1]]), beta_a=0.0)
    without = tc.em_routing(votes[:, 1:], torch.ones(1, 4), beta_a=0.0, beta_u=0.0)
    assert not torch.allclose(full.poses, one_absent.poses, atol=1e-3)
    torch.testing.assert_close(one_absent.poses, without.poses, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(one_absent.activations, without.activations)
    # A parent that is never active gets no child, however well the votes fit.
    shunned = route(torch.ones(1, 5), beta_a=torch.tensor([-1e6, 0, 0]))
    assert shunned.couplings[..., 0].max() < 1e-6


def test_b13_every_class_runs_its_own_function() -> None:
    torch.manual_seed(0)
    votes, activations = torch.randn(2, 6, 3, 4), torch.rand(2, 6)
    attention = tc.AttentionRouting(Sizes(6, 3, 8, 4))
    coefficients = torch.ones(6, 3)
    norm = nn.LayerNorm(4)
    pairs = [
        (route(tc.DynamicRouting(Sizes(6, 3, 8, 4)), votes), tc.dynamic_routing(votes)),
        (
            route(tc.EMRouting(Sizes(6, 3, 8, 4)), votes, activations),
            tc.em_routing(votes, activations, beta_a=0.0, beta_u=0.0),
        ),
        (route(tc.PairwiseRouting(Sizes(6, 3, 8, 4)), votes), tc.pairwise_agreement(votes)),
        (
            route(tc.DiscriminativeRouting(Sizes(6, 3, 8, 4)), votes),
            tc.discriminative_routing(votes, coefficients),
        ),
    ]
    for got, expected in pairs:
        assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    inverted = tc.inverted_attention_routing(votes).poses
    assert torch.equal(
        route(tc.InvertedAttentionRouting(Sizes(6, 3, 8, 4)), votes).poses, norm(inverted)
    )
    attended = attention.activation(tc.attention_routing(votes, attention.weight).poses)
    assert torch.equal(route(attention, votes).poses, attended)


@pytest.mark.parametrize(
    ("plain", "changed"),
    [
        (tc.DynamicRouting, partial(tc.DynamicRouting, iterations=2)),
        (tc.DynamicRouting, partial(tc.DynamicRouting, leaky=True)),
        (tc.DynamicRouting, partial(tc.DynamicRouting, bias=True)),
        (tc.EMRouting, partial(tc.EMRouting, iterations=2)),
        (tc.EMRouting, partial(tc.EMRouting, cost_scale=50.0)),
        (tc.EMRouting, partial(tc.EMRouting, inverse_temperature=0.1)),
        (tc.EMRouting, partial(tc.EMRouting, min_variance=0.1)),
        (tc.InvertedAttentionRouting, partial(tc.InvertedAttentionRouting, iterations=2)),
        (tc.InvertedAttentionRouting, partial(tc.InvertedAttentionRouting, layer_norm=False)),
        (
            partial(tc.InvertedAttentionRouting, iterations=2),
            partial(tc.InvertedAttentionRouting, iterations=2, scale=1.0),
        ),
        (tc.PairwiseRouting, partial(tc.PairwiseRouting, half=False)),
        (tc.PairwiseRouting, partial(tc.PairwiseRouting, normalise=False)),
        (tc.PairwiseRouting, partial(tc.PairwiseRouting, unit=False)),
        (tc.DiscriminativeRouting, partial(tc.DiscriminativeRouting, initial=0.5)),
    ],
)
def test_b14_no_option_is_ignored(
    plain: tc.routing.RoutingFactory, changed: tc.routing.RoutingFactory
) -> None:
    torch.manual_seed(0)
    votes, activations = torch.randn(2, 6, 3, 4), torch.rand(2, 6)
    sizes = Sizes(6, 3, 8, 4)
    a, b = (route(make(sizes), votes, activations) for make in (plain, changed))
    assert any(not torch.allclose(x, y, atol=1e-4) for x, y in zip(a, b, strict=True))


def test_b14_attention_and_objective_options_are_not_ignored() -> None:
    torch.manual_seed(0)
    votes, targets = torch.randn(2, 6, 3, 4), torch.tensor([0, 1])
    plain, unbounded = (tc.AttentionRouting(Sizes(6, 3, 8, 4), bounded=b) for b in (True, False))
    unbounded.load_state_dict(plain.state_dict())
    torch.testing.assert_close(route(plain, votes).poses, route(unbounded, votes).poses.tanh())
    objectives = {
        (penalty, strength): tc.DiscriminativeRouting(
            Sizes(6, 3, 8, 4), penalty=penalty, strength=strength, initial=0.5
        ).objective(votes, targets).item()
        for penalty in ("l1", "l2")
        for strength in (0.1, 1.0)
    }  # fmt: skip
    assert len(set(objectives.values())) == 4


def test_b22_far_votes_need_no_clamp() -> None:
    # exp(-|v - mu|^2 / 2 sigma^2) underflows for every parent here; its logarithm does not.
    votes = torch.tensor([[[[0.0], [500.0]], [[0.1], [500.1]], [[499.9], [0.2]]]])
    routed = tc.em_routing(votes, torch.ones(1, 3), beta_a=0.0, beta_u=0.0, iterations=5)
    torch.testing.assert_close(routed.couplings.sum(-1), torch.ones(1, 3))
    assert all(bool(x.isfinite().all()) for x in routed)


def test_b22_cross_entropy_is_on_scores() -> None:
    scores = torch.tensor([[100.0, -100.0]])
    assert tc.cross_entropy_loss(scores, torch.tensor([1])).item() == pytest.approx(200)
    assert tc.binary_cross_entropy_loss(scores, torch.tensor([[0, 1]])).item() == pytest.approx(200)
    assert math.isfinite(tc.binary_cross_entropy_loss(1e30 * scores, torch.tensor([[1, 0]])).item())
