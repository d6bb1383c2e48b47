"""Alignment ratios and equivariance scores where the answer is known."""

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.networks.families import FAMILIES, family, subject
from torchcaps import analysis
from torchcaps.analysis.alignment import moved
from torchcaps.analysis.equivariance import linear_r2
from torchcaps.capsules import Capsules, Output
from torchcaps.data import POSE
from torchcaps.models.parts.backbones import ConvBackbone


class Center(tc.Network):
    """Ten equal capsules that are a linear map of where the ink is, or the distance of it."""

    def __init__(self, *, signed: bool = True) -> None:
        super().__init__((1, 28, 28), 10)
        generator = torch.Generator().manual_seed(1)
        self.turn = torch.nn.Parameter(torch.randn(2, 6, generator=generator))
        self.signed = signed

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        grid = torch.arange(28.0) - 13.5
        mass = images.sum((1, 2, 3))
        x, y = (images.sum((1, 2)) @ grid) / mass, (images.sum((1, 3)) @ grid) / mass
        place = torch.stack([x, y], -1)
        poses = (place if self.signed else place.square()) @ self.turn
        return Output(torch.zeros(len(images), 10), Capsules(poses[:, None].expand(-1, 10, -1)))


def test_differences_along_one_line_have_ratio_one() -> None:
    line = torch.randn(7, 1, 16) * torch.tensor([0.5, -1.0, 2.0, 3.0, -4.0])[:, None]
    ratios, vectors = analysis.alignment_ratio(line)
    torch.testing.assert_close(ratios, torch.ones(7, 5))
    torch.testing.assert_close(vectors.norm(dim=-1), torch.ones(7))
    assert bool((torch.einsum("bnd,bd->b", line, vectors) >= 0).all())


def test_two_equal_orthogonal_differences_align_with_the_longer_axis() -> None:
    # 3 e1 and 1 e2: the first singular vector is e1, so the ratios are 1 and 0
    ratios, vectors = analysis.alignment_ratio(torch.tensor([[3.0, 0, 0], [0, 1.0, 0]]))
    torch.testing.assert_close(ratios, torch.tensor([1.0, 0.0]))
    torch.testing.assert_close(vectors, torch.tensor([1.0, 0, 0]))


def test_a_difference_of_zero_has_no_ratio() -> None:
    ratios, _ = analysis.alignment_ratio(torch.tensor([[1.0, 0], [0, 0]]))
    assert ratios.isnan().tolist() == [False, True]


def test_what_nothing_moves_has_no_direction() -> None:
    ratios, vectors = analysis.alignment_ratio(torch.zeros(5, 3))
    assert ratios.isnan().all()
    assert vectors.isnan().all()
    torch.manual_seed(0)
    network = tc.build("demo/strokes-dynamic")
    images = torch.rand(2, *network.image_shape)
    images[1] = 0
    found = analysis.alignment(network, images, torch.tensor([3, 4]))
    assert found.cosines.isnan().any(dim=0).tolist() == [False, True]
    assert found.mean.isfinite().all()


def test_cosines_stay_within_one() -> None:
    images = torch.eye(28).expand(50, 1, 28, 28) * torch.linspace(0.1, 1, 50)[:, None, None, None]
    found = analysis.alignment(Center(), images, torch.zeros(50, dtype=torch.long))
    assert float(found.cosines.abs().max()) <= 1


@pytest.mark.parametrize(("dimension", "mean", "std"), [(16, 0.497, 0.279), (32, 0.463, 0.268)])
def test_random_vectors_align_as_computed_not_as_printed(
    dimension: int, mean: float, std: float
) -> None:
    found_mean, found_std = analysis.random_alignment(dimension, trials=20_000, seed=3)
    # 20,000 trials of 5 ratios: a standard error below 0.001
    assert found_mean == pytest.approx(mean, abs=0.004)
    assert found_std == pytest.approx(std, abs=0.004)
    assert abs(found_mean - analysis.PAPER_RANDOM[0]) > 0.1


def test_moving_an_image_moves_its_pixels() -> None:
    image = torch.zeros(1, 1, 9, 9)
    image[..., 4, 5] = 1
    assert moved(image, "x", 2)[0, 0].argmax() == 4 * 9 + 7
    assert moved(image, "y", -3)[0, 0].argmax() == 1 * 9 + 5
    assert moved(image, "rotation", 90)[0, 0].argmax() == 3 * 9 + 4
    with pytest.raises(ValueError, match="direction must be"):
        moved(image, "z", 1)


