"""The images of a recipe, drawn as its settings ask."""

from typing import Any

import pytest
import torch

from torchcaps.data import ImageSet, MultiMNIST
from torchcaps.recipes import get
from torchcaps.train import images as module
from torchcaps.train.images import load_sources

CPU = torch.device("cpu")


def test_the_shift_of_multimnist_follows_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn = torch.full((20, 1, 28, 28), 255, dtype=torch.uint8)
    labels, classes = torch.arange(20) % 10, tuple("0123456789")
    digits = ImageSet(drawn, labels, classes, name="mnist", split="train")

    def load(name: str, *_: Any, **__: Any) -> ImageSet | MultiMNIST:
        return MultiMNIST(digits) if name == "multimnist" else digits

    monkeypatch.setattr(module, "load", load)
    recipe = get("sabour2017/multimnist")
    for shift, used in ((None, 4), (0, 0), (6, 6)):
        asked = recipe if shift is None else recipe.override(shift=shift)
        sources = load_sources(asked, root=None, own=None, device=CPU)
        for source in (sources.train, sources.test):
            assert isinstance(source, MultiMNIST)
            assert source.shift == used
    with pytest.raises(ValueError, match="shift is for MultiMNIST, and sabour2017/mnist uses"):
        load_sources(get("sabour2017/mnist").override(shift=2), root=None, own=None, device=CPU)
