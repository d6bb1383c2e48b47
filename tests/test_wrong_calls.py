"""Wrong arguments of public calls are refused in one sentence, and never give a result."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest
import torch

import torchcaps as tc
from helpers.repetitions import mark_slow_except
from torchcaps.analysis import open_subject
from torchcaps.recipes import get
from torchcaps.testing import check_routing
from torchcaps.train import TrainOptions, train

NAN = float("nan")
VALUES: dict[str, Any] = {
    "None": None,
    "text": "text",
    "negative": -1,
    "fraction": 2.5,
    "list": [],
    "dict": {},
    "object": object(),
    "nan": NAN,
    "bytes": b"x",
}
"""What is no network, name, tensor, size or path that exists."""


def network(name: str = "demo/strokes-dynamic") -> tc.Network:
    """Return a small network that knows its preprocessing."""
    net = tc.build(name).eval()
    net.preprocessing = tc.Preprocessing(1, (28, 28))
    return net


NET, SCORES, IMAGE = network(), torch.rand(2, 10), torch.zeros(1, 28, 28)
HEAD = tc.CapsuleHead(16, n_classes=3)

TAKERS: dict[str, Callable[[Any], object]] = {
    "build": tc.build,
    "open_subject": open_subject,
    "load": tc.load,
    "save": lambda value: tc.save(value, "network.safetensors"),
    "classify a network": lambda value: tc.classify(value, IMAGE),
    "classify images": lambda value: tc.classify(NET, value),
    "classify top": lambda value: tc.classify(NET, IMAGE, top=0 if value is None else value),
    "preprocess": NET.preprocess,
    "forward": NET,
    "features": NET.features,
    "predict": tc.predict,
    "predict top": lambda value: tc.predict(SCORES, top=0 if value is None else value),
    "predict threshold": lambda value: tc.predict(SCORES, threshold=7 if value is None else value),
    "squash": tc.squash,
    "lengths": tc.lengths,
    "margin_loss": lambda value: tc.margin_loss(value, torch.zeros(1).long()),
    "margin_loss targets": lambda value: tc.margin_loss(SCORES, value),
    "spread_loss targets": lambda value: tc.spread_loss(SCORES, value, margin=0.2),
    "cross_entropy_loss targets": lambda value: tc.cross_entropy_loss(SCORES, value),
    "binary_cross_entropy_loss": lambda value: tc.binary_cross_entropy_loss(SCORES, value),
    "reconstruction_loss": lambda value: tc.reconstruction_loss(value, IMAGE),
    "register_network": lambda name: tc.register_network(name, type(NET), image_shape=(1, 28, 28)),
    "CapsuleHead": lambda value: tc.CapsuleHead(value, n_classes=3),
    "CapsuleHead classes": lambda value: tc.CapsuleHead(16, n_classes=value),
    "CapsuleHead features": HEAD,
    "dynamic_routing": tc.dynamic_routing,
    "iterations": lambda value: tc.dynamic_routing(torch.rand(1, 2, 3, 4), iterations=value),
    "data.load": tc.data.load,
    "list_models": lambda value: tc.list_models(cast(Any, 7) if value == "text" else value),
    "Scores": tc.Scores,
    "CapturedNetwork": tc.CapturedNetwork,
    "label_smoothing": lambda value: tc.cross_entropy_loss(
        SCORES, torch.tensor([0, 1]), label_smoothing=value
    ),
    "Batches": lambda value: tc.data.Batches(value, 4),
    "Preprocessing": lambda value: tc.Preprocessing(value, (28, 28)),
    "Ensemble": lambda value: tc.Ensemble([value]),
    "recipes.get": get,
    "train": train,
    "train options": lambda value: train(
        get("demo/strokes-em"), cast(Any, 3 if value is None else value)
    ),
    "check_routing": check_routing,
}

CASES = {
    f"{name} {kind}": (take, value)
    for name, take in TAKERS.items()
    for kind, value in VALUES.items()
}

OTHERS: dict[str, Callable[[], object]] = {
    "pixels up to 255 as floats": lambda: NET.preprocess(200 * torch.ones(1, 28, 28)),
    "pixels below zero": lambda: NET.preprocess(-torch.ones(1, 28, 28)),
    "pixels that are NaN": lambda: tc.classify(NET, NAN * IMAGE),
    "pixels as long": lambda: NET.preprocess(IMAGE.long()),
    "pixels as int16": lambda: NET.preprocess(np.zeros((28, 28), np.int16)),
    "five channels": lambda: NET.preprocess(torch.zeros(1, 5, 28, 28)),
    "an empty batch": lambda: NET.preprocess(torch.zeros(0, 1, 28, 28)),
    "an image without height": lambda: NET.preprocess(torch.zeros(1, 0, 28)),
    "a flat image": lambda: NET.preprocess(torch.zeros(784)),
    "unknown preprocessing": lambda: tc.classify(tc.build("demo/strokes-em"), IMAGE),
    "images of another size": lambda: NET(torch.zeros(1, 1, 32, 32)),
    "images without a batch": lambda: NET(IMAGE),
    "images as bytes": lambda: NET(IMAGE[None].byte()),
    "images in double": lambda: NET(IMAGE[None].double()),
    "scores that are NaN": lambda: tc.predict(NAN * SCORES),
    "more classes than there are": lambda: tc.predict(SCORES, top=11),
    "top and threshold": lambda: tc.predict(SCORES, top=1, threshold=0.5),
    "class numbers below zero": lambda: tc.margin_loss(SCORES, torch.tensor([0, -1])),
    "class numbers too large": lambda: tc.cross_entropy_loss(SCORES, torch.tensor([0, 10])),
    "probabilities above one": lambda: tc.cross_entropy_loss(SCORES, 7 * torch.ones(2, 10)),
    "a margin in words": lambda: tc.spread_loss(
        SCORES, torch.tensor([0, 1]), margin=cast(Any, "wide")
    ),
    "scores without classes": lambda: tc.predict(torch.zeros(2, 0)),
    "no pretrained weights": lambda: tc.build("hinton2018/smallnorb", pretrained=True),
    "images too small": lambda: tc.build("sabour2017/mnist", image_shape=(1, 5, 5)),
    "a definition to come": lambda: tc.build("sabour2017/mnist", definition=9),
    "iterations of what has none": lambda: tc.build("zhao2020/cifar10", iterations=3),
    "networks of other classes": lambda: tc.Ensemble([NET, tc.build("zhao2020/smallnorb")]),
    "networks of other images": lambda: tc.Ensemble([NET, tc.build("zhao2020/cifar10")]),
    "class names too few": lambda: tc.save(NET, "network.safetensors", classes=("a",)),
    "a folder as a file": lambda: tc.save(NET, "/"),
    "a folder that is missing": lambda: tc.Network.from_pretrained("./nothing-here"),
    "features of other channels": lambda: HEAD(torch.zeros(2, 8, 4, 4)),
    "features as integers": lambda: HEAD(torch.zeros(2, 16, 4, 4).long()),
    "a routing by name": lambda: tc.CapsuleHead(16, n_classes=3, routing=cast(Any, "em")),
    "a split that is missing": lambda: tc.data.load("strokes", "tset"),
    "a deviation of zero": lambda: tc.data.Normalize((0.5,), (0.0,)),
    "a setting in words": lambda: get("demo/strokes-em").override(epochs="5"),
    "a seed in words": lambda: TrainOptions(seed=cast(Any, "three")),
    "one checkpoint": lambda: TrainOptions(keep=0),
    "checkpoints before the start": lambda: TrainOptions(save_every=-1),
}


def refuse(attempt: Callable[[], object]) -> None:
    """Expect one sentence in a ValueError or a missing file."""
    with pytest.raises((ValueError, FileNotFoundError)) as caught:
        attempt()
    message = str(caught.value)
    assert message.strip()
    assert "\n" not in message
    assert " object has no attribute" not in message


@pytest.mark.parametrize("case", mark_slow_except(list(CASES), *list(CASES)[::10]))
def test_a_value_of_no_use_is_refused(case: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    take, value = CASES[case]
    refuse(lambda: take(value))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("case", OTHERS)
def test_what_cannot_be_meant_is_refused(case: str, tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    refuse(OTHERS[case])
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("call", "most"),
    [
        (lambda: tc.build("demo/strokes-dynamic", n_classes=10**12), "at most 100,000 classes"),
        (
            lambda: tc.build("demo/strokes-em", image_shape=(1, 10**9, 28)),
            "at most 4,096 in each axis",
        ),
        (lambda: tc.data.Strokes(size=10**9), "size must be at most 4096"),
        (lambda: tc.data.Waveforms(length=10**9), "length must be at most 4096"),
    ],
)
def test_absurd_sizes_are_refused_by_a_limit(call: Callable[[], object], most: str) -> None:
    with pytest.raises(ValueError, match=most):
        call()


def test_a_network_that_does_not_fit_into_memory_is_refused() -> None:
    with pytest.raises(ValueError, match=r"100,000 classes and images .* does not fit into memory"):
        tc.build("sabour2017/cifar10", n_classes=100_000, image_shape=(3, 4096, 4096))
