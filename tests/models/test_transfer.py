"""Pretrained weights as the start of networks for other classes and images."""

import logging

import pytest
import torch

import torchcaps as tc
from torchcaps.models.weights.transfer import transfer

NAME = "zhao2020/fashion-mnist"


def test_new_classes_keep_every_weight_that_fits_and_name_the_others(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trained = tc.build(NAME, pretrained=True)
    with caplog.at_level(logging.WARNING, "torchcaps"):
        network = tc.build(NAME, pretrained=True, n_classes=5)
    assert network.reinitialized == ("classes.weight",)
    assert caplog.messages == [f"{NAME} keeps the trained weights that fit; {MESSAGE}"]
    ours, theirs = network.state_dict(), trained.state_dict()
    assert [name for name in ours if not torch.equal(ours[name], theirs[name])] == [
        "classes.weight"
    ]
    assert (network.n_classes, network.class_names) == (5, None)
    assert network.preprocessing == trained.preprocessing is not None
    assert network.overrides == {"definition": 1, "n_classes": 5}
    assert network.eval()(torch.rand(2, 1, 28, 28)).scores.shape == (2, 5)


MESSAGE = "classes.weight starts from random values"


def test_the_same_classes_are_the_pretrained_network_itself(
    caplog: pytest.LogCaptureFixture,
) -> None:
    network = tc.build(NAME, pretrained=True, n_classes=10, image_shape=(1, 28, 28))
    assert network.reinitialized == ()
    assert network.class_names is not None
    assert not caplog.messages


def test_other_image_sizes_keep_the_backbone_and_the_preprocessing() -> None:
    network = tc.build("sabour2017/mnist", pretrained=True, image_shape=(1, 32, 32))
    assert "classes.weight" in network.reinitialized
    assert not any(name.startswith("backbone") for name in network.reinitialized)
    assert network.class_names == tuple("0123456789")
    assert network.preprocess(torch.rand(1, 28, 28)).shape == (1, 1, 32, 32)
    color = tc.build(NAME, pretrained=True, image_shape=(3, 28, 28))
    assert color.preprocessing is None


def test_a_network_of_another_class_is_refused() -> None:
    source, network = tc.build("demo/strokes-dynamic"), tc.build("zhao2020/cifar10-light")
    with pytest.raises(ValueError, match="do not fit zhao2020/cifar10-light: start from a network"):
        transfer(source, network)


def test_saved_networks_of_other_classes_load_again(tmp_path: object) -> None:
    network = tc.build(NAME, pretrained=True, n_classes=3)
    path = f"{tmp_path}/three.safetensors"
    tc.save(network, path, classes=("a", "b", "c"))
    again = tc.load(path)
    assert again.class_names == ("a", "b", "c")
    images = torch.rand(2, 1, 28, 28)
    assert torch.equal(again(images).scores, network.eval()(images).scores)
