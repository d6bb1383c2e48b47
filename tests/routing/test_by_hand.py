"""One example per paper, worked on paper; the working is in the comments."""

import math
from functools import partial

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.routings import route
from torchcaps.functional import exponential_squash
from torchcaps.routing import Sizes


def near(got: Tensor, expected: object) -> None:
    torch.testing.assert_close(got, torch.tensor(expected, dtype=got.dtype), rtol=1e-6, atol=1e-7)


def test_squash() -> None:
    # |(3, 4)| = 5, so Eq. 1 gives length 25/26 and the pose (3, 4)/5 * 25/26 = (15, 20)/26.
    near(tc.squash(torch.tensor([3.0, 4.0]).double()), [15 / 26, 20 / 26])


def test_dynamic_routing() -> None:
    # Two children, two parents. Both vote (2, 0) for A; they vote (2, 0) and (-2, 0) for B.
    # Iteration 1: all c = 1/2, s_A = (2, 0), v_A = 4/5 (1, 0) = (0.8, 0); s_B = v_B = (0, 0).
    # Agreement: b_A = 2 * 0.8 = 1.6 for both children, b_B = 0.
    # Iteration 2: c_A = e^1.6 / (e^1.6 + 1) = 4.9530324/5.9530324 = 0.8320184,
    # s_A = 2 * 0.8320184 * (2, 0) = (3.3280735, 0), |s_A|^2 = 11.0760735,
    # |v_A| = 11.0760735/12.0760735 = 0.9171917; s_B = 0 again.
    votes = torch.tensor([[[[2.0, 0], [2, 0]], [[2, 0], [-2, 0]]]]).double()
    routed = tc.dynamic_routing(votes, iterations=2)
    near(routed.couplings[0], [[0.83201839, 0.16798161]] * 2)
    near(routed.poses[0], [[0.91719163, 0], [0, 0]])
    near(routed.activations[0], [0.91719163, 0])
    # One iteration stops at v_A = (0.8, 0); the none-of-the-above category leaves c = 1/3, so
    # s_A = 2/3 (2, 0), |s_A|^2 = 16/9 and |v_A| = 16/25.
    near(tc.dynamic_routing(votes, iterations=1).activations[0], [0.8, 0])
    near(tc.dynamic_routing(votes, iterations=1, leaky=True).activations[0], [16 / 25, 0])


def test_em_routing() -> None:
    # Two children with activation 1 vote 0 and 2 for A, 0 and 4 for B; poses have one entry;
    # beta_a = beta_u = 0.
    # M-step: r = 1/2. A: mass 1, mu = 1, sigma^2 = 1, cost = log 1 = 0, a = 1/2.
    # B: mass 1, mu = 2, sigma^2 = 4, cost = log 2; lambda = 0.01 * 0.05 = 0.0005,
    # a = logistic(-0.0005 * 0.6931472) = 0.4999134.
    # E-step: every vote is one sigma away, so p_A : p_B = 1 : 1/2 and
    # r_A = 0.5 / (0.5 + 0.4999134/2) = 0.6667052 for both children.
    # M-step: means and variances stay; B's mass is 2 * 0.3332948 = 0.6665896, its cost
    # 0.6665896 * 0.6931472 = 0.4620446, lambda = 0.01 (1 - 0.9025) = 0.000975,
    # a_B = logistic(-0.000975 * 0.4620446) = 0.4998874.
    votes = torch.tensor([[[[0.0], [0]], [[2], [4]]]]).double()
    ones = torch.ones(1, 2).double()
    routed = tc.em_routing(votes, ones, beta_a=0.0, beta_u=0.0, iterations=2, min_variance=0.0)
    near(routed.poses[0], [[1], [2]])
    near(routed.couplings[0], [[0.66670518, 0.33329482]] * 2)
    near(routed.activations[0], [0.5, 0.49988738])


def test_em_routing_weighs_children_by_activation() -> None:
    # One M-step on the votes for A above, with activations 1 and 1/3: r = (1/2, 1/6), mass 2/3,
    # mu = (1/6 * 2) / (2/3) = 1/2, sigma^2 = (1/2 * 1/4 + 1/6 * 9/4) / (2/3) = 3/4,
    # cost = (beta_u + log sqrt(3/4)) * 2/3; with beta_u = 1 and beta_a = 2:
    # cost = (1 - 0.1438410) * 2/3 = 0.5707727, a = logistic(0.0005 * 1.4292273) = 0.5001787.
    votes = torch.tensor([[[[0.0], [0]], [[2], [4]]]]).double()
    activations = torch.tensor([[1.0, 1 / 3]]).double()
    routed = tc.em_routing(
        votes, activations, beta_a=2.0, beta_u=1.0, iterations=1, min_variance=0.0
    )
    assert routed.poses[0, 0].item() == pytest.approx(0.5, abs=1e-6)
    assert routed.activations[0, 0].item() == pytest.approx(0.50017865, abs=1e-7)