def test_capsules_linear_in_the_position_align_fully_and_turn_back() -> None:
    batch = subject("dynamic").batch(60)
    inside = batch.images * 0
    inside[..., 8:20, 8:20] = batch.images[..., 8:20, 8:20]
    found = analysis.alignment(Center(), inside, batch.labels)
    assert found.directions == ("rotation+", "x+", "y+", "rotation-", "x-", "y-")
    for row in (1, 2, 4, 5):
        assert float(found.mean[row]) == pytest.approx(1, abs=1e-4)
    torch.testing.assert_close(found.cosines[1:], -torch.ones(2, 60), atol=1e-4, rtol=0)
    assert found.dimension == 6
    assert found.paper_random == (0.311, 0.262)
    assert found.by_class.shape == (6, 10)


def test_capsules_that_forget_the_side_move_the_same_way() -> None:
    image = torch.zeros(1, 1, 28, 28)
    image[..., 13:15, 13:15] = 1
    found = analysis.alignment(Center(signed=False), image, torch.tensor([0]))
    assert float(found.cosines[1]) == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_network_has_alignment_ratios(name: str) -> None:
    batch = subject(name).batch(6)
    amounts = {"rotation": (9.0, 18.0), "x": (1.0, 2.0), "y": (1.0, 2.0)}
    found = analysis.alignment(family(name), batch.images, batch.labels, amounts=amounts)
    assert bool(((found.mean > 0) & (found.mean <= 1 + 1e-6)).all())
    assert found.random[0] == pytest.approx(
        analysis.random_alignment(found.dimension, vectors=2)[0]
    )


def test_r2_is_one_for_linear_and_nothing_for_unrelated_numbers() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(4000, 8, generator=generator)
    y = torch.cat(
        [x @ torch.randn(8, 2, generator=generator) + 3, torch.randn(4000, 1, generator=generator)],
        1,
    )
    x = torch.cat([x, torch.full((4000, 1), 7.0)], 1)  # a dimension that never moves
    r2 = linear_r2(x, y)
    torch.testing.assert_close(r2[:2], torch.ones(2), atol=1e-4, rtol=0)
    assert abs(float(r2[2])) < 0.02
    half_noise = x[:, :1] + torch.randn(4000, 1, generator=generator)
    assert float(linear_r2(x, half_noise)) == pytest.approx(0.5, abs=0.05)
    with pytest.raises(ValueError, match="at least 4"):
        linear_r2(x[:3], y[:3])


def test_a_capsule_that_is_the_position_predicts_shifts_and_nothing_else() -> None:
    found = analysis.equivariance(Center(), pairs=1500)
    r2 = dict(zip(POSE, found.r2.tolist(), strict=True))
    assert min(r2["x"], r2["y"]) > 0.9
    assert max(r2[name] for name in ("scale_x", "scale_y", "thickness")) < 0.15
    assert (found.dimension, found.pairs) == (6, 1500)
    assert found.by_class.shape == (10, 7)


@pytest.mark.parametrize("name", ["dynamic", "plain"])
def test_capsules_and_plain_networks_are_scored_from_as_many_numbers(name: str) -> None:
    found = analysis.equivariance(family(name), pairs=1000)
    assert found.dimension == 16
    assert bool(torch.isfinite(found.r2).all())
    assert float(found.r2.max()) <= 1
    again = analysis.equivariance(family(name), pairs=1000)
    torch.testing.assert_close(found.r2, again.r2)


def test_pixels_know_thickness_and_position() -> None:
    found = analysis.pixel_equivariance(pairs=1500)
    r2 = dict(zip(POSE, found.r2.tolist(), strict=True))
    assert min(r2["x"], r2["y"], r2["thickness"]) > 0.6


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(ValueError, match="take more pairs"):
        analysis.equivariance(family("dynamic"), pairs=100)
    with pytest.raises(ValueError, match="classifies others"):
        analysis.equivariance(tc.CapsNet((1, 28, 28), 3, backbone=lambda c: small_backbone(c)))


def small_backbone(channels: int) -> ConvBackbone:
    return ConvBackbone(channels, 4)
