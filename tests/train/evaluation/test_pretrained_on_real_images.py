"""Pretrained networks reach their rows on real images given raw, where TORCHCAPS_DATA has them."""

import json
import os
from pathlib import Path

import pytest
import torch
from PIL import Image

import torchcaps as tc
from helpers.commands import invoke
from helpers.repetitions import mark_slow_except
from torchcaps.data import Batch, Batches, Draws, load
from torchcaps.data.augment import as_float
from torchcaps.errors import MissingFileError
from torchcaps.models.weights.pretrained import facts, shipped
from torchcaps.recipes import get
from torchcaps.train.evaluation.score import right, targets_of

FOLDER = os.environ.get("TORCHCAPS_DATA", "")
COUNT = 1000


def real(name: str) -> Batch:
    """Every n-th image of a recipe's test set, 1,000 in all, before any transform."""
    if not FOLDER:
        pytest.skip("TORCHCAPS_DATA names no data folder")
    recipe = get(name)
    try:
        source = load(recipe.test_dataset or recipe.dataset, "test", root=FOLDER, download=False)
    except MissingFileError:
        pytest.skip(f"{recipe.dataset} is not in the folder TORCHCAPS_DATA names ({FOLDER})")
    step = len(source) // COUNT
    return Batches(source, COUNT, shuffled=False).batch(torch.arange(0, COUNT * step, step))


def accuracy(name: str, scores: torch.Tensor, batch: Batch) -> float:
    targets = targets_of(batch, scores.shape[1])
    return 100 * float(right(scores, targets, get(name).measure).float().mean())


def is_near(score: float, name: str) -> bool:
    """Return whether the accuracy on 1,000 images is within three standard errors of the row's."""
    row: float = facts()[name]["test"] / 100
    return bool(abs(score - 100 * row) <= 300 * (row * (1 - row) / COUNT) ** 0.5)


@pytest.mark.parametrize("name", mark_slow_except(shipped(), "zhao2020/cifar10-modern"))
def test_a_network_reaches_its_row_on_raw_images(name: str) -> None:
    batch, network = real(name), tc.build(name, pretrained=True).eval()
    draws = Draws(0, batch.indices)
    seen = (batch.images * 255).round().byte()
    for transform in get(name).test_transforms:
        seen = transform(seen, draws)
    from_bytes = network.preprocess((batch.images * 255).round().byte())
    assert torch.equal(from_bytes, as_float(seen))
    from_floats = network.preprocess(batch.images)
    torch.testing.assert_close(from_floats, from_bytes, rtol=1e-4, atol=1e-4)
    with torch.no_grad():
        scores = torch.cat([network(part).scores for part in from_floats.split(100)])
    assert is_near(accuracy(name, scores, batch), name)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tsai2020/cifar10-resnet-modern", "sabour2017/mnist-modern"])
def test_a_network_reaches_its_row_on_png_files(name: str, tmp_path: Path) -> None:
    batch = real(name)
    paths = [tmp_path / f"{number}.png" for number in range(COUNT)]
    for path, image in zip(paths, (batch.images * 255).round().byte(), strict=True):
        Image.fromarray(image.permute(1, 2, 0).squeeze(-1).numpy()).save(path)
    result = invoke("predict", name, *paths, "--json", "--device", "cpu")
    assert result.exit_code == 0, result.output
    labels = torch.tensor([row["labels"][0] for row in json.loads(result.stdout)])
    score = 100 * float((labels == batch.labels).float().mean())
    assert is_near(score, name)