def test_inverted_attention_routing() -> None:
    # Poses of 4, so the scale is 1/2. Parents of the last iteration: A = (2, 0, 0, 0), B = 0.
    # Child 1 votes (ln 3, 0, 0, 0) for A and (4, 0, 0, 0) for B: its agreements are
    # 2 ln 3 / 2 = ln 3 and 0, its couplings 3/4 and 1/4. Child 2 votes 0 for A and (2, 0, 0, 0)
    # for B: agreements 0 and 0, couplings 1/2 and 1/2.
    # p_A = 3/4 ln 3, p_B = 1/4 * 4 + 1/2 * 2 = 2.
    votes = torch.zeros(1, 2, 2, 4).double()
    votes[0, :, :, 0] = torch.tensor([[math.log(3), 4], [0, 2]])
    parents = torch.zeros(1, 2, 4).double()
    parents[0, 0, 0] = 2
    routed = tc.inverted_attention_routing(votes, parents)
    near(routed.couplings[0], [[0.75, 0.25], [0.5, 0.5]])
    near(routed.poses[0, :, 0], [0.75 * math.log(3), 2])
    # Eq. 2 as printed, without the scale: agreement 2 ln 3, couplings 9/10 and 1/10.
    near(tc.inverted_attention_routing(votes, parents, scale=1.0).couplings[0, 0], [0.9, 0.1])
    # The first step: all couplings 1/2.
    first = tc.inverted_attention_routing(votes)
    near(first.couplings[0], [[0.5, 0.5], [0.5, 0.5]])
    near(first.poses[0, :, 0], [math.log(3) / 2, 3])
    # LayerNorm of (x, 0, 0, 0): mean x/4, deviations (3, -1, -1, -1) x/4, variance 3 x^2/16,
    # so the pose becomes (3, -1, -1, -1)/sqrt 3, up to the 1e-5 beside the variance.
    routing = tc.InvertedAttentionRouting(Sizes(2, 2, 8, 4)).double()
    poses = route(routing, votes, parents=parents).poses
    torch.testing.assert_close(
        poses[0, 1], torch.tensor([3.0, -1, -1, -1]).double() / 3**0.5, rtol=0, atol=1e-4
    )


def test_attention_routing() -> None:
    # One parent, poses of one entry; the children vote 1 and 3. The vote of child 2 speaks for
    # child 1 by ln 2 / 3, nothing else bears on anything: logits (ln 2, 0), couplings (2/3, 1/3),
    # pose 2/3 * 1 + 1/3 * 3 = 5/3.
    votes = torch.tensor([[[[1.0]], [[3]]]]).double()
    weight = torch.zeros(1, 2, 1, 2).double()
    weight[0, 1, 0, 0] = math.log(2) / 3
    routed = tc.attention_routing(votes, weight)
    near(routed.couplings[0], [[2 / 3], [1 / 3]])
    near(routed.poses[0], [[5 / 3]])
    # Capsule activation with A = -1 and a = 2: tanh(2 - 5/3) = tanh(1/3); a pose of one entry has
    # the normalized length |tanh(1/3)| / sqrt 1.
    routing = tc.AttentionRouting(Sizes(2, 1, 8, 1)).double()
    routing.load_state_dict(
        {
            "weight": weight,
            "activation.weight": torch.tensor([[[-1.0]]]),
            "activation.bias": torch.tensor([[2.0]]),
        }
    )
    near(route(routing, votes).activations[0], [math.tanh(1 / 3)])


def test_pairwise_agreement() -> None:
    # Votes (3, 4) and (1, 0) of two children; unit votes (0.6, 0.8) and (1, 0).
    # s = 1/4 ((1.6^2, 0.8^2) - (0.36 + 1, 0.64)) = (0.3, 0), which is half the product of the two;
    # p = (1, 0), a = 0.3, and both children have an equal hand in it.
    votes = torch.tensor([[[[3.0, 4]], [[1, 0]]]]).double()
    routed = tc.pairwise_agreement(votes)
    near(routed.poses[0], [[1, 0]])
    near(routed.activations[0], [0.3])
    near(routed.couplings[0], [[0.15], [0.15]])
    # Without the 1/2 of Eq. 8: 0.6. Without line 1: s = 1/2 (3 * 1, 4 * 0) = (1.5, 0).
    near(tc.pairwise_agreement(votes, half=False).activations[0], [0.6])
    near(tc.pairwise_agreement(votes, normalise=False, unit=False).poses[0], [[1.5, 0]])


