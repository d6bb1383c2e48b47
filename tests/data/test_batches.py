"""Random numbers and batches."""

from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from typing import cast

import pytest
import torch
from hypothesis import given, settings, strategies as st
from torch import Tensor
from torch.utils.data import DataLoader

from helpers.data.batches import ALL, draws, image_set, random_images
from helpers.processes import run_python
from torchcaps.data import (
    Affine,
    Batches,
    CenterCrop,
    Contrast,
    Crop,
    Flip,
    ImageSet,
    Normalize,
    PadCrop,
    Shift,
    Strokes,
    TorchDataset,
    Transform,
)
from torchcaps.data.random import Draws, shuffled, stream_key


def test_random_numbers_are_uniform_and_unrelated_between_draws_samples_and_keys() -> None:
    numbers = draws(100_000).uniform(0, 1, 4)
    assert numbers.min() >= 0
    assert numbers.max() < 1
    counts = torch.histc(numbers.flatten(), 64, 0, 1)
    expected = numbers.numel() / 64
    chi2 = float(((counts - expected) ** 2 / expected).sum())
    assert 30 < chi2 < 110  # 63 degrees of freedom: 1 in 10,000 outside
    other = Draws(stream_key(0, 1), torch.arange(100_000)).uniform()
    rows = torch.cat([numbers, numbers[:1].roll(1, 1), other]) - 0.5
    correlation = torch.corrcoef(rows) - torch.eye(6)
    assert correlation.abs().max() < 0.02


@given(st.integers(1, 1000), st.integers(0, 2**63))
@settings(deadline=None)
def test_integers_stay_below_their_bound(bound: int, seed: int) -> None:
    values = draws(500, seed).integers(bound, 3)
    assert values.shape == (3, 500)
    assert int(values.min()) >= 0
    assert int(values.max()) < bound


def test_keys_differ_for_every_seed_epoch_and_purpose() -> None:
    keys = {
        stream_key(seed, epoch, purpose)
        for seed in (0, 1, 2, -1, 1 << 32, 1 << 63)
        for epoch in range(50)
        for purpose in ("", "a", "b", "ab")
    }
    assert len(keys) == 6 * 50 * 4


@given(st.integers(0, 300), st.integers(0, 100))
@settings(deadline=None)
def test_a_shuffle_is_a_permutation(count: int, seed: int) -> None:
    order = shuffled(count, stream_key(seed))
    assert order.sort().values.tolist() == list(range(count))


def test_shuffles_of_three_are_equally_frequent() -> None:
    seen = [tuple(shuffled(3, stream_key(seed)).tolist()) for seed in range(3000)]
    for order in set(seen):
        assert 400 < seen.count(order) < 600
    assert len(set(seen)) == 6


def test_the_first_numbers_are_pinned() -> None:
    # a change here changes every published result that used a seed
    assert Draws(stream_key(0), torch.arange(3)).bits(2).tolist() == [
        [1810869290, 2602404972, 1660114790],
        [2386149665, 2803499513, 3509357269],
    ]


@given(st.integers(1, 120), st.integers(0, 3), st.booleans())
@settings(max_examples=30, deadline=None)
def test_batch_size_changes_neither_the_samples_nor_their_augmentation(
    batch_size: int, epoch: int, drop_last: bool
) -> None:
    data = image_set()
    whole = next(Batches(data, 100, transforms=ALL, seed=3).epoch(epoch))
    batches = Batches(data, batch_size, transforms=ALL, seed=3, drop_last=drop_last)
    parts = list(batches.epoch(epoch))
    assert len(parts) == len(batches)
    if not parts:
        assert drop_last
        return
    indices = torch.cat([part.indices for part in parts])
    images = torch.cat([part.images for part in parts])
    assert torch.equal(indices, whole.indices[: len(indices)])
    assert torch.allclose(images, whole.images[: len(images)], atol=1e-5)
    if not drop_last:
        assert indices.sort().values.tolist() == list(range(100))


def test_the_order_and_the_augmentation_change_with_seed_and_epoch_only() -> None:
    data = image_set()

    def first(seed: int, epoch: int) -> Tensor:
        return next(Batches(data, 100, transforms=(PadCrop(2),), seed=seed).epoch(epoch)).images

    assert torch.equal(first(1, 2), first(1, 2))
    assert not torch.equal(first(1, 2), first(1, 3))
    assert not torch.equal(first(1, 2), first(2, 2))


