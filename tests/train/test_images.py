"""The images of a recipe, drawn as its settings ask."""

from typing import Any

import pytest
import torch

from torchcaps.data import AffnistStyle, ExpandedMNIST, ImageSet, MultiMNIST
from torchcaps.recipes import get
from torchcaps.train import images as module
from torchcaps.train.images import load_sources

CPU = torch.device("cpu")


def digits(split: str = "train", count: int = 20) -> ImageSet:
    drawn = torch.full((count, 1, 28, 28), 255, dtype=torch.uint8)
    labels, classes = torch.arange(count) % 10, tuple("0123456789")
    return ImageSet(drawn, labels, classes, name="mnist", split=split)


def test_the_shift_of_multimnist_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:

    def load(name: str, *_: Any, **__: Any) -> ImageSet | MultiMNIST:
        return MultiMNIST(digits()) if name == "multimnist" else digits()

    monkeypatch.setattr(module, "load", load)
    recipe = get("sabour2017/multimnist")
    for shift, used in ((None, 4), (0, 0), (6, 6)):
        asked = recipe if shift is None else recipe.override(shift=shift)
        sources = load_sources(asked, root=None, own_folder=None, device=CPU)
        for source in (sources.train, sources.test):
            assert isinstance(source, MultiMNIST)
            assert source.shift == used
    with pytest.raises(ValueError, match="shift is for MultiMNIST and expanded MNIST, and sab"):
        load_sources(
            get("sabour2017/mnist").override(shift=2), root=None, own_folder=None, device=CPU
        )


def test_affnist_of_choi_trains_on_all_digits_and_chooses_on_affnists_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts = {"train": 20, "fit": 18, "validation": 2, "test": 10}

    def load(name: str, split: str, **_: Any) -> ExpandedMNIST | AffnistStyle:
        part = digits(split, counts[split])
        return ExpandedMNIST(part) if name == "expanded_mnist" else AffnistStyle(part)

    monkeypatch.setattr(module, "load", load)
    sources = load_sources(get("choi2019/affnist-style"), root=None, own_folder=None, device=CPU)
    assert isinstance(sources.train, ExpandedMNIST)
    assert len(sources.train) == 20
    assert sources.train.shift == 8
    assert isinstance(sources.validation, AffnistStyle)
    assert sources.validation.split == "validation"
    assert isinstance(sources.test, AffnistStyle)
    assert sources.test_draws == 32