def test_discriminative_routing() -> None:
    # The children vote (1, 0) and (0, 1) for A and the opposite for B; b = (1, 2) for both.
    # v_A = (1, 2), |v_A|^2 = 5, squashed length 5/6; v_B = -v_A.
    votes = torch.tensor([[[[1.0, 0], [-1, 0]], [[0, 1], [0, -1]]]]).double()
    b = torch.tensor([[1.0, 1], [2, 2]]).double().requires_grad_()
    routed = tc.discriminative_routing(votes, b)
    near(routed.activations[0].detach(), [5 / 6, 5 / 6])
    # The image shows A: 5 - 5 = 0, minus lambda = 0.1 times 1 + 4 + 1 + 4 = 10 for l2, or 6 for l1.
    shows_a = torch.tensor([0])
    l2 = tc.discriminative_objective(votes, b, shows_a, penalty="l2", strength=0.1)
    l1 = tc.discriminative_objective(votes, b, shows_a, penalty="l1", strength=0.1)
    near(l2.detach(), -1.0)
    near(l1.detach(), -0.6)
    # Eq. 13 with U U' = I: 2 (delta - 0.1) b = 1.8 b for A and -2.2 b for B.
    # Eq. 14: 2 delta b - 0.1.
    near(torch.autograd.grad(l2, b)[0], [[1.8, -2.2], [3.6, -4.4]])
    near(torch.autograd.grad(l1, b)[0], [[1.9, -2.1], [3.9, -4.1]])
    # |b| at b = 0 has the gradient 0, and an image may show both classes.
    zero = torch.zeros(2, 2).double().requires_grad_()
    both = torch.ones(1, 2)
    penalty = tc.discriminative_objective(votes, zero, both, penalty="l1", strength=0.1)
    near(torch.autograd.grad(penalty, zero)[0], [[0.0, 0], [0, 0]])
    near(tc.discriminative_objective(votes, b, both, strength=0.0).detach(), 10.0)


def test_margin_loss() -> None:
    # Lengths 0.5, 0.3, 0.05; class 0 is there: (0.9 - 0.5)^2 + 0.5 (0.3 - 0.1)^2 + 0 = 0.18.
    # A second image that shows classes 1 and 2: 0.5 * 0.4^2 + 0.6^2 + 0.85^2 = 1.1625.
    lengths = torch.tensor([[0.5, 0.3, 0.05]]).double()
    near(tc.margin_loss(lengths, torch.tensor([0])), 0.18)
    two = torch.tensor([[0, 1, 1]])
    near(tc.margin_loss(lengths, two), 1.1625)
    near(tc.margin_loss(lengths.repeat(2, 1), torch.cat([torch.tensor([[1, 0, 0]]), two])), 0.67125)


def test_spread_loss() -> None:
    # Activations 0.6 (right), 0.5, 0.1, margin 0.2: (0.2 - 0.1)^2 + 0 = 0.01.
    activations = torch.tensor([[0.6, 0.5, 0.1]]).double()
    near(tc.spread_loss(activations, torch.tensor([0]), margin=0.2), 0.01)
    # Margin 0.9: (0.9 - 0.1)^2 + (0.9 - 0.5)^2 = 0.8. The right class itself costs nothing.
    near(tc.spread_loss(activations, torch.tensor([0]), margin=0.9), 0.8)


def test_the_objective_of_squashed_sums_is_that_of_the_authors_code() -> None:
    # One child, one parent, b = 1: v = (3, 4) of length 5, which squash sends to 25 / 26.
    votes, b = torch.tensor([[[[3.0, 4.0]]]]), torch.ones(1, 1)
    objective = partial(tc.discriminative_objective, votes, b, torch.tensor([0]), strength=0.0)
    assert objective().item() == pytest.approx(25.0)
    assert objective(squashed=True).item() == pytest.approx((25 / 26) ** 2)


