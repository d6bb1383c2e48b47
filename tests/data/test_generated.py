"""MultiMNIST and its relatives, made from strokes so that no file is needed."""

from collections import Counter
from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from torchcaps.data import (
    AffnistStyle,
    Batch,
    Batches,
    DiverseMultiMNIST,
    ExpandedMNIST,
    ImageSet,
    MultiMNIST,
    Strokes,
    TorchDataset,
)
from torchcaps.data.generated import Generated, place

Make = Callable[[ImageSet], Generated]


@cache
def digits(split: str = "train", count: int = 600) -> ImageSet:
    drawn = Strokes(count, split=split)
    return ImageSet(drawn.images, drawn.labels, drawn.classes, split=split)


def epoch(source: Generated, number: int = 0, seed: int = 0) -> Batch:
    return next(Batches(source, len(source), shuffled=False, seed=seed).epoch(number))


def bytes_of(images: Tensor) -> Tensor:
    return (images * 255).round().to(torch.uint8)


def find(canvas: Tensor, image: Tensor) -> list[tuple[int, int]]:
    """Every place of the canvas where the image lies and nothing else is."""
    size, side = image.shape[-1], canvas.shape[-1]
    places = []
    for top in range(side - size + 1):
        for left in range(side - size + 1):
            window = canvas[top : top + size, left : left + size]
            if torch.equal(window, image) and int(canvas.long().sum()) == int(image.long().sum()):
                places.append((top, left))
    return places


def test_multimnist_is_the_clipped_sum_of_two_digits_of_different_classes() -> None:
    batch = epoch(MultiMNIST(digits()))
    assert batch.targets is not None
    assert batch.images.shape == (600, 1, 36, 36)
    assert batch.targets.shape == (600, 2, 1, 36, 36)
    assert bool((batch.labels[:, 0] != batch.labels[:, 1]).all())
    clipped = bytes_of(batch.targets).long().sum(1).clamp(max=255)
    assert torch.equal(bytes_of(batch.images).long(), clipped)


def test_multimnist_places_whole_digits_within_four_pixels() -> None:
    data = digits()
    batch = epoch(MultiMNIST(data))
    assert batch.targets is not None
    assert torch.equal(batch.labels[:, 0], data.labels)
    seen: Counter[tuple[int, int]] = Counter()
    for i in range(40):
        places = find(bytes_of(batch.targets[i, 0, 0]), data.images[i, 0])
        assert len(places) >= 1
        assert all(0 <= top <= 8 and 0 <= left <= 8 for top, left in places)
        seen.update(places)
    assert len(seen) > 25


def test_multimnist_partners_are_uniform_over_the_other_digits() -> None:
    labels = torch.tensor([0] * 10 + [1] * 30 + [2] * 60)
    images = torch.arange(100, dtype=torch.uint8)[:, None, None, None].expand(100, 1, 8, 8)
    data = ImageSet(images.contiguous() + 1, labels, tuple("012"))
    counts = torch.zeros(100)
    for number in range(300):
        targets = epoch(MultiMNIST(data, pad=0, shift=0), number).targets
        assert targets is not None
        counts += torch.bincount(bytes_of(targets[:, 1, 0, 0, 0]).long() - 1, minlength=100)
    # a digit of class c is a partner of each of the n - n_c others with probability 1/(n - n_c')
    share = [0.0, 0.0, 0.0]
    for first in (0, 1, 2):
        for other in (0, 1, 2):
            if first != other:
                share[other] += (10, 30, 60)[first] / (100 - (10, 30, 60)[first])
    expected = 300 * torch.tensor(share)[labels]
    assert float(((counts - expected) / expected.sqrt()).abs().max()) < 4.5


def test_train_and_test_digits_never_mix() -> None:
    train, test = digits("train"), digits("test")
    known = {image.numpy().tobytes() for image in train.images}
    unknown = {image.numpy().tobytes() for image in test.images}
    assert not known & unknown
    for data, own in ((train, known), (test, unknown)):
        targets = epoch(MultiMNIST(data, shift=0, pad=0)).targets
        assert targets is not None
        assert {image.numpy().tobytes() for image in bytes_of(targets).flatten(0, 1)} <= own


