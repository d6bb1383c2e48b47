"""Routing looked into: constructed cases whose answer is known, and every family."""

import math
from copy import deepcopy
from functools import partial
from itertools import pairwise

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.networks.families import CAPSULES, ITERATED, family, subject
from torchcaps import analysis
from torchcaps.analysis.parse import receptive_fields
from torchcaps.analysis.routing import _use
from torchcaps.capsules import Capsules, Output
from torchcaps.data import CenterCrop


class Bare(tc.Network):
    """Four children on a grid of 2x2, read off the image's corners, and two parents."""

    def __init__(self, iterations: int = 1) -> None:
        super().__init__((1, 2, 2), 2)
        self.classes = tc.LinearCapsules(
            4, 2, 1, 2, routing=partial(tc.DynamicRouting, iterations=iterations)
        )

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        routed = self.classes(Capsules(images.permute(0, 2, 3, 1)[..., None]))
        kept = (routed.couplings,) if couplings else ()
        return Output(routed.activations, Capsules(routed.poses, routed.activations), kept)


def bare(*weights: tuple[float, float], iterations: int = 1) -> Bare:
    """Child i votes weights[i][j] along the first axis for parent j."""
    network = Bare(iterations).eval()
    with torch.no_grad():
        network.classes.weight.zero_()
        network.classes.weight[:, :, 0, 0] = torch.tensor(weights)
    return network


@pytest.mark.parametrize("n", [2, 10, 32])
def test_the_entropy_of_uniform_couplings_is_the_logarithm_of_the_parents(n: int) -> None:
    uniform = torch.full((3, 5, n), 1 / n)
    entropy = analysis.coupling_entropy(uniform)
    assert entropy.shape == (3, 5)
    torch.testing.assert_close(entropy, torch.full((3, 5), math.log(n)))
    over_children = analysis.coupling_entropy(uniform, competes_over="children")
    torch.testing.assert_close(over_children, torch.full((3, n), math.log(5)))
    decided = torch.eye(n)[None]
    assert float(analysis.coupling_entropy(decided).abs().max()) == 0


def test_entropy_scales_what_does_not_sum_to_one_and_drops_what_is_negative() -> None:
    entropy = analysis.coupling_entropy(torch.tensor([[3.0, 3.0, -1.0], [0.0, 0.0, 0.0]]))
    torch.testing.assert_close(entropy, torch.tensor([math.log(2), 0.0]))


def test_the_first_iteration_couples_uniformly_and_later_ones_do_not() -> None:
    layer = analysis.routing_entropy(family("dynamic"), subject("dynamic").batch(4).images)[0]
    assert layer.limit == pytest.approx(math.log(10))
    assert layer.entropies[0] == pytest.approx(layer.limit, rel=1e-5)
    assert layer.entropies[1] < layer.limit
    assert len(layer.entropies) == 3


def test_the_entropy_of_parents_that_compete_over_the_image_is_of_all_parents_of_a_child() -> None:
    network = tc.build("hinton2018/smallnorb-small").eval()
    images = torch.rand(2, 2, 32, 32, generator=torch.Generator().manual_seed(0))
    traced = analysis.trace(network, images)[0]
    couplings, child = traced.couplings[-1], traced.child
    entropies, limits = [], []
    for number in child.unique():
        of_child = couplings[:, child == number].flatten(1)  # [b (p j)]
        torch.testing.assert_close(of_child.sum(dim=1), torch.ones(2))
        entropies.append(torch.special.entr(of_child).sum(dim=1).mean())
        limits.append(math.log(of_child.shape[1]))
    layer = analysis.routing_entropy(network, images)[0]
    assert layer.entropies[-1] == pytest.approx(float(torch.stack(entropies).mean()), rel=1e-4)
    assert layer.limit == pytest.approx(sum(limits) / len(limits), rel=1e-4)
    assert layer.entropies[0] == pytest.approx(layer.limit, rel=1e-4)