def test_spread_margin() -> None:
    # Hinton 2018 raises it linearly from 0.2 to 0.9.
    for share, margin in ((0.0, 0.2), (0.5, 0.55), (1.0, 0.9), (1.5, 0.9)):
        assert tc.spread_margin(share) == pytest.approx(margin)
    # The code: 0.2 + 0.79 / (1 + e^4) at the start, half way up after 200,000 steps, then 0.99.
    code = partial(tc.spread_margin, sigmoid_steps=2_000_000)
    assert code(0) == pytest.approx(0.2 + 0.79 / (1 + math.exp(4)))
    assert code(0.1) == pytest.approx(0.595)
    assert code(1) == pytest.approx(0.99, abs=1e-4)


def test_reconstruction_loss() -> None:
    # Two images of 4 pixels, each wrong by 1/2: sum of squares 1, mean 1/4.
    images, wrong = torch.zeros(2, 1, 2, 2), torch.full((2, 1, 2, 2), 0.5)
    near(tc.reconstruction_loss(wrong, images), 0.0005)
    near(tc.reconstruction_loss(wrong, images, reduction="mean"), 0.075)
    near(tc.reconstruction_loss(wrong, images, weight=0.01), 0.01)


def test_cross_entropies() -> None:
    # Scores ln 3 and 0: softmax 3/4, 1/4; sigmoids 3/4, 1/2.
    scores = torch.tensor([[math.log(3), 0]]).double()
    near(tc.cross_entropy_loss(scores, torch.tensor([0])), -math.log(3 / 4))
    near(tc.binary_cross_entropy_loss(scores, torch.tensor([0])), -math.log(3 / 4 * 1 / 2))
    near(tc.binary_cross_entropy_loss(scores, torch.tensor([[0, 1]])), -math.log(1 / 4 * 1 / 2))


def test_self_routing() -> None:
    # Two children with activations 1 and 1/2, two parents. Logits (ln 3, 0) and (0, 0) give the
    # couplings (3/4, 1/4) and (1/2, 1/2), and weights c a of (3/4, 1/4) and (1/4, 1/4).
    # Mass of the parents: 1 and 1/2; activations 1/1.5 = 2/3 and 0.5/1.5 = 1/3.
    # Votes for A are (4, 0) and (0, 4): pose (3/4 * 4, 1/4 * 4) / 1 = (3, 1).
    # Votes for B are (2, 2) and (0, 4): pose (1/4 * 2, 1/4 * 2 + 1/4 * 4) / (1/2) = (1, 3).
    votes = torch.tensor([[[[4.0, 0], [2, 2]], [[0, 4], [0, 4]]]]).double()
    logits = torch.tensor([[[math.log(3), 0], [0, 0]]]).double()
    routed = tc.self_routing(votes, logits, torch.tensor([[1, 0.5]]).double())
    near(routed.couplings[0], [[0.75, 0.25], [0.5, 0.5]])
    near(routed.activations[0], [2 / 3, 1 / 3])
    near(routed.poses[0], [[3, 1], [1, 3]])
    # Children without activations weigh 1: masses are 5/4 and 3/4 of 2.
    near(tc.self_routing(votes, logits).activations[0], [5 / 8, 3 / 8])
    # The class maps a child's pose to its logits, each child by a matrix of its own.
    routing = tc.SelfRouting(Sizes(2, 2, 2, 2)).double()
    with torch.no_grad():
        routing.weight.copy_(torch.tensor([[[1.0, 0], [0, 0]], [[0, 0], [0, 0]]]))
    poses = torch.tensor([[[math.log(3), 5], [7, 9]]]).double()
    children = tc.Capsules(poses, torch.tensor([[1, 0.5]]).double())
    for got, expected in zip(routing(children, votes), routed, strict=True):
        near(got, expected.tolist())


def test_exponential_squash() -> None:
    # |(3, 4)| = 5, so Eq. 3 of Mazzia 2021 gives the length 1 - e^-5 in the direction (3, 4)/5.
    length = 1 - math.exp(-5)
    near(exponential_squash(torch.tensor([3.0, 4.0]).double()), [0.6 * length, 0.8 * length])
    # at zero the factor is 1: the pose is zero, and its gradient the identity
    zero = torch.zeros(2).double().requires_grad_()
    near(torch.autograd.grad(exponential_squash(zero)[0], zero)[0], [1.0, 0.0])


