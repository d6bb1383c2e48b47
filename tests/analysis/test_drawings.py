"""Reconstruction, perturbation and segmentation against decoders whose drawings are known."""

import math

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.networks.families import DECODED, family, overlapping, subject
from torchcaps import analysis
from torchcaps.analysis.perturbation import SHAPE, perturb_poses, step_scale
from torchcaps.analysis.segmentation import Choice, match_order
from torchcaps.capsules import Capsules, Output
from torchcaps.data import POSE, Batches, CenterCrop, Strokes
from torchcaps.layers import Decoder


class LinearDecoder(Decoder):
    """Pixels are a fixed linear map of the chosen pose."""

    def __init__(self, n_classes: int, d: int, image_shape: tuple[int, int, int]) -> None:
        super().__init__(n_classes, d, image_shape)
        generator = torch.Generator().manual_seed(0)
        size = math.prod(image_shape)
        self.weight = torch.nn.Parameter(torch.randn(n_classes, d, size, generator=generator))

    def pixels(self, poses: Tensor, chosen: Tensor) -> Tensor:
        own = poses[torch.arange(len(poses)), chosen]
        return torch.einsum("bd,bdp->bp", own, self.weight[chosen])


class Known(tc.Network):
    """Class poses that are given, scored by their first entry, with a linear decoder."""

    def __init__(self, poses: Tensor, size: int = 4) -> None:
        super().__init__((1, size, size), poses.shape[1])
        self.poses = poses
        self.decoder = LinearDecoder(poses.shape[1], poses.shape[2], (1, size, size))

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        poses = self.poses[: len(images)]
        return Output(poses[..., 0], Capsules(poses))


def test_a_linear_decoder_moves_exactly_along_each_dimension() -> None:
    poses = torch.randn(2, 3, 5)
    network, classes = Known(poses), torch.tensor([2, 0])
    found = analysis.perturbation(network, torch.zeros(2, 1, 4, 4), classes)
    assert found.drawings.shape == (2, 5, 11, 1, 4, 4)
    torch.testing.assert_close(found.steps, torch.linspace(-0.25, 0.25, 11))
    still = network.decoder.decode(poses, classes)
    moved = (found.drawings - still[:, None, None]).flatten(3)
    expected = torch.einsum("s,bdp->bdsp", found.steps, network.decoder.weight.detach()[classes])
    torch.testing.assert_close(moved, expected, atol=1e-5, rtol=1e-4)


def test_perturbing_leaves_other_classes_and_dimensions_alone() -> None:
    poses = torch.randn(1, 3, 4)
    moved = perturb_poses(poses, torch.tensor([1]), torch.tensor([-1.0, 2.0]))
    change = moved[0] - poses
    assert change.shape == (4, 2, 3, 4)
    for d in range(4):
        for s, step in enumerate((-1.0, 2.0)):
            expected = torch.zeros(3, 4)
            expected[1, d] = step
            torch.testing.assert_close(change[d, s], expected)


def test_long_poses_are_moved_by_the_root_of_their_size_as_much() -> None:
    assert step_scale(family("attention"), 8) == math.sqrt(8)
    assert step_scale(family("inverted"), 16) == 4
    assert step_scale(family("dynamic"), 16) == 1
    batch = subject("attention").batch(1)
    found = analysis.perturbation(family("attention"), batch.images, batch.labels)
    assert float(found.steps[-1]) == pytest.approx(0.25 * math.sqrt(8))
    assert found.drawings.shape == (1, 8, 11, 1, 28, 28)