@pytest.mark.parametrize("name", CAPSULES)
def test_the_trace_has_the_couplings_the_network_returns(name: str) -> None:
    network, images = family(name), subject(name).batch(3).images
    layers = analysis.trace(network, images)
    with torch.no_grad():
        output = network(images, couplings=True)
    assert len(layers) == len(output.couplings)
    for layer, couplings in zip(layers, output.couplings, strict=True):
        torch.testing.assert_close(layer.couplings[-1].flatten(), couplings.flatten())
        assert layer.strength.shape[:2] == layer.couplings[-1].shape[:2]
        assert layer.child.shape == layer.strength.shape[1:3]
        assert float(layer.strength.min()) >= 0
    for below, above in pairwise(layers):
        assert below.above == above.below or math.prod(below.above) == math.prod(above.below)


@pytest.mark.parametrize("name", CAPSULES)
def test_looking_leaves_no_trace(name: str) -> None:
    network, images = family(name), subject(name).batch(2).images
    with torch.no_grad():
        before = network(images)
    network.train()
    if name in ITERATED:
        analysis.routing_convergence(network, images, iterations=2)
    analysis.trace(network, images)
    assert network.training
    network.eval()
    assert not any(module._forward_hooks for module in network.modules())
    with torch.no_grad():
        torch.testing.assert_close(network(images).scores, before.scores, rtol=0, atol=0)


@pytest.mark.parametrize("name", ITERATED)
def test_each_iteration_is_the_network_built_with_so_many(name: str) -> None:
    network, images = family(name), subject(name).batch(2).images
    first = analysis.trace(network, images, iterations=3)[0]
    kinds = tc.DynamicRouting | tc.EMRouting
    built = [module.iterations for module in network.modules() if isinstance(module, kinds)]
    try:
        for count in (1, 2, 3):
            network.set_iterations(count)
            with torch.no_grad():
                couplings = network(images, couplings=True).couplings[0]
            torch.testing.assert_close(first.couplings[count - 1].flatten(), couplings.flatten())
    finally:
        network.set_iterations(built[0] if built else 2)


def test_changes_of_logits_couplings_and_poses_are_those_by_hand() -> None:
    # Two of four children are lit. Uniform couplings of 1/2: s = (1 + 3)/2 = 2 for parent 0 and
    # (1 + 1)/2 = 1 for parent 1, squashed to 4/5 and 1/2. The logits change by vote times pose:
    # child 0 by 0.8 and 0.5, child 1 by 2.4 and 0.5, the others not at all.
    network = bare((1, 1), (3, 1), (5, 5), (7, 7))
    images = torch.tensor([[[[1.0, 1.0], [0.0, 0.0]]]])
    layers = analysis.routing_convergence(network, images, iterations=1)
    assert layers[0].layer == "classes"
    assert layers[0].changes == pytest.approx(((0.8 + 0.5 + 2.4 + 0.5) / 8,))
    # the couplings of parent 0 become the logistic of 0.8 - 0.5 and of 2.4 - 0.5
    first, second = (1 / (1 + math.exp(-gap)) for gap in (0.3, 1.9))
    moved = [first - 0.5, second - 0.5, 0, 0]
    assert layers[0].couplings == pytest.approx((sum(moved) / 4,), rel=1e-5)
    n = (first + 3 * second, (1 - first) + (1 - second))
    lengths = [x**2 / (1 + x**2) for x in n]
    expected = (abs(lengths[0] - 0.8) + abs(lengths[1] - 0.5)) / 4  # two entries per parent
    assert layers[0].poses == pytest.approx((expected,), rel=1e-5)


def test_poses_settle_while_logits_keep_growing() -> None:
    # all children agree on parent 0: each iteration adds their agreement, and the pose saturates
    network = bare((3, 1), (3, 1), (3, 1), (3, 1))
    (layer,) = analysis.routing_convergence(network, torch.ones(1, 1, 2, 2), iterations=5)
    assert layer.changes[-1] > 0.5 * layer.changes[0]
    assert layer.poses[-1] < 0.1 * layer.poses[0]
    assert layer.couplings[-1] < 0.1 * layer.couplings[0]