def test_self_attention_routing() -> None:
    # Poses of 4, so the scale is 1/2. Both children vote (sqrt(ln 3), 0, 0, 0) for A. For B child 1
    # votes (2, 0, 0, 0) and child 2 the opposite. Sums of votes: (2 sqrt(ln 3), 0, 0, 0) and 0.
    # Agreement with A: sqrt(ln 3) * 2 sqrt(ln 3) / 2 = ln 3 for both; with B: 0.
    # Couplings 3/4 and 1/4. s_A = 3/2 sqrt(ln 3) and s_B = 0; |v_A| = 1 - exp(-s_A).
    root = math.sqrt(math.log(3))
    votes = torch.zeros(1, 2, 2, 4).double()
    votes[0, :, :, 0] = torch.tensor([[root, 2], [root, -2]])
    routed = tc.self_attention_routing(votes)
    near(routed.couplings[0], [[0.75, 0.25]] * 2)
    near(routed.poses[0, :, 0], [1 - math.exp(-1.5 * root), 0.0])
    near(routed.activations[0], [1 - math.exp(-1.5 * root), 0.0])
    # A bias of 1/4 on child 1 for B: s_B = 1/2 * 2 - 1/4 * 2 = 1/2. Couplings stay without it.
    bias = torch.tensor([[0.0, 0.25], [0, 0]]).double()
    biased = tc.self_attention_routing(votes, bias)
    near(biased.poses[0, :, 0], [1 - math.exp(-1.5 * root), 1 - math.exp(-0.5)])
    near(biased.couplings[0], [[0.75, 0.25]] * 2)
    # The class owns the bias.
    routing = tc.SelfAttentionRouting(Sizes(2, 2, 8, 4)).double()
    routing.load_state_dict({"bias": bias})
    near(route(routing, votes).poses[0], biased.poses[0].tolist())


def test_variational_routing() -> None:
    # Poses of 1 and priors alpha = kappa = Psi = 1, nu = 2. The children vote 1 and 3 for A and 0
    # for B. Couplings of 1/2 give R = 1, so alpha = kappa = 2 and nu = 3 for both parents.
    # A: mean 2, m = 2/2 = 1, 1/Psi = 1 + (1 + 1)/2 + 1/2 * 4 = 4. B: m = 0, 1/Psi = 1.
    votes = torch.tensor([[[[1.0], [0]], [[3], [0]]]]).double()
    present = torch.ones(1, 2).double()
    once = tc.variational_routing(votes, present, iterations=1)
    near(once.poses[0, :, 0], [1.0, 0.0])
    near(once.couplings[0], [[0.5, 0.5]] * 2)
    # psi(2) - psi(4) = -1/2 - 1/3. psi(3/2) = 2 - gamma - 2 ln 2, so that E ln Lambda = 2 - gamma -
    # ln 2 + ln Psi. The entropies are ln(2 pi e) / 2 - E ln Lambda / 2.
    gamma, share = 0.5772156649015329, math.exp(-5 / 6)
    of_b = 0.5 * (math.log(2 * math.pi * math.e) - (2 - gamma - math.log(2)))
    logits = [-share * (of_b + math.log(2)), -share * of_b]
    near(once.activations[0], [1 / (1 + math.exp(-logit)) for logit in logits])
    # E-step: A has ln Psi / 2 = -ln 2 more than B, and -3/2 * 1/4 * (v - 1)^2, which is 0 and -3/2.
    # So child 1 has 1/2 : 1, and child 2 has exp(-3/2)/2 : 1.
    twice = tc.variational_routing(votes, present, iterations=2)
    second = 1 / (1 + 2 * math.exp(1.5))
    near(twice.couplings[0], [[1 / 3, 2 / 3], [second, 1 - second]])
    near(twice.poses[0, :, 0], [(1 / 3 + 3 * second) / (1 + 1 / 3 + second), 0.0])
    # The class owns beta_a and beta_u, which move the logits of the activations.
    routing = tc.VariationalRouting(Sizes(2, 2, 8, 1), iterations=1).double()
    betas = {"beta_a": torch.tensor([2.0, 0]), "beta_u": torch.tensor([0, 1.0])}
    routing.load_state_dict(betas)
    moved = [logits[0] + 2, logits[1] - 1]
    near(route(routing, votes, present).activations[0], [1 / (1 + math.exp(-x)) for x in moved])


def test_variational_routing_over_the_batch() -> None:
    # Batch normalization of poses and logits, per parent: two samples become plus and minus one.
    routing = tc.VariationalRouting(Sizes(1, 1, 2, 1), batch_norm=True)
    votes = torch.tensor([1.0, 300]).reshape(2, 1, 1, 1)
    routed = route(routing, votes, torch.ones(2, 1))
    assert routed.poses.flatten().tolist() == pytest.approx([-1, 1], abs=1e-3)
    high = 1 / (1 + math.exp(-1))
    assert routed.activations.flatten().tolist() == pytest.approx([high, 1 - high], abs=1e-3)
