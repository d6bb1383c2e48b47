"""Every routing learns real MNIST, in small networks and a few hundred steps."""

from dataclasses import replace
from pathlib import Path

import pytest

from helpers.repetitions import mark_slow_except
from torchcaps.data import missing_files
from torchcaps.recipes import get
from torchcaps.train import TrainOptions, train

STEPS = {
    "dynamic": 600,
    "em": 400,
    "inverted-attention": 400,
    "attention": 600,
    "pairwise": 400,
    "discriminative": 400,
}


@pytest.mark.skipif(bool(missing_files("mnist")), reason="no MNIST in the data folder")
@pytest.mark.parametrize("routing", mark_slow_except(STEPS, "discriminative"))
def test_every_routing_learns_mnist(routing: str, tmp_path: Path) -> None:
    recipe = get(f"demo/strokes-{routing}")
    recipe = replace(recipe, dataset="mnist", limit=STEPS[routing] * recipe.batch_size)
    row = train(recipe, TrainOptions(out=tmp_path, device="cpu", tensorboard=False))
    assert row.test is not None
    assert row.test >= (95 if routing == "em" else 97)