@pytest.mark.parametrize("name", ["attention", "pairwise", "discriminative"])
def test_routings_of_one_pass_say_that_nothing_can_settle(name: str) -> None:
    with pytest.raises(ValueError, match="routes in one pass"):
        analysis.routing_convergence(family(name), subject(name).batch(2).images)


@pytest.mark.parametrize("name", ["inverted", "sequential"])
def test_attention_settles(name: str) -> None:
    for layer in analysis.routing_convergence(family(name), subject(name).batch(4).images):
        assert len(layer.changes) == 5
        assert layer.changes[-1] < layer.changes[0]


def test_dead_and_saturated_capsules_are_counted() -> None:
    present = torch.tensor([[1.0, 0.005, 0.5, 0.0], [1.0, 0.0, 0.0, 0.0], [0.995, 0.0, 0.7, 0.02]])
    use = _use("layer", present)
    assert use.dead == pytest.approx(0.25)
    assert use.saturated == pytest.approx(0.25)
    assert float(use.mean[0]) == pytest.approx(2.995 / 3)


@pytest.mark.parametrize("name", CAPSULES)
def test_use_covers_primary_capsules_and_every_layer(name: str) -> None:
    network, images = family(name), subject(name).batch(4).images
    uses = analysis.capsule_use(network, images)
    layers = [layer.name for layer in analysis.trace(network, images)]
    assert [use.layer for use in uses] == ["primary", *layers]
    assert all(0 <= use.dead <= 1 and 0 <= use.saturated <= 1 for use in uses)


def test_a_tree_begins_with_the_child_that_gave_most() -> None:
    network = bare((1, 9), (3, 1), (5, 1), (7, 1))
    image = torch.tensor([[[[1.0, 1.0], [1.0, 0.0]]]])
    tree = analysis.parse_tree(network, image, classes=(0,), branches=1)
    root, *children = tree.nodes
    assert (root.kind, root.parent, tree.layers) == (0, -1, ("classes", "primary"))
    assert [child.position for child in children] == [(1, 0), (0, 1), (0, 0)]
    assert [child.share for child in children] == pytest.approx([5 / 9, 3 / 9, 1 / 9])
    assert [child.coupling for child in children] == pytest.approx([0.5] * 3)
    found = analysis.routing_map(network, image, torch.tensor([1]))
    torch.testing.assert_close(found.relevance, torch.tensor([[[9.0, 1.0], [1.0, 0.0]]]) / 11)
    torch.testing.assert_close(found.pixels, found.relevance * 11 / 9)


@pytest.mark.parametrize("name", CAPSULES)
def test_the_relevance_of_all_positions_sums_to_one(name: str) -> None:
    images = subject(name).batch(3).images
    with torch.no_grad():  # of the predicted class: another one may have no child that supports it
        predicted = family(name)(images).scores.argmax(1)
    found = analysis.routing_map(family(name), images, predicted)
    torch.testing.assert_close(found.relevance.sum((1, 2)), torch.ones(3))
    assert found.pixels.shape == (3, 28, 28)
    assert float(found.pixels.max()) == 1
    assert float(found.relevance.min()) >= 0


@pytest.mark.parametrize("name", CAPSULES)
def test_trees_reach_from_the_class_to_the_image(name: str) -> None:
    network, image = family(name), subject(name).batch(1).images
    tree = analysis.parse_tree(network, image)
    levels = {node.level for node in tree.nodes}
    assert levels == set(range(len(tree.layers)))
    with torch.no_grad():
        assert tree.nodes[0].kind == int(network(image).scores.argmax())
    for node in tree.nodes[1:]:
        above = tree.nodes[node.parent]
        assert above.level == node.level - 1
        assert node.relevance == pytest.approx(node.share * above.relevance)
        assert (node.pixel is None) == (node.level < len(tree.layers) - 1)
    for index, node in enumerate(tree.nodes):
        shares = [child.share for child in tree.nodes if child.parent == index]
        assert sum(shares) <= 1 + 1e-5
        assert shares == sorted(shares, reverse=True)
        assert bool(shares) == (node.level < len(tree.layers) - 1)


