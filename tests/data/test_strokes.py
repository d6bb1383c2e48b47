"""Strokes: known poses, and as hard as they claim to be."""

from functools import cache

import pytest
import torch
from torch import Tensor, nn

from torchcaps.data import POSE, Batch, Batches, ImageSet, PoseRange, Strokes, load, render
from torchcaps.data.strokes.glyphs import GLYPHS


@cache
def batch(count: int = 400, *, overlapping: bool = False, size: int = 28) -> Batch:
    source = Strokes(count, overlapping=overlapping, size=size)
    return next(Batches(source, count, shuffled=False).epoch(0))


def again(drawn: Batch, poses: Tensor, size: int = 28) -> Tensor:
    notes = drawn.annotations
    return render(notes["glyph"], poses, size=size, offsets=notes["offsets"])


def changed(poses: Tensor, **changes: float) -> Tensor:
    poses = poses.clone()
    for name, value in changes.items():
        poses[:, POSE.index(name)] += value
    return poses


def test_every_class_has_glyphs_and_every_glyph_occurs() -> None:
    assert {name for name, _ in GLYPHS} == set("0123456789")
    seen = batch(2000).annotations["glyph"].bincount(minlength=len(GLYPHS))
    assert int(seen.min()) > 40
    labels = torch.tensor([int(name) for name, _ in GLYPHS])
    assert torch.equal(labels[batch(2000).annotations["glyph"]], batch(2000).labels)
    assert int(batch(2000).labels.bincount(minlength=10).min()) > 140


def test_rendering_a_pose_again_gives_the_image() -> None:
    drawn = batch()
    redrawn = again(drawn, drawn.annotations["pose"]).float() / 255
    assert torch.allclose(redrawn, drawn.images, atol=1.01 / 255)


def test_moving_the_pose_moves_the_pixels() -> None:
    drawn = batch()
    still = again(drawn, changed(drawn.annotations["pose"], x=0, y=0)).int()
    moved = again(drawn, changed(drawn.annotations["pose"], x=2, y=-3)).int()
    assert int((moved[..., :-3, 2:] - still[..., 3:, :-2]).abs().max()) <= 1


def test_turning_the_pose_by_90_degrees_turns_the_image_anticlockwise() -> None:
    drawn = batch()
    poses = drawn.annotations["pose"].clone()
    poses[:, :2] = 0
    still, turned = again(drawn, poses), again(drawn, changed(poses, rotation=90))
    assert int((turned.int() - still.rot90(1, (2, 3)).int()).abs().max()) <= 1


def test_scale_shear_and_thickness_do_what_they_say() -> None:
    upright = torch.tensor([[0, 0, 0, 1, 1, 0, 3.0]])
    one = torch.tensor([1])
    grid = torch.arange(56) - 27.5

    def extent(**changes: float) -> tuple[float, float, float, float]:
        image = render(one, changed(upright, **changes), size=56)[0, 0].float() / 255
        rows, columns = image.sum(1), image.sum(0)
        across = (columns * grid).sum() / columns.sum()
        down = (rows * grid).sum() / rows.sum()
        lean = (image * grid[:, None] * grid).sum() / image.sum()
        return (rows > 0.5).sum().item(), float(image.sum()), float(lean), float(across + down)

    height, ink, lean, _ = extent()
    assert abs(height - (0.6 * 56 + 3)) < 1.5
    assert abs(extent(scale_y=0.5)[0] - (0.9 * 56 + 3)) < 1.5
    assert abs(extent(thickness=3)[1] / ink - 2) < 0.15
    assert extent(shear=0.3)[2] < lean - 10
    wide = render(torch.tensor([0]), changed(upright, scale_x=0.5), size=56)[0, 0].sum(0)
    thin = render(torch.tensor([0]), upright, size=56)[0, 0].sum(0)
    assert int((wide > 0).sum()) > 1.3 * int((thin > 0).sum())


def test_poses_fill_their_ranges() -> None:
    poses = batch(2000).annotations["pose"]
    ranges = PoseRange()
    for column, (low, high) in enumerate(
        (
            (-ranges.shift * 28, ranges.shift * 28),
            (-ranges.shift * 28, ranges.shift * 28),
            (-ranges.rotation, ranges.rotation),
            ranges.scale,
            ranges.scale,
            (-ranges.shear, ranges.shear),
            (ranges.thickness[0] * 28, ranges.thickness[1] * 28),
        )
    ):
        margin = 0.02 * (high - low)
        assert low <= float(poses[:, column].min()) < low + margin
        assert high - margin < float(poses[:, column].max()) <= high + 1e-4


def test_edges_are_anti_aliased_and_the_inside_is_full() -> None:
    images = (batch().images * 255).round()
    partial = ((images > 0) & (images < 255)).float().mean()
    full = (images == 255).float().mean()
    assert 0.02 < float(partial) < 0.15
    assert float(full) > 0.04


@pytest.mark.parametrize("size", [8, 28, 40, 64])
def test_any_size_shows_the_same_drawing(size: int) -> None:
    drawn = next(Batches(Strokes(50, size=size), 50, shuffled=False).epoch(0))
    assert drawn.images.shape == (50, 1, size, size)
    share = drawn.images.mean((1, 2, 3))
    assert torch.allclose(share, batch(50).images.mean((1, 2, 3)), atol=0.035)


