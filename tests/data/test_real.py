"""The published files, where TORCHCAPS_DATA has them: counts, balance, statistics, hashes."""

import hashlib
import os
from pathlib import Path

import pytest
import torch

from torchcaps.data import SETS, ImageSet, load

FOLDER = os.environ.get("TORCHCAPS_DATA", "")
FIRST = {
    ("mnist", "train"): (5, "23ceaef5eb61f0e7"),
    ("mnist", "test"): (7, "8f6a418c9a639f9e"),
    ("fashion_mnist", "train"): (9, "5bd44e331a6d6998"),
    ("fashion_mnist", "test"): (9, "ffc7351ed0f8bae5"),
    ("cifar10", "train"): (6, "e052de7deb775f78"),
    ("cifar10", "test"): (3, "73eefb0106f2b7a2"),
}
BALANCE = {
    ("mnist", "train"): [5923, 6742, 5958, 6131, 5842, 5421, 5918, 6265, 5851, 5949],
    ("mnist", "test"): [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009],
}


def real(name: str, split: str) -> ImageSet:
    first = SETS[name].files[split if split == "test" else "train"][0]
    if not FOLDER or not any((Path(FOLDER) / path).is_file() for path in first.paths):
        pytest.skip(f"{name} is not in the folder TORCHCAPS_DATA names ({FOLDER or 'unset'})")
    loaded = load(name, split, root=FOLDER, download=False)
    assert isinstance(loaded, ImageSet)
    return loaded


REAL = ("mnist", "fashion_mnist", "cifar10")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("name", REAL)
def test_counts_shapes_balance_and_first_image(name: str, split: str) -> None:
    loaded = real(name, split)
    entry = SETS[name]
    assert loaded.images.shape == (entry.counts[split], *entry.shape)
    assert loaded.images.dtype == torch.uint8
    assert loaded.labels.dtype == torch.long
    counts = torch.bincount(loaded.labels).tolist()
    assert counts == BALANCE.get((name, split), [entry.counts[split] // 10] * 10)
    digest = hashlib.sha256(loaded.images[0].numpy().tobytes()).hexdigest()
    assert (loaded.labels[0].item(), digest[:16]) == FIRST[name, split]


@pytest.mark.parametrize("name", REAL)
def test_channel_statistics_are_the_published_ones(name: str) -> None:
    mean, std = real(name, "train").statistics()
    assert tuple(round(float(value), 4) for value in mean) == SETS[name].mean
    assert tuple(round(float(value), 4) for value in std) == SETS[name].std


@pytest.mark.parametrize("name", REAL)
def test_fit_validation_and_test_share_no_image(name: str) -> None:
    parts = {split: real(name, split) for split in ("fit", "validation", "test")}
    hashes = {
        split: {hashlib.sha256(image.numpy().tobytes()).digest() for image in part.images}
        for split, part in parts.items()
    }
    assert not set(parts["fit"].indices.tolist()) & set(parts["validation"].indices.tolist())
    assert len(parts["fit"]) + len(parts["validation"]) == SETS[name].counts["train"]
    # the published sets repeat a handful of images themselves
    assert len(hashes["fit"] & hashes["validation"]) < 20
    assert len(hashes["fit"] & hashes["test"]) < 20


@pytest.mark.parametrize(
    "name", ["multimnist", "diverse_multimnist", "expanded_mnist", "affnist_style"]
)
def test_sets_made_from_mnist_have_the_stated_statistics(name: str) -> None:
    real("mnist", "train")
    made = load(name, root=FOLDER)
    labels = torch.zeros(len(made), dtype=torch.long)
    mean, std = ImageSet(made.images, labels, made.classes).statistics()
    assert round(float(mean), 4) == SETS[name].mean[0]
    assert round(float(std), 4) == SETS[name].std[0]
