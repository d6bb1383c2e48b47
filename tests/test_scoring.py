"""Sets that are drawn can be scored on more than one draw."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from commands import invoke, one_sentence
from torchcaps.capsules import Output
from torchcaps.data import ImageSet, MultiMNIST
from torchcaps.train.evaluate import score
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