def test_overlapping_glyphs_differ_and_sum_clipped() -> None:
    drawn = batch(300, overlapping=True, size=36)
    assert drawn.targets is not None
    assert bool((drawn.labels[:, 0] != drawn.labels[:, 1]).all())
    targets = (drawn.targets * 255).round().long()
    clipped = targets.sum(1).clamp(max=255)
    assert torch.equal((drawn.images * 255).round().long(), clipped)
    assert drawn.targets.shape == (300, 2, 1, 36, 36)
    assert torch.equal(drawn.annotations["mask"], targets >= 128)
    assert drawn.annotations["pose"].shape == (300, 2, 7)
    overlap = drawn.annotations["mask"].all(1).flatten(1).any(1).float().mean()
    assert float(overlap) > 0.95
    pairs = {tuple(pair) for pair in drawn.labels.tolist()}
    assert len(pairs) > 75


def test_samples_depend_on_seed_split_and_index_only() -> None:
    def images(source: Strokes, *, epoch: int = 0, seed: int = 0) -> Tensor:
        samples = torch.tensor([3, 1_000_000, 7])
        return Batches(source, 4, seed=seed).batch(samples, epoch).images

    first = images(Strokes(10))
    assert torch.equal(first, images(Strokes(2_000_000), epoch=5, seed=8))
    assert not torch.equal(first, images(Strokes(10, seed=1)))
    assert not torch.equal(first, images(Strokes(10, split="test")))
    fresh = Strokes(10, fresh=True)
    assert torch.equal(images(fresh, epoch=5), images(fresh, epoch=5))
    assert not torch.equal(images(fresh, epoch=5), images(fresh, epoch=6))
    other = Strokes(10, fresh=True, split="test")
    assert not torch.equal(images(fresh, epoch=5), images(other, epoch=5))
    assert torch.equal(images(fresh.to("cpu"), epoch=5), images(fresh, epoch=5))


def test_loading_by_name_gives_disjoint_splits_of_the_stated_statistics() -> None:
    from torchcaps.data import SETS

    train, validation, test = (load("strokes", split) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (60_000, 6_000, 10_000)
    head = {image.numpy().tobytes() for image in batch(2000).images}
    for other in (validation, test):
        part = Batches(other, 2000, shuffled=False).batch(torch.arange(2000)).images
        assert not {image.numpy().tobytes() for image in part} & head
    for name in ("strokes", "strokes_overlapping"):
        source = load(name)
        samples = torch.arange(4000)
        images = Batches(source, 4000).batch(samples).images
        assert abs(float(images.mean()) - SETS[name].mean[0]) < 0.002
        assert abs(float(images.std()) - SETS[name].std[0]) < 0.002


def test_a_small_network_learns_strokes_and_a_linear_one_does_not() -> None:
    torch.manual_seed(0)
    train, test = Strokes(12_000), Strokes(2_000, split="test")
    data = ImageSet(train.images, train.labels, train.classes)
    images, labels = test.images.float() / 255, test.labels
    linear = nn.Sequential(nn.Flatten(), nn.Linear(784, 10))
    small = nn.Sequential(
        nn.Conv2d(1, 16, 5, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 5, stride=2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 64),
        nn.ReLU(),
        nn.Linear(64, 10),
    )
    accuracy = []
    for net in (linear, small):
        optimizer = torch.optim.Adam(net.parameters(), 2e-3)
        for number in range(5):
            for part in Batches(data, 128).epoch(number):
                loss = nn.functional.cross_entropy(net(part.images), part.labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        with torch.no_grad():
            accuracy.append(float((net(images).argmax(1) == labels).float().mean()))
    assert accuracy[0] < 0.85
    assert accuracy[1] > 0.96


def test_impossible_strokes_are_refused() -> None:
    with pytest.raises(ValueError, match="count must be at least 1"):
        Strokes(0)
    with pytest.raises(ValueError, match="size must be at least 8"):
        Strokes(5, size=4)


@pytest.mark.parametrize(
    ("glyphs", "poses", "offsets", "reason"),
    [
        (torch.tensor([99]), torch.zeros(1, 7), None, "no glyph 99"),
        (torch.tensor([-1]), torch.zeros(1, 7), None, "no glyph -1"),
        (torch.tensor([1]), torch.zeros(2, 7), None, "not torch.int64 .1. and .2, 7."),
        (torch.tensor([1]), torch.zeros(1, 6), None, "poses .b 7."),
        (torch.tensor([1.0]), torch.zeros(1, 7), None, "not torch.float32"),
        (torch.tensor([1]), torch.zeros(1, 7), torch.zeros(1, 2, 2), "offsets must be"),
    ],
)
def test_impossible_drawings_are_refused(
    glyphs: Tensor, poses: Tensor, offsets: Tensor | None, reason: str
) -> None:
    with pytest.raises(ValueError, match=reason):
        render(glyphs, poses, size=28, offsets=offsets)