def test_the_same_seed_gives_the_same_batch_in_another_process() -> None:
    script = (
        "import torch, hashlib\n"
        "from torchcaps.data import Batches, Flip, ImageSet, PadCrop\n"
        "images = torch.arange(4800).reshape(100, 3, 4, 4).to(torch.uint8)\n"
        "data = ImageSet(images, torch.arange(100), tuple(map(str, range(100))))\n"
        "batch = next(Batches(data, 64, transforms=[PadCrop(1), Flip()], seed=9).epoch(5))\n"
        "print(hashlib.sha256(batch.images.numpy().tobytes()).hexdigest())\n"
    )
    with redirect_stdout(StringIO()) as here:
        exec(script)
    assert run_python("-c", script) == here.getvalue()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader_gives_the_same_samples_with_any_number_of_workers(workers: int) -> None:
    batches = Batches(image_set(40), 8, transforms=(PadCrop(2), Flip()), seed=4, shuffled=False)
    dataset = TorchDataset(batches)
    dataset.epoch = 2
    loader = DataLoader(dataset, batch_size=16, num_workers=workers)
    parts = list(loader)
    images = torch.cat([cast("Tensor", part[0]) for part in parts])
    labels = torch.cat([cast("Tensor", part[1]) for part in parts])
    expected = list(batches.epoch(2))
    assert torch.equal(images, torch.cat([batch.images for batch in expected]))
    assert torch.equal(labels, torch.cat([batch.labels for batch in expected]))
    assert dataset[3][1] == labels[3]
    with pytest.raises(IndexError, match="40 samples"):
        dataset[40]


def test_workers_that_live_on_see_the_next_epoch() -> None:
    batches = Batches(image_set(20), 20, transforms=(PadCrop(2), Flip()), shuffled=False)
    dataset = TorchDataset(batches)
    loader = DataLoader(dataset, batch_size=20, num_workers=1, persistent_workers=True)
    for epoch in (0, 1, 5):
        dataset.epoch = epoch
        assert dataset.epoch == epoch
        (part,) = list(loader)
        assert torch.equal(part[0], next(batches.epoch(epoch)).images)


def test_a_data_loader_gives_the_annotations_asked_for() -> None:
    batches = Batches(Strokes(12), 12, shuffled=False)
    dataset = TorchDataset(batches, annotations=["pose", "mask"])
    (part,) = list(DataLoader(dataset, batch_size=12, num_workers=1))
    expected = next(batches.epoch(0))
    for given_column, column in zip(
        part,
        (
            expected.images,
            expected.labels,
            expected.annotations["pose"],
            expected.annotations["mask"],
        ),
        strict=True,
    ):
        assert torch.equal(given_column, column)
    with pytest.raises(ValueError, match="no annotation 'poses'; the set has pose, glyph"):
        TorchDataset(batches, annotations=["poses"])


def test_a_data_loader_of_each_shard_has_its_own_samples() -> None:
    data = ImageSet(
        torch.zeros(11, 1, 1, 1, dtype=torch.uint8), torch.arange(11), tuple("0123456789A")
    )
    parts = [TorchDataset(Batches(data, 4, shard=(rank, 3))) for rank in range(3)]
    labels = [[int(part[k][1]) for k in range(len(part))] for part in parts]
    assert labels == [[0, 3, 6, 9], [1, 4, 7, 10], [2, 5, 8]]
    with pytest.raises(IndexError, match="3 samples"):
        parts[2][3]


REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "shift below 0": (lambda: Shift(-1), "pixels must be at least 0, not -1"),
    "shift by half": (lambda: Shift(cast("int", 1.5)), "pixels must be a whole number, not 1.5"),
    "pad below 0": (lambda: PadCrop(-1), "padding must be at least 0"),
    "crop to 0": (lambda: Crop(0), "size must be at least 1"),
    "center to 0": (lambda: CenterCrop(0), "size must be at least 1"),
    "flip 7": (lambda: Flip(7), "probability must be a probability, not 7"),
    "scale 0": (lambda: Affine(scale=(0, 0)), "scale must be 0.001 <= low <= high"),
    "scale one number": (lambda: Affine(scale=cast("tuple[float, float]", 2)), "scale must be"),
    "contrast in disorder": (lambda: Contrast(2, 1), "low and high must be"),
    "normalize by nothing": (lambda: Normalize((), ()), "one number per channel"),
    "normalize by numbers": (lambda: Normalize(cast("list[float]", 0.5), [1]), "one number per"),
    "batch of 8.5": (lambda: Batches(image_set(), cast("int", 8.5)), "batch_size must be a whole"),
    "seed a": (lambda: Batches(image_set(), 8, seed=cast("int", "a")), "seed must be a whole"),
    "one transform": (
        lambda: Batches(image_set(), 8, transforms=cast("list[Transform]", Shift(2))),
        r"transforms must be a list such as \[Shift\(2\)\], not Shift\(pixels=2\)",
    ),
    "labels beyond the classes": (
        lambda: ImageSet(random_images(3), torch.arange(3), ("a", "b")),
        r"labels must be in 0\.\.1, one per class name, got 0\.\.2",
    ),
    "labels below 0": (
        lambda: ImageSet(random_images(3), torch.arange(3) - 1, tuple("abc")),
        r"got -1\.\.1",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_impossible_arguments_are_refused_in_one_sentence(name: str) -> None:
    make, reason = REFUSED[name]
    with pytest.raises(ValueError, match=reason) as caught:
        make()
    assert "\n" not in str(caught.value)


def test_shards_divide_an_epoch() -> None:
    data = image_set(101)
    whole = Batches(data, 10).order(3)
    parts = [Batches(data, 10, shard=(rank, 4)).order(3) for rank in range(4)]
    assert torch.equal(torch.cat(parts).sort().values, whole.sort().values)
    with pytest.raises(ValueError, match="rank below world"):
        Batches(data, 10, shard=(4, 4))
    with pytest.raises(ValueError, match="batch_size"):
        Batches(data, 0)


def test_batches_carry_annotations_and_unaugmented_pixels_are_0_to_1() -> None:
    data = image_set(10)
    noted = ImageSet(
        data.images, data.labels, data.classes, annotations={"azimuth": torch.arange(10) * 2}
    )
    batch = next(iter(Batches(noted, 10)))
    assert torch.equal(batch.annotations["azimuth"], batch.indices * 2)
    torch.testing.assert_close(batch.images, data.images[batch.indices].float() / 255)
    assert batch.images.max() <= 1


def test_resizing_averages_and_stays_bytes() -> None:
    data = image_set(3, 2, 96)
    small = data.resize(48, 48)
    assert small.images.shape == (3, 2, 48, 48)
    assert small.images.dtype == torch.uint8
    blocks = data.images.float().unfold(2, 2, 2).unfold(3, 2, 2).mean((-2, -1))
    # the antialiasing filter is wider than a block: alike, not equal
    assert (
        float(torch.corrcoef(torch.stack([blocks.flatten(), small.images.float().flatten()]))[0, 1])
        > 0.8
    )


@pytest.mark.parametrize("transforms", [ALL, (Shift(1), Normalize((0.5,) * 3, (0.2,) * 3))])
def test_the_pipeline_compiles_whole(transforms: tuple[Transform, ...]) -> None:
    batches = Batches(image_set(), 16, transforms=transforms, seed=1)
    step = torch.compile(
        lambda samples: batches.batch(samples, 1).images, fullgraph=True, backend="aot_eager"
    )
    samples = torch.arange(16)
    assert torch.allclose(step(samples), batches.batch(samples, 1).images, atol=1e-5)


def test_no_batch_waits_for_the_device() -> None:
    # reading any value of a meta tensor is an error
    data = image_set(100).to("meta")
    cuts = (Shift(1), Crop(10), CenterCrop(8))
    transforms: tuple[Transform, ...] = (*ALL, *cuts, Normalize((0.5,) * 3, (0.2,) * 3))
    shapes = [batch.images.shape for batch in Batches(data, 32, transforms=transforms).epoch(1)]
    assert shapes == [(32, 3, 8, 8)] * 3 + [(4, 3, 8, 8)]
    dropped = Batches(data, 32, transforms=transforms, drop_last=True)
    assert [batch.images.shape[0] for batch in dropped.epoch(1)] == [32] * 3


def test_few_and_many_numbers_at_once_are_the_same_numbers() -> None:
    many = draws(50).bits(20)
    one_by_one = draws(50)
    assert torch.equal(many, torch.cat([one_by_one.bits(1) for _ in range(20)]))
