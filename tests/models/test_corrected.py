"""Networks that were corrected: their present layers, and what definition 1 keeps."""

import pytest
import torch
from torch import nn

import torchcaps as tc


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
