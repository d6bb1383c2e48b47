"""Classes, features and scores of networks in use, and what other libraries need of them."""

import io
from typing import Any, cast

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import torchcaps as tc
from torchcaps.train import train


def known(name: str) -> tc.Network:
    network = tc.build(name)
    channels, height, width = network.image_shape
    network.preprocessing = tc.Preprocessing(channels, (height, width))
    network.class_names = tuple("abcdefghij"[: network.n_classes])
    return network


def test_classify_gives_names_and_scores_best_first_and_keeps_the_mode() -> None:
    network = known("zhao2020/smallnorb").train()
    network.class_names = None
    images = torch.randint(256, (103, 1, 32, 32), dtype=torch.uint8)
    predictions = tc.classify(network, images, top=3)
    assert network.training
    assert all(module.training for module in network.modules())
    with torch.no_grad():
        scores = network.eval()(network.preprocess(images)).scores
    assert len(predictions) == 103
    for row, prediction in zip(scores, predictions, strict=True):
        values, labels = row.topk(3)
        assert prediction.labels == prediction.classes == tuple(labels.tolist())
        assert prediction.scores == pytest.approx(values.tolist(), abs=1e-5)
    network.class_names = ("animal", "human", "plane", "truck", "car")
    one = tc.classify(network, images[0])[0]
    assert one.classes == (network.class_names[one.labels[0]],)
    assert tc.classify(network, Image.fromarray(images[0, 0].numpy()))[0].labels == one.labels


def test_several_objects_in_one_image() -> None:
    two = tc.classify(known("zhao2020/multimnist"), torch.rand(3, 1, 36, 36))
    assert all(len(set(prediction.classes)) == 2 for prediction in two)
    network = known("tsai2020/cifar10-simple")
    some = tc.classify(network, torch.rand(3, 32, 32), threshold=0.5)[0]
    assert all(score > 0 for score in some.scores)
    none = tc.classify(network, torch.rand(3, 32, 32), threshold=0.999999)[0]
    assert none.classes == none.scores == ()


def test_features_are_those_of_the_backbone() -> None:
    network = known("tsai2020/cifar10-simple").eval()
    batch = network.preprocess(np.zeros((2, 32, 32, 3), np.uint8))
    features = network.features(batch)
    assert torch.equal(features, cast(nn.Module, network.backbone)(batch))

    class Own(tc.Network):
        def __init__(self) -> None:
            super().__init__((1, 4, 4), 2)
            self._modules["features"] = nn.Flatten()
            self.classes = nn.Linear(16, 2)

        def forward(
            self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
        ) -> tc.Output:
            return tc.Output(self.classes(self.features(self.checked(images))))

    assert Own()(torch.rand(3, 1, 4, 4)).scores.shape == (3, 2)
    assert Own().features(torch.rand(3, 1, 4, 4)).shape == (3, 16)


def test_scores_are_one_tensor() -> None:
    network = tc.build("zhao2020/smallnorb").eval()
    images = torch.rand(2, 1, 32, 32, requires_grad=True)
    scores = tc.Scores(network)(images)
    assert torch.equal(scores, network(images).scores)
    assert torch.autograd.grad(scores.sum(), images)[0].shape == images.shape
    head = tc.Scores(tc.CapsuleHead(4, 3))
    assert head(torch.rand(2, 4, 5, 5)).shape == (2, 3)
    with pytest.raises(ValueError, match="returns an Output, not Tensor"):
        tc.Scores(nn.Flatten())(images)


@pytest.mark.parametrize(
    "name", ["yang2021/mnist-l1", "zhao2020/smallnorb", "tsai2020/cifar10-simple"]
)
def test_nothing_needs_a_gradient_without_gradients(name: str) -> None:
    network = tc.build(name).eval()
    with torch.no_grad():
        output = network(torch.rand(1, *network.image_shape), couplings=True)
    assert output.couplings
    for tensor in (output.scores, *output.couplings):
        assert tensor.numpy().size == tensor.numel()
    trained = network(torch.rand(1, *network.image_shape), couplings=True)
    assert trained.scores.requires_grad


def test_an_exported_network_is_saved_and_loaded() -> None:
    network = tc.build("zhao2020/smallnorb").eval()
    images = torch.rand(2, 1, 32, 32)
    file = io.BytesIO()
    torch.export.save(torch.export.export(network, (images,)), file)
    file.seek(0)
    again = torch.export.load(file).module()(images)
    assert isinstance(again, tc.Output)
    torch.testing.assert_close(again.scores, network(images).scores)


def test_soft_targets_are_those_of_cross_entropy() -> None:
    scores = torch.randn(4, 3, requires_grad=True)
    labels = torch.tensor([0, 2, 1, 1])
    soft = 0.3 * torch.eye(3)[labels] + 0.7 * torch.eye(3)[labels.flip(0)]
    loss = tc.cross_entropy_loss(scores, soft, label_smoothing=0.1)
    torch.testing.assert_close(loss, cross_entropy(scores, soft, label_smoothing=0.1))
    hard = tc.cross_entropy_loss(scores, torch.eye(3)[labels].double())
    torch.testing.assert_close(hard, tc.cross_entropy_loss(scores, labels))


def test_predict_takes_an_output_too() -> None:
    output = tc.Output(torch.randn(4, 3))
    assert torch.equal(tc.predict(output, top=2), tc.predict(output.scores, top=2))


WRONG: list[tuple[str, Any]] = [
    ("must be a tensor or an Output, not list", lambda: tc.predict(cast(Any, [1.0]))),
    ("takes a torchcaps.Network, not Linear", lambda: tc.classify(cast(Any, nn.Linear(1, 1)), [])),
    ("must be preprocessed", lambda: tc.classify(tc.build("sabour2017/svhn"), torch.rand(3, 2, 2))),
    ("there is no reconstruction", lambda: tc.reconstruction_loss(None, torch.zeros(1))),
    ("train takes a Recipe, not 'sabour2017/mnist'", lambda: train(cast(Any, "sabour2017/mnist"))),
    ("train takes a Recipe, not None", lambda: train(cast(Any, None))),
    (
        "must be floats, not torch.int64",
        lambda: tc.cross_entropy_loss(torch.zeros(2, 3), torch.eye(3).long()[:2]),
    ),
    ("sum to 1", lambda: tc.cross_entropy_loss(torch.zeros(2, 3), torch.ones(2, 3))),
    (
        "has no backbone",
        lambda: tc.build("sabour2017/mnist-baseline").features(torch.rand(1, 1, 28, 28)),
    ),
    (
        "top must be between 1 and 10",
        lambda: tc.classify(known("sabour2017/svhn"), torch.rand(3, 32, 32), top=11),
    ),
]


@pytest.mark.parametrize(("sentence", "call"), WRONG)
def test_wrong_calls_get_one_sentence(sentence: str, call: Any) -> None:
    with pytest.raises(ValueError, match=sentence) as caught:
        call()
    assert "\n" not in str(caught.value)
