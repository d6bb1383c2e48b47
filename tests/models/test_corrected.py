"""Networks that were corrected: their present layers, and what definition 1 keeps."""

from pathlib import Path

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.models.hinton2018 import BALANCED


@pytest.mark.parametrize("penalty", ["l1", "l2"])
@pytest.mark.parametrize(("definition", "slope"), [(None, 0.2), (1, 0.01)])
def test_yangs_leaky_relu_has_the_slope_of_tensorflow(
    penalty: str, definition: int | None, slope: float
) -> None:
    with torch.device("meta"):
        network = tc.build(f"yang2021/cifar10-{penalty}", definition=definition)
    (leaky,) = (module for module in network.modules() if isinstance(module, nn.LeakyReLU))
    assert leaky.negative_slope == slope


def test_the_cnn_for_affnist_has_the_layers_of_the_released_one() -> None:
    with torch.device("meta"):
        network = tc.build("sabour2017/affnist-baseline")
    layers = [module for module in network.modules() if not list(module.children())]
    convs = [layer for layer in layers if isinstance(layer, nn.Conv2d)]
    assert [(c.out_channels, c.kernel_size) for c in convs] == [(512, (5, 5)), (256, (5, 5))]
    assert sum(isinstance(layer, nn.MaxPool2d) for layer in layers) == 2
    linear = [layer for layer in layers if isinstance(layer, nn.Linear)]
    assert [layer.out_features for layer in linear] == [1024, 10]
    (dropout,) = (layer for layer in layers if isinstance(layer, nn.Dropout))
    assert dropout.p == 0.5
    assert layers.index(dropout) < layers.index(linear[1])


def em_routings(name: str, definition: int | None = None) -> list[tc.EMRouting]:
    """Return the routings of a network's capsule layers in order."""
    network = tc.build(name, definition=definition)
    return [module for module in network.modules() if isinstance(module, tc.EMRouting)]


def test_costs_of_hintons_network_are_scaled_by_the_parents_per_child_of_each_layer() -> None:
    # 14x14 positions of 32 types, 6x6 of 32, 4x4 of 32, and 5 classes
    ratios = (14 * 14 / (6 * 6), 6 * 6 / (4 * 4), 4 * 4 * 32 / 5)
    for routing, ratio, cost, beta_u in zip(
        em_routings("hinton2018/smallnorb"), ratios, BALANCED.cost, BALANCED.beta_u, strict=True
    ):
        assert routing.cost_scale == pytest.approx(cost / ratio)
        assert routing.beta_scale == BALANCED.beta
        assert routing.beta_u.tolist() == pytest.approx([beta_u] * len(routing.beta_u))


def test_parents_of_one_window_share_its_children_alone() -> None:
    network = tc.EMCapsNet((1, 28, 28), 10, widths=(4, 6, 8), competition="window")
    scales = [m.cost_scale for m in network.modules() if isinstance(m, tc.EMRouting)]
    ratios = (9 * 4 / 6, 9 * 6 / 8, 3 * 3 * 8 / 10)
    assert scales == pytest.approx([c / r for c, r in zip(BALANCED.cost, ratios, strict=True)])


@pytest.mark.parametrize(
    ("name", "definition"),
    [
        ("hinton2018/smallnorb-small", 1),
        ("tsai2020/cifar10-simple-em", 1),
        ("tsai2020/cifar100-resnet-em", 1),
        ("zhao2020/affnist-em", 1),
        ("zhao2020/affnist-em", 2),
    ],
)
def test_earlier_em_networks_keep_the_scales_they_were_trained_with(
    name: str, definition: int, tmp_path: Path
) -> None:
    for routing in em_routings(name, definition):
        assert (routing.cost_scale, routing.beta_scale) == (1, 1)
        assert not routing.beta_u.any()
        assert not routing.beta_a.any()
    network = tc.build(name, definition=definition).eval()
    tc.save(network, path := tmp_path / "network.safetensors")
    images = torch.rand(2, *network.image_shape)
    torch.testing.assert_close(tc.load(path)(images).scores, network(images).scores)
    assert all(routing.cost_scale > 1 for routing in em_routings(name))


def test_zhaos_em_baseline_has_the_scales_and_the_start_of_the_code() -> None:
    torch.manual_seed(0)
    routings = em_routings("zhao2020/cifar10-em")
    assert [r.cost_scale for r in routings] == pytest.approx([100 / 2, 100 / 2, 100 / 1.6])
    beta_a = torch.cat([r.beta_scale * r.beta_a.detach() for r in routings])
    assert -1200 < float(beta_a.mean()) < -800
    assert 300 < float(beta_a.std()) < 600