def test_both_digits_move_and_their_boxes_share_what_the_docstring_says() -> None:
    # the box of 20x20 that bounds a digit, in two classes
    images = torch.zeros(4000, 1, 28, 28, dtype=torch.uint8)
    images[:, :, 4:24, 4:24] = 255
    data = ImageSet(images, torch.arange(4000) % 2, ("0", "1"))
    for source in (MultiMNIST(data), MultiMNIST(data, pairs=1)):
        targets = source.targets
        assert targets is not None
        shared = (targets[:, 0] & targets[:, 1]).bool().float().sum((1, 2, 3)) / 400
        # a deviation of 0.14 over 4,000 pairs: a standard error of 0.002
        assert float(shared.mean()) == pytest.approx((1 - 80 / 27 / 20) ** 2, abs=0.01)
        assert float(shared.min()) < 0.45
        assert bool((targets.bool().sum((2, 3, 4)) == 400).all())


def test_the_fixed_protocol_has_its_pairs_for_every_digit_and_never_changes() -> None:
    data = digits()
    fixed = MultiMNIST(data, pairs=50)
    assert len(fixed) == 30_000
    batches = Batches(fixed, 50, shuffled=False)
    samples = torch.arange(7 * 50, 8 * 50)
    batch = batches.batch(samples, epoch=0)
    again = Batches(fixed, 50, seed=99).batch(samples, epoch=3)
    assert torch.equal(batch.images, again.images)
    assert batch.targets is not None
    assert bool((batch.labels[:, 0] == data.labels[7]).all())
    assert bool((batch.labels[:, 1] != data.labels[7]).all())
    base = batch.targets[:, 0].flatten(1)
    assert bool((base == base[0]).all())
    # shifts differ, so count partners by the digit itself
    plain = Batches(MultiMNIST(data, pairs=50, shift=0), 50).batch(samples)
    assert plain.targets is not None
    partners = {target.numpy().tobytes() for target in plain.targets[:, 1]}
    assert len(partners) == 50
    classes = torch.bincount(batch.labels[:, 1], minlength=10)
    assert int((classes > 0).sum()) == 9
    changed = Batches(MultiMNIST(data, pairs=50, seed=1), 50).batch(samples)
    assert not torch.equal(batch.images, changed.images)


def test_the_paper_protocol_has_sixty_million_samples_and_draws_any_of_them() -> None:
    images = torch.zeros(60_000, 1, 28, 28, dtype=torch.uint8)
    data = ImageSet(images, torch.arange(60_000) % 10, tuple("0123456789"))
    fixed = MultiMNIST(data, pairs=1000)
    assert len(fixed) == 60_000_000
    batch = Batches(fixed, 4).batch(torch.tensor([0, 12_345_678, 59_999_999]))
    assert batch.labels[:, 0].tolist() == [0, 12_345 % 10, 9]
    with pytest.raises(ValueError, match="in batches"):
        _ = fixed.images


def test_new_epochs_have_new_partners_on_the_fly() -> None:
    source = MultiMNIST(digits())
    assert torch.equal(epoch(source, 1).images, epoch(source, 1).images)
    assert not torch.equal(epoch(source, 1).images, epoch(source, 2).images)
    assert not torch.equal(epoch(source, 1).images, epoch(source, 1, seed=1).images)


def test_one_in_six_of_diverse_multimnist_is_a_single_digit() -> None:
    images = torch.full((60_000, 1, 2, 2), 200, dtype=torch.uint8)
    data = ImageSet(images, torch.arange(60_000) % 10, tuple("0123456789"))
    batch = epoch(DiverseMultiMNIST(data, pad=1, shift=1))
    single = batch.labels[:, 1] == -1
    share, error = float(single.float().mean()), (5 / 36 / 60_000) ** 0.5
    assert abs(share - 1 / 6) < 4 * error
    assert batch.targets is not None
    assert int(batch.targets[single, 1].sum()) == 0
    assert bool((batch.labels[~single, 0] != batch.labels[~single, 1]).all())
    hot = batch.multi_hot(10)
    assert torch.equal(hot.sum(1), torch.where(single, 1.0, 2.0))
    clipped = bytes_of(batch.targets).long().sum(1).clamp(max=255)
    assert torch.equal(bytes_of(batch.images).long(), clipped)


