"""Batches and generated images on a GPU are those of the CPU."""

from collections.abc import Callable

import pytest
import torch

from helpers.data.batches import ALL, image_set
from torchcaps.data import (
    AffnistStyle,
    Batches,
    Crop,
    DiverseMultiMNIST,
    ExpandedMNIST,
    Flip,
    ImageSet,
    MultiMNIST,
    PadCrop,
    Strokes,
)
from torchcaps.data.generated import Generated

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


def test_cuda_gives_the_batches_of_the_cpu() -> None:
    data = image_set(1000)
    exact = (PadCrop(2), Flip(), Crop(8))
    for transforms, tolerance in ((exact, 0.0), (ALL, 1e-3)):
        here = list(Batches(data, 256, transforms=transforms, seed=5).epoch(1))
        there = list(Batches(data.to("cuda"), 256, transforms=transforms, seed=5).epoch(1))
        for a, b in zip(here, there, strict=True):
            assert torch.equal(a.indices, b.indices.cpu())
            assert torch.allclose(a.images, b.images.cpu(), atol=tolerance, rtol=0)


def test_cuda_draws_what_the_cpu_does() -> None:
    here = next(Batches(Strokes(400), 400, shuffled=False).epoch(0))
    there = Batches(Strokes(400, device="cuda"), 400, shuffled=False).batch(
        torch.arange(400, device="cuda")
    )
    assert torch.equal(here.labels, there.labels.cpu())
    assert torch.allclose(here.images, there.images.cpu(), atol=2 / 255)


@pytest.mark.parametrize("make", [MultiMNIST, DiverseMultiMNIST, ExpandedMNIST, AffnistStyle])
def test_cuda_generates_what_the_cpu_does(make: Callable[[ImageSet], Generated]) -> None:
    drawn = Strokes(600)
    source = make(ImageSet(drawn.images, drawn.labels, drawn.classes))
    sources = (source, source.to("cuda"))
    here, there = (next(Batches(s, len(s), shuffled=False).epoch(1)) for s in sources)
    assert torch.equal(here.labels, there.labels.cpu())
    tolerance = 1.5 / 255 if make is AffnistStyle else 0.0
    assert torch.allclose(here.images, there.images.cpu(), atol=tolerance, rtol=0)
