"""Data sets that are indexed, and loaded by a `DataLoader`."""

import pytest
import torch
from torch import Tensor
from torch.utils.data import ConcatDataset, DataLoader, Subset, random_split

from helpers.data.batches import image_set
from torchcaps.data import Batches, ImageSet, MultiMNIST, Strokes
from torchcaps.data.dataset import Samples
from torchcaps.preprocessing.steps import as_float


def test_an_index_gives_an_image_in_0_to_1_and_its_label() -> None:
    data = image_set(20)
    image, label = data[3]
    assert torch.equal(image, as_float(data.images[3]))
    assert int(label) == int(data.labels[3])
    assert torch.equal(data[-1][0], data[19][0])
    with pytest.raises(IndexError, match="20 samples"):
        data[20]
    with pytest.raises(IndexError, match="20 samples"):
        data[-21]


@pytest.mark.parametrize("data", [image_set(20), Strokes(20), Strokes(20, overlapping=True)])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_gives_the_batches_of_the_set(data: Samples, workers: int) -> None:
    loader = DataLoader(data, batch_size=8, num_workers=workers)
    for (images, labels), batch in zip(loader, Batches(data, 8, shuffled=False), strict=True):
        assert torch.equal(images, batch.images)
        assert torch.equal(labels, batch.labels)


def test_samples_that_are_drawn_are_those_of_the_fixed_draw() -> None:
    digits = image_set(20, channels=1)
    pairs = MultiMNIST(digits)
    image, labels = pairs[7]
    assert torch.equal(image, as_float(pairs.images[7]))
    assert torch.equal(labels, pairs.labels[7])


def test_sets_are_divided_and_joined_as_other_data_sets_are() -> None:
    data: ImageSet = image_set(20)
    first, second = random_split(data, [5, 15], generator=torch.Generator().manual_seed(0))
    joined: ConcatDataset[tuple[Tensor, Tensor]] = ConcatDataset([first, second, Subset(data, [0])])
    images, labels = next(iter(DataLoader(joined, batch_size=21)))
    assert images.shape == (21, *data.images.shape[1:])
    assert sorted(labels[:20].tolist()) == sorted(data.labels.tolist())