def bar(x: float = 0, y: float = 0, *, tall: int = 12, wide: int = 4) -> Tensor:
    image = torch.zeros(29, 29)
    top, left = int(14 + y - tall // 2), int(14 + x - wide // 2)
    image[top : top + tall + 1, left : left + wide + 1] = 1
    return image


def test_shapes_are_measured_as_drawn() -> None:
    x, y, rotation, width, height, skew, thickness = shape(bar(3, -2)).tolist()
    assert (x, y) == pytest.approx((3, -2), abs=1e-4)
    assert (rotation, skew) == pytest.approx((0, 0), abs=1e-4)
    assert width == pytest.approx(4 * math.sqrt((5**2 - 1) / 12), rel=1e-4)
    assert height == pytest.approx(4 * math.sqrt((13**2 - 1) / 12), rel=1e-4)
    assert thickness == pytest.approx(2 * 65 / (2 * (13 + 5)), rel=0.1)
    # every row above the middle is moved right by one pixel a row: the top leans right;
    # variances 2 across and 14 down make 16, 14 and a covariance of -14
    leaning = torch.stack([bar().roll(-shift, 1)[row] for row, shift in enumerate(range(-14, 15))])
    assert float(shape(leaning)[5]) == pytest.approx(1, rel=1e-3)
    assert float(shape(leaning)[2]) == pytest.approx(
        math.degrees(0.5 * math.atan2(-28, 14 - 16)), abs=1e-2
    )
    assert bool(torch.isfinite(shape(torch.zeros(29, 29))).all())


def shape(image: Tensor) -> Tensor:
    return analysis.shape_of(image[None, None])[0]


def test_shapes_follow_the_true_poses_of_strokes() -> None:
    drawn = next(Batches(Strokes(600, split="shapes"), 600).epoch(0))
    glyphs = drawn.annotations["glyph"]
    measured = within(analysis.shape_of(drawn.images), glyphs)
    true = within(drawn.annotations["pose"], glyphs)
    # rotation and shear both lean a glyph, so each of them explains half of what is measured
    for ours, theirs, least in (
        ("x", "x", 0.95),
        ("y", "y", 0.95),
        ("thickness", "thickness", 0.95),
        ("width", "scale_x", 0.65),
        ("height", "scale_y", 0.8),
        ("rotation", "rotation", 0.6),
        ("skew", "shear", 0.6),
    ):
        pair = torch.stack([measured[:, SHAPE.index(ours)], true[:, POSE.index(theirs)]])
        assert float(torch.corrcoef(pair)[0, 1]) > least, ours


def within(values: Tensor, groups: Tensor) -> Tensor:
    """Values less the mean of their group."""
    values = values.clone()
    for group in groups.unique():
        values[groups == group] -= values[groups == group].mean(dim=0)
    return values


def test_a_dimension_that_shifts_correlates_with_position_alone() -> None:
    steps = torch.linspace(-2, 2, 5)
    across = torch.stack([bar(float(s)) for s in steps])
    thicker = torch.stack([bar(wide=4 + 2 * n) for n in range(5)])
    drawings = torch.stack([across, thicker])[None, :, :, None]
    found = analysis.dimension_effects(analysis.Perturbation(torch.tensor([0]), steps, drawings))
    assert found.factors == SHAPE
    assert float(found.correlation[0, 0]) == pytest.approx(1, abs=1e-4)
    assert float(found.slope[0, 0]) == pytest.approx(4, abs=1e-3)
    assert found.correlation[0, 1:].abs().max() == 0
    assert float(found.correlation[1, SHAPE.index("width")]) > 0.99
    assert float(found.correlation[1, SHAPE.index("thickness")]) > 0.95
    assert float(found.correlation[1, 0]) == 0


def test_dimensions_that_are_the_pose_correlate_with_it_fully() -> None:
    true = torch.randn(40, 7)
    labels = torch.arange(40) % 2
    poses = torch.zeros(40, 3, 7)
    poses[:, 0], poses[:, 1] = true, -true
    network = Known(poses)
    found = analysis.pose_correlation(network, torch.zeros(40, 1, 4, 4), labels, true)
    torch.testing.assert_close(found.correlation[0].diagonal(), torch.ones(7))
    torch.testing.assert_close(found.correlation[1].diagonal(), -torch.ones(7))
    assert bool(found.correlation[2].isnan().all())


def test_reconstructions_come_from_label_and_prediction() -> None:
    poses = torch.zeros(3, 3, 4)
    poses[:, :, 0] = torch.tensor([[3.0, 1, 0], [0, 1, 2], [0, 1, 0]])
    network = Known(poses)
    labels = torch.tensor([0, 1, 1])
    drawn = network.decoder.decode(poses, labels).detach()
    found = analysis.reconstructions(network, drawn, labels)
    torch.testing.assert_close(found.from_label, drawn)
    torch.testing.assert_close(found.error_label, torch.zeros(3), atol=1e-6, rtol=0)
    assert found.predictions.tolist() == [0, 2, 1]
    assert float(found.error_prediction[1]) > 0.01
    assert found.failures.labels.tolist() == [1]
    torch.testing.assert_close(found.failures.images, drawn[1:2])


def test_reconstructions_are_of_what_is_left_of_a_cropped_image() -> None:
    poses = torch.ones(2, 3, 4)
    network = Known(poses)
    labels = torch.tensor([0, 1])
    drawn = network.decoder.decode(poses, labels).detach()
    images = torch.nn.functional.pad(drawn, (2, 2, 2, 2), value=9.0)
    prepared = analysis.Prepared(network, (CenterCrop(4),), (1, 8, 8)).eval()
    found = analysis.reconstructions(prepared, images, labels)
    torch.testing.assert_close(found.images, drawn)
    torch.testing.assert_close(found.error_label, torch.zeros(2), atol=1e-6, rtol=0)


@pytest.mark.parametrize("name", DECODED)
def test_every_network_with_a_decoder_reconstructs(name: str) -> None:
    batch = subject(name).batch(5)
    found = analysis.reconstructions(family(name), batch.images, batch.labels)
    with torch.no_grad():
        expected = family(name)(batch.images).reconstruction
    assert expected is not None
    torch.testing.assert_close(found.from_prediction, expected)


def test_a_network_without_a_decoder_says_so() -> None:
    with pytest.raises(ValueError, match="has no decoder"):
        analysis.reconstructions(family("em"), torch.rand(1, 1, 28, 28), torch.tensor([0]))


def test_the_iou_of_the_true_digits_is_one() -> None:
    drawn = next(Batches(Strokes(20, size=36, overlapping=True), 20).epoch(0))
    assert drawn.targets is not None
    assert analysis.iou(drawn.targets, drawn.targets).tolist() == [[1.0, 1.0]] * 20
    crossed = analysis.iou(drawn.targets, drawn.targets.flip(1))
    assert float(crossed.max()) < 0.9
    assert float(analysis.iou(torch.zeros(1, 4, 4), torch.zeros(1, 4, 4))) == 1
    half = torch.zeros(2, 1, 4, 4)
    half[0, :, :2], half[1, :, 1:3] = 1, 1
    assert float(analysis.iou(half[0], half[1])) == pytest.approx(4 / 12)


def test_segmentation_by_a_decoder_that_knows_the_digits_is_perfect() -> None:
    poses = torch.rand(6, 4, 16)
    labels = torch.tensor([[0, 1], [1, 2], [2, 3], [3, 0], [0, 2], [1, 3]])
    poses[:, :, 0] = 0.1
    poses[torch.arange(6)[:, None], labels, 0] = torch.tensor([[1.0, 2.0]])
    network = Known(poses)
    with torch.no_grad():
        pairs = [network.decoder.decode(poses, some) for some in labels.unbind(1)]
        targets = torch.stack(pairs, 1)
    images = targets.sum(1)
    choices: tuple[Choice, ...] = ("labels", "predictions")
    for choice in choices:
        found = analysis.segment(network, images, labels, targets, choice=choice)
        torch.testing.assert_close(found.iou, torch.ones(6, 2))
        assert torch.equal(found.chosen, labels)
    absent = analysis.segment(network, images, labels, targets, choice="absent")
    assert torch.equal(absent.chosen[:, 0], labels[:, 0])
    assert not bool((absent.chosen[:, 1:] == labels).any())
    torch.testing.assert_close(absent.iou[:, 0], torch.ones(6))
    assert float(absent.iou[:, 1].mean()) < 1


def test_predictions_are_put_in_the_order_of_their_labels() -> None:
    labels = torch.tensor([[1, 2], [1, 2], [1, 2], [1, 2]])
    guesses = torch.tensor([[2, 1], [1, 2], [5, 1], [7, 8]])
    assert match_order(guesses, labels).tolist() == [[1, 2], [1, 2], [1, 5], [7, 8]]


@pytest.mark.parametrize("name", ["dynamic", "pairwise"])
def test_networks_of_two_objects_segment(name: str) -> None:
    batch = subject(name, pairs=True).batch(4)
    assert batch.targets is not None
    network = overlapping(name)
    found = analysis.segment(
        network, batch.images, batch.labels, batch.targets, choice="predictions"
    )
    with torch.no_grad():
        drawn = network(batch.images).reconstruction
    assert drawn is not None
    torch.testing.assert_close(found.drawings.sort(dim=1).values, drawn.sort(dim=1).values)
    with pytest.raises(ValueError, match="two objects"):
        analysis.segment(network, batch.images, batch.labels[:, 0], batch.targets)