def test_the_mean_merge_dims_pairs_and_leaves_single_digits() -> None:
    batch = epoch(DiverseMultiMNIST(digits(), merge="mean"))
    single = batch.labels[:, 1] == -1
    assert 50 < int(single.sum()) < 150
    assert batch.targets is not None
    images, targets = bytes_of(batch.images).long(), bytes_of(batch.targets).long()
    assert torch.equal(images[single], targets[single, 0])
    assert torch.equal(images[~single], targets[~single].sum(1) // 2)


@pytest.mark.parametrize("shift", [0, 3, 8])
def test_expanded_digits_are_within_the_shift_of_the_middle(shift: int) -> None:
    dot = torch.zeros(200, 1, 28, 28, dtype=torch.uint8)
    dot[:, :, 14, 14] = 255  # row and column 20 in the middle of the canvas
    data = ImageSet(dot, torch.zeros(200, dtype=torch.long), ("0",))
    images = epoch(ExpandedMNIST(data, shift=shift)).images
    assert images.shape == (200, 1, 40, 40)
    _, _, rows, columns = (images > 0).nonzero(as_tuple=True)
    for places in (rows, columns):
        assert len(places) == 200
        assert int(places.min()) == 20 - shift
        assert int(places.max()) == 20 + shift


def test_expanded_digits_are_whole_and_anywhere() -> None:
    data = digits()
    batch = epoch(ExpandedMNIST(data))
    assert batch.images.shape == (600, 1, 40, 40)
    assert torch.equal(batch.labels, data.labels)
    images = bytes_of(batch.images)
    seen = {place for i in range(60) for place in find(images[i, 0], data.images[i, 0])}
    assert all(0 <= top <= 12 and 0 <= left <= 12 for top, left in seen)
    assert max(top for top, _ in seen) > 9
    assert min(left for _, left in seen) < 3


def test_affnist_style_keeps_the_ink_inside_and_to_its_ranges() -> None:
    data = digits()
    batch = epoch(AffnistStyle(data))
    assert batch.images.shape == (600, 1, 40, 40)
    before = data.images.float().sum((1, 2, 3)) / 255
    after = batch.images.sum((1, 2, 3))
    matrix = batch.annotations["affine"][:, :, :2]
    area = matrix[:, 0, 0] * matrix[:, 1, 1] - matrix[:, 0, 1] * matrix[:, 1, 0]
    # a map of determinant a makes a times as much ink if none is lost at the edge
    assert float((after / (before * area)).sub(1).abs().max()) < 0.12
    assert float((after / (before * area)).mean().sub(1).abs()) < 0.01
    assert float(area.min()) >= 0.64
    assert float(area.max()) <= 1.44
    angle = torch.atan2(-matrix[:, 1, 0], matrix[:, 0, 0]).rad2deg()
    assert 18 < float(angle.abs().max()) <= 20.001
    shear = (matrix[:, 0, 0] * matrix[:, 0, 1] + matrix[:, 1, 0] * matrix[:, 1, 1]) / area
    assert float(shear.abs().max()) > 0.15
    centers = batch.annotations["affine"][:, :, 2]
    assert float(centers.std()) > 2


def test_affnist_style_maps_points_as_its_annotation_says() -> None:
    images = torch.zeros(50, 1, 28, 28, dtype=torch.uint8)
    images[:, :, 9:12, 16:19] = 255
    data = ImageSet(images, torch.zeros(50, dtype=torch.long), ("dot",))
    batch = epoch(AffnistStyle(data))
    grid = torch.arange(40) - 19.5
    weight = batch.images[:, 0] / batch.images.sum((1, 2, 3))[:, None, None]
    x = (weight * grid).sum((1, 2))
    y = (weight * grid[:, None]).sum((1, 2))
    start = torch.tensor([17 - 13.5, 10 - 13.5, 1.0])
    expected = batch.annotations["affine"] @ start
    assert torch.allclose(torch.stack([x, y], -1), expected, atol=0.1)


def test_placing_off_the_canvas_keeps_what_stays_on_it() -> None:
    image = torch.arange(1, 10, dtype=torch.uint8).reshape(1, 1, 3, 3).expand(2, 1, 3, 3)
    corner = torch.tensor([-1, 3])
    placed = place(image, corner, corner, 4, first=-1, last=3)
    assert placed[0, 0, :2, :2].tolist() == [[5, 6], [8, 9]]
    assert int(placed[0].sum()) == 28
    assert placed[1, 0, 3, 3] == 1
    assert int(placed[1].sum()) == 1


def test_unfit_sources_are_refused() -> None:
    images = torch.zeros(4, 1, 8, 8, dtype=torch.uint8)
    same = ImageSet(images, torch.zeros(4, dtype=torch.long), ("a", "b"))
    with pytest.raises(ValueError, match="two classes"):
        MultiMNIST(same)
    color = ImageSet(images.expand(4, 3, 8, 8), torch.arange(4), tuple("abcd"))
    with pytest.raises(ValueError, match="one channel"):
        MultiMNIST(color)
    with pytest.raises(ValueError, match="fewer than 1000 partners"):
        MultiMNIST(digits(), pairs=1000)
    with pytest.raises(ValueError, match="merge must be"):
        MultiMNIST(digits(), merge="sum")
    with pytest.raises(ValueError, match="smaller than the digits"):
        ExpandedMNIST(digits(), size=20)
    with pytest.raises(ValueError, match="probability"):
        DiverseMultiMNIST(digits(), single=2)
    with pytest.raises(ValueError, match="shift must be at least 0"):
        MultiMNIST(digits(), shift=-1)
    with pytest.raises(ValueError, match="pad must be a whole number"):
        MultiMNIST(digits(), pad=1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="pairs must be at least 1"):
        MultiMNIST(digits(), pairs=0)
    with pytest.raises(ValueError, match="scale must be"):
        AffnistStyle(digits(), scale=(0, 0))
    oblong = ImageSet(torch.zeros(4, 1, 8, 6, dtype=torch.uint8), torch.arange(4), tuple("abcd"))
    with pytest.raises(ValueError, match="needs square images"):
        MultiMNIST(oblong)


@pytest.mark.parametrize("make", [MultiMNIST, DiverseMultiMNIST, ExpandedMNIST, AffnistStyle])
def test_batch_size_does_not_change_generated_samples(make: Make) -> None:
    source = make(digits())
    whole = epoch(source, 1)
    parts = list(Batches(source, 64, shuffled=False).epoch(1))
    assert torch.allclose(torch.cat([part.images for part in parts]), whole.images, atol=0.01)
    assert torch.equal(torch.cat([part.labels for part in parts]), whole.labels)
    moved = source.to("cpu")
    assert torch.equal(epoch(moved, 1).images, whole.images)
    assert repr(source).startswith(type(source).__name__)


def test_a_data_loader_gives_targets_too() -> None:
    batches = Batches(MultiMNIST(digits()), 8)
    image, label, targets = TorchDataset(batches)[5]
    expected = batches.batch(torch.tensor([5]))
    assert expected.targets is not None
    assert torch.equal(image, expected.images[0])
    assert torch.equal(label, expected.labels[0])
    assert torch.equal(targets, expected.targets[0])


@pytest.mark.parametrize("make", [MultiMNIST, AffnistStyle, lambda data: Strokes(600)])
def test_generated_sets_compile_whole(make: Make) -> None:
    batches = Batches(make(digits()), 16)
    step = torch.compile(
        lambda samples: batches.batch(samples, 1).images, fullgraph=True, backend="aot_eager"
    )
    samples = torch.arange(16)
    assert torch.allclose(step(samples), batches.batch(samples, 1).images, atol=0.01)


def without_values(source: Generated) -> Generated:
    """The same set on the meta device, where reading any value is an error."""
    for name, value in vars(source).items():
        if isinstance(value, Tensor | ImageSet):
            setattr(source, name, value.to("meta"))
    return source


@pytest.mark.parametrize(
    "make",
    [
        MultiMNIST,
        lambda data: MultiMNIST(data, pairs=50),
        DiverseMultiMNIST,
        lambda data: DiverseMultiMNIST(data, merge="mean"),
        ExpandedMNIST,
        AffnistStyle,
        lambda data: Strokes(600, fresh=True),
        lambda data: Strokes(600, overlapping=True),
    ],
)
def test_no_generated_batch_waits_for_the_device(make: Make) -> None:
    source = without_values(make(digits()))
    drawn = next(Batches(source, 64).epoch(3))
    assert drawn.images.device.type == "meta"
    assert drawn.labels.device.type == "meta"
    assert drawn.images.shape == (64, 1, source.size, source.size)