def test_a_walk_shows_the_child_that_gave_most_and_how_it_decides() -> None:
    network = bare((1, 9), (3, 1), (5, 1), (7, 1), iterations=3)
    image = torch.tensor([[[[1.0, 0.5], [1.0, 0.0]]]])
    found = analysis.walk(network, image)
    torch.testing.assert_close(found.primary, image[0, 0])
    assert found.prediction == 1
    assert found.child == (0, 0, 0)
    with torch.no_grad():
        output = network(image, couplings=True)
    torch.testing.assert_close(found.couplings[0], torch.tensor([0.5, 0.5]))
    torch.testing.assert_close(found.couplings[-1], output.couplings[0][0, 0])
    torch.testing.assert_close(found.scores, output.scores[0])
    assert float(found.couplings[-1, 1]) > 0.9


@pytest.mark.parametrize("name", CAPSULES)
def test_every_network_can_be_walked_through(name: str) -> None:
    found = analysis.walk(family(name), subject(name).batch(1).images)
    assert found.couplings.shape[1] == len(found.scores) == 10
    assert found.primary.dim() == 2
    with pytest.raises(ValueError, match="of one image"):
        analysis.walk(family(name), torch.rand(2, 1, 28, 28))


def test_ink_in_a_corner_is_followed_to_that_corner() -> None:
    network = deepcopy(family("dynamic"))
    for module in network.modules():
        if isinstance(module, torch.nn.Conv2d) and module.bias is not None:
            module.bias.data.zero_()
    image = torch.zeros(1, 1, 28, 28)
    image[..., 22:26, 22:26] = 1
    found = analysis.routing_map(network, image, torch.tensor([3]))
    rows, columns = receptive_fields(network, image, (6, 6))
    assert (rows.start, rows.step, columns.start, columns.step) == (8, 2, 8, 2)
    # a primary capsule sees 17 pixels, 8 either way of its center: those at 14 and beyond
    fed = found.relevance[0] > 0
    assert bool(fed[3:, 3:].all())
    assert not bool(fed[:3].any() or fed[:, :3].any())
    assert not bool(found.pixels[0, :11].any())


@pytest.mark.parametrize(
    ("name", "grid", "start", "step"),
    [("em", 14, 0, 2), ("attention", 14, 0, 2), ("pairwise", 4, 0, 8)],
)
def test_receptive_fields_follow_strides_and_padding(
    name: str, grid: int, start: float, step: float
) -> None:
    rows, columns = receptive_fields(family(name), torch.rand(1, 1, 28, 28), (grid, grid))
    assert rows == columns == (start, step)


def test_receptive_fields_begin_where_the_image_is_cropped() -> None:
    prepared = analysis.Prepared(family("dynamic"), (CenterCrop(28),), (1, 40, 34)).eval()
    rows, columns = receptive_fields(prepared, torch.rand(1, 1, 40, 34), (6, 6))
    assert (rows, columns) == ((6 + 8, 2), (3 + 8, 2))
    rows, columns = receptive_fields(prepared, torch.rand(1, 1, 40, 34), (4, 4))  # no layer's
    assert (rows, columns) == ((6 + 3, 7), (3 + 3, 7))


def test_a_network_without_capsules_says_so() -> None:
    images = torch.rand(1, 1, 28, 28)
    with pytest.raises(ValueError, match="has no capsule layers"):
        analysis.trace(family("plain"), images)
    with pytest.raises(ValueError, match="of one image"):
        analysis.parse_tree(family("dynamic"), images.expand(2, -1, -1, -1))
