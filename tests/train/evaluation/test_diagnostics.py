"""Diagnostics of routing: their numbers, their place in a run, and their sentences."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from helpers.runs.training import Listener, metrics, quick, small
from torchcaps import analysis
from torchcaps.data import Batches, load
from torchcaps.results import LayerRouting, RoutingPoint, describe_routing
from torchcaps.train.evaluation.diagnostics import diagnose_routing
from torchcaps.train.outputs.folder import RunFolder

EM = "hinton2018/smallnorb-small"


def diagnosed(network: tc.Network, images: torch.Tensor) -> RoutingPoint:
    point = diagnose_routing(network, images, epoch=1, measure="top1")
    assert point is not None
    return point


@pytest.mark.parametrize("name", ["demo/strokes-dynamic", EM, "tsai2020/cifar10-simple"])
def test_one_iteration_couples_uniformly_and_decides_nothing(name: str) -> None:
    torch.manual_seed(0)
    network = tc.build(name, iterations=1)
    point = diagnosed(network, torch.rand(4, *network.image_shape))
    assert point.changed == 0
    for layer in point.layers:
        assert layer.entropy_share == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize("name", ["demo/strokes-dynamic", EM, "demo/strokes-attention"])
def test_entropies_are_those_of_the_analysis(name: str) -> None:
    torch.manual_seed(0)
    network = tc.build(name).eval()
    images = torch.rand(4, *network.image_shape)
    point = diagnosed(network, images)
    expected = analysis.routing_entropy(network, images)
    assert [layer.layer for layer in point.layers] == [layer.layer for layer in expected]
    for one, other in zip(point.layers, expected, strict=True):
        assert one.entropy == pytest.approx(other.entropies[-1], rel=1e-5)
        assert one.uniform_entropy == pytest.approx(other.limit, rel=1e-5)
        assert one.entropy != pytest.approx(one.uniform_entropy, rel=1e-7)


@pytest.mark.parametrize("name", ["demo/strokes-dynamic", EM, "demo/strokes-inverted-attention"])
def test_changes_of_poses_by_iteration_are_those_of_the_analysis(name: str) -> None:
    torch.manual_seed(0)
    network = tc.build(name, iterations=3).eval()
    images = torch.rand(4, *network.image_shape)
    point = diagnosed(network, images)
    expected = analysis.routing_convergence(network, images, iterations=2)
    for one, other in zip(point.layers, expected, strict=True):
        assert one.pose_changes == pytest.approx(other.poses, rel=1e-4)
        assert len(one.pose_changes) == 2
        assert min(one.pose_changes) > 0
    assert diagnosed(network, images) == point


def test_layers_that_iterate_together_change_with_every_pass() -> None:
    torch.manual_seed(0)
    network = tc.build("tsai2020/cifar10-simple", iterations=4).eval()
    last = diagnosed(network, torch.rand(2, 3, 32, 32)).layers[-1]
    assert len(last.pose_changes) == 3
    assert min(last.pose_changes) > 0


def test_predictions_that_routing_decides_are_counted() -> None:
    torch.manual_seed(0)
    network = tc.build("demo/strokes-dynamic", iterations=3).eval()
    with torch.no_grad():
        network.get_parameter("classes.weight").mul_(100)
    images = Batches(load("strokes", "test"), 32).batch(torch.arange(32)).images
    with torch.no_grad():
        routed = tc.predict(network(images))
        network.set_iterations(1)
        uniform = tc.predict(network(images))
        network.set_iterations(3)
    share = 100 * float((routed != uniform).float().mean())
    assert share > 0
    assert diagnosed(network, images).changed == pytest.approx(share)


def test_diagnosing_changes_nothing_in_the_network() -> None:
    network = tc.build("tsai2020/cifar10-simple")
    before = {key: value.clone() for key, value in network.state_dict().items()}
    images = torch.rand(2, 3, 32, 32)
    state = torch.get_rng_state()
    diagnosed(network, images)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[key], value) for key, value in network.state_dict().items())
    assert not any(module._forward_hooks for module in network.modules())


def test_a_network_without_routing_has_no_diagnostics() -> None:
    network = tc.build("tsai2020/diversemultimnist-baseline")
    images = torch.rand(1, 3, 36, 36)
    assert diagnose_routing(network, images, epoch=1, measure="threshold") is None


def test_a_run_records_its_routing_and_ends_with_plain_words(tmp_path: Path) -> None:
    listener = Listener()
    recipe = small("inverted-attention", iterations=1)
    quick(recipe, out=tmp_path, reporter=listener)
    lines = metrics(tmp_path)
    assert [line["routing"]["layers"][0]["layer"] for line in lines] == ["classes"] * 3
    points = RunFolder(tmp_path).routing_curve()
    assert points[0].layers[0].pose_changes == ()
    assert [point.epoch for point in points] == [1, 2, 3]
    assert points[0].layers != points[2].layers
    assert "couplings of layer 1 stayed uniform: entropy 2.3026 of 2.3026" in listener.said
    assert "uniform couplings change 0.0 % of 16 predictions" in listener.said


def layer(entropy: float | None, *, std: float = 0.2) -> LayerRouting:
    return LayerRouting(
        layer="classes",
        entropy=entropy,
        uniform_entropy=None if entropy is None else 2.0,
        mean=0.5,
        std=std,
        low=0.5 - std,
        high=0.5 + std,
        dead=0.0,
        saturated=0.0,
    )


@pytest.mark.parametrize(
    ("entropies", "words"),
    [
        ((2.0, 2.0), "couplings of layer 1 stayed uniform: entropy 2.0000 of 2.0000"),
        ((1.0, 2.0), "couplings of layer 1 became uniform: entropy 2.0000 of 2.0000"),
        ((2.0, 1.0), "couplings of layer 1 are not uniform: entropy 1.0000 of 2.0000"),
    ],
)
def test_the_sentence_says_what_became_of_the_couplings(
    entropies: tuple[float, ...], words: str
) -> None:
    points = [RoutingPoint(n, 8, None, (layer(e),)) for n, e in enumerate(entropies, start=1)]
    assert describe_routing(points) == [words]


def test_changes_of_poses_are_read_from_a_line_and_older_lines_have_none() -> None:
    point = RoutingPoint(3, 8, None, (replace(layer(1.0), pose_changes=(0.5, 0.25)),))
    routing = point.to_dict()
    values = {"kind": "epoch", "epoch": 3, "routing": routing}
    assert RoutingPoint.from_line(json.dumps(values)) == point
    del routing["layers"][0]["pose_changes"]
    assert RoutingPoint.from_line(json.dumps(values)) == replace(point, layers=(layer(1.0),))


@pytest.mark.parametrize(("std", "words"), [(0.002, "0.500 ± 0.002"), (0.02, "0.500 ± 0.020")])
def test_frozen_activations_are_named(std: float, words: str) -> None:
    said = describe_routing([RoutingPoint(1, 8, 12.5, (layer(None, std=std),))])
    assert said == [
        f"activations of layer 1 hardly differ: {words}",
        "uniform couplings change 12.5 % of 8 predictions",
    ]
    assert len(describe_routing([RoutingPoint(1, 8, 12.5, (layer(None, std=0.1),))])) == 1


@pytest.mark.parametrize(
    "line",
    ["", "[]", '{"epoch": 1}', '{"epoch": 1, "routing": {"layers": 3}}', '{"epoch": 1, "routing":'],
)
def test_damaged_lines_hold_no_routing(line: str) -> None:
    assert RoutingPoint.from_line(line) is None
