"""Sets that are drawn can be scored on more than one draw."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from helpers.commands import invoke, one_sentence
from torchcaps.capsules import Output
from torchcaps.data import ImageSet, MultiMNIST
from torchcaps.errors import UsageError
from torchcaps.recipes import get
from torchcaps.train import TrainOptions, train
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.evaluation.score import score
from torchcaps.train.process import Process

CPU = torch.device("cpu")


def test_every_draw_is_of_other_pairs_and_counts() -> None:
    pixels = torch.arange(40 * 28 * 28).mul(7).remainder(256).byte().view(40, 1, 28, 28)
    digits = ImageSet(pixels, torch.arange(40) % 10, tuple("0123456789"))
    seen: list[Tensor] = []

    def network(images: Tensor) -> Output:
        seen.append(images)
        return Output(torch.arange(10.0).expand(len(images), 10))

    source = MultiMNIST(digits)
    process = Process(CPU)
    once = score(network, source, measure="top2", n_classes=10, process=process)
    assert (once.images, len(seen)) == (40, 1)
    thrice = score(network, source, measure="top2", n_classes=10, process=process, draws=3)
    assert (thrice.images, len(seen)) == (120, 4)
    first, same, *others = seen
    assert torch.equal(first, same)
    assert not any(torch.equal(first, other) for other in others)
    assert not torch.equal(*others)


def test_images_that_never_change_are_drawn_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    few = ["--set", "limit=64", "--set", "test_limit=50", "--set", "epochs=1", "--device", "cpu"]
    invoke("train", "demo/strokes-pairwise", *few, "--no-tensorboard", "--out", "run")
    said = one_sentence(invoke("evaluate", "run", "--device", "cpu", "--draws", "2"), 2)
    assert "Strokes" in said
    assert "is the same whenever it is drawn: leave out --draws" in said


def test_pairs_are_drawn_as_often_as_the_recipe_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels = torch.arange(40 * 28 * 28).mul(7).remainder(256).byte().view(40, 1, 28, 28)
    digits = ImageSet(pixels, torch.arange(40) % 10, tuple("0123456789"))
    monkeypatch.setattr("torchcaps.train.images.load", lambda *_, **__: MultiMNIST(digits))
    few = {"limit": 16, "batch_size": 8, "epochs": 1}
    recipe = get("zhao2020/multimnist")
    for name, changes, images in (("ten", few, 400), ("two", {**few, "test_draws": 2}, 80)):
        changed = recipe.override(**changes)
        row = train(changed, TrainOptions(out=tmp_path / name, device="cpu", tensorboard=False))
        assert ("test_draws" in row.modified) == (name == "two")
        (found,) = evaluate_files([tmp_path / name], device="cpu").values()
        assert (found["images"], found["percent"]) == (images, row.test)
    place = [tmp_path / "ten"]
    asked: list[tuple[dict[str, Any], int]] = [({"draws": 3}, 120), ({"split": "validation"}, 40)]
    for words, images in asked:
        (found,) = evaluate_files(place, device="cpu", **words).values()
        assert found["images"] == images


def test_draws_of_images_that_never_change_are_refused(tmp_path: Path) -> None:
    recipe = get("demo/strokes-pairwise").override(limit=64, test_draws=2)
    with pytest.raises(UsageError, match="drawn once: leave out test_draws"):
        train(recipe, TrainOptions(out=tmp_path, device="cpu"))
