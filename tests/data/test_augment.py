"""Augmentation, each transform by itself."""

from typing import cast

import pytest
import torch
from hypothesis import given, settings, strategies as st

from helpers.data.batches import ALL, draws, image_set, random_images
from torchcaps.data import (
    Affine,
    Brightness,
    CenterCrop,
    Channels,
    Contrast,
    Crop,
    Cutout,
    Draws,
    Elastic,
    Flip,
    Mono,
    Normalize,
    PadCrop,
    Shift,
    Sometimes,
    Standardize,
    Transform,
    stream_key,
)
from torchcaps.data.augment import as_float, linear_map, warp


@given(st.integers(0, 5), st.integers(0, 1000))
@settings(deadline=None)
def test_a_shift_moves_pixels_and_loses_none_that_stay_inside(pixels: int, seed: int) -> None:
    images = random_images(8, 2, 9, seed) | 1
    shifted = Shift(pixels)(images, draws(8, seed))
    assert shifted.shape == images.shape
    for before, after in zip(images, shifted, strict=True):
        matches = []
        for down in range(-pixels, pixels + 1):
            for right in range(-pixels, pixels + 1):
                expected = torch.zeros_like(before)
                rows = slice(max(0, down), 9 + min(0, down))
                columns = slice(max(0, right), 9 + min(0, right))
                source = before.roll((down, right), (1, 2))
                expected[:, rows, columns] = source[:, rows, columns]
                matches.append(torch.equal(after, expected))
        assert matches.count(True) == 1


def test_every_shift_and_every_crop_occurs() -> None:
    image = torch.arange(36, dtype=torch.uint8).reshape(1, 1, 6, 6) + 1
    images = image.expand(2000, 1, 6, 6)
    assert len({tuple(x.flatten().tolist()) for x in Shift(2)(images, draws(2000))}) == 25
    assert len({tuple(x.flatten().tolist()) for x in PadCrop(2)(images, draws(2000))}) == 25
    crops = Crop(4)(images, draws(2000))
    assert crops.shape == (2000, 1, 4, 4)
    assert len({int(x[0, 0, 0]) for x in crops}) == 9


def test_padding_can_be_filled() -> None:
    images = torch.zeros(200, 1, 6, 6, dtype=torch.uint8)
    assert set(PadCrop(1, fill=9)(images, draws(200)).flatten().tolist()) == {0, 9}


def test_a_center_crop_is_the_middle() -> None:
    images = random_images(2, 1, 10)
    assert torch.equal(CenterCrop(4)(images, draws(2)), images[:, :, 3:7, 3:7])
    with pytest.raises(ValueError, match="cannot cut 11x11 from images of 10x10"):
        CenterCrop(11)(images, draws(2))
    with pytest.raises(ValueError, match="cannot cut 11x11 from images of 10x10"):
        Crop(11)(images, draws(2))


@given(st.integers(1, 14), st.integers(0, 1000))
@settings(deadline=None)
def test_a_cutout_fills_one_square_and_nothing_else(size: int, seed: int) -> None:
    images = random_images(8, 2, 9, seed) | 1
    for pixels in (images, images.float()):
        cut = Cutout(size)(pixels, draws(8, seed))
        assert cut.dtype == pixels.dtype
        for before, after in zip(pixels, cut, strict=True):
            filled = after == 0
            expected = []
            for row in range(9):
                for column in range(9):
                    square = torch.zeros(9, 9, dtype=torch.bool)
                    top, left = row - size // 2, column - size // 2
                    square[max(0, top) : top + size, max(0, left) : left + size] = True
                    expected.append(square)
            assert torch.equal(filled[0], filled[1])
            assert any(torch.equal(filled[0], square) for square in expected)
            assert torch.equal(after[~filled], before[~filled])


def test_cutouts_are_everywhere_and_have_their_fill() -> None:
    images = torch.zeros(2000, 1, 6, 6, dtype=torch.uint8)
    cut = Cutout(3, fill=9)(images, draws(2000))
    assert len({tuple(x.flatten().tolist()) for x in cut}) == 36
    assert set(cut.flatten().tolist()) == {0, 9}
    assert set(Cutout(3, fill=-0.5)(images.float(), draws(2000)).flatten().tolist()) == {0.0, -0.5}
    for wrong in (-1, 0.5, 256):
        with pytest.raises(ValueError, match=r"fill must be a whole number in 0\.\.255"):
            Cutout(3, fill=wrong)(images, draws(2000))
    with pytest.raises(ValueError, match="size must be at least 1"):
        Cutout(0)


def test_half_of_the_images_are_flipped_each_for_itself() -> None:
    images = random_images(1000, 1, 4)
    flipped = Flip()(images, draws(1000))
    same = (flipped == images).flatten(1).all(1)
    mirrored = (flipped == images.flip(-1)).flatten(1).all(1)
    assert bool((same | mirrored).all())
    assert 440 < int(mirrored.sum()) < 560
    assert torch.equal(Flip(0.0)(images, draws(1000)), images)
    assert torch.equal(Flip(1.0)(images, draws(1000)), images.flip(-1))


def test_a_quarter_turn_is_anticlockwise_and_exact() -> None:
    images = random_images(3, 2, 8).float()
    ones, zeros = torch.ones(3), torch.zeros(3)
    turned = warp(images, linear_map(ones * torch.pi / 2, ones, ones, zeros), torch.zeros(3, 2))
    assert torch.allclose(turned, images.rot90(1, (2, 3)), atol=1e-2)


def test_warping_moves_right_and_down_and_fills() -> None:
    images = random_images(1, 1, 8).float()
    one, zero = torch.ones(1), torch.zeros(1)
    identity = linear_map(zero, one, one, zero)
    moved = warp(images, identity, torch.tensor([[2 / 8, 1 / 8]]))
    assert torch.allclose(moved[..., 1:, 2:], images[..., :-1, :-2], atol=1e-3)
    assert moved[..., :1, :].abs().max() < 1e-3
    nearest = warp(images, identity, torch.tensor([[2 / 8, 1 / 8]]), fill="nearest")
    assert torch.allclose(nearest[..., 1:, 0], images[..., :-1, 0], atol=1e-3)
    with pytest.raises(ValueError, match="fill must be"):
        Affine(fill="black")


def test_an_affine_transform_without_ranges_changes_nothing() -> None:
    images = random_images(4)
    assert torch.allclose(Affine()(images, draws(4)), images.float() / 255, atol=1e-5)


def test_brightness_and_contrast_keep_to_their_ranges() -> None:
    images = random_images(500)
    added = Brightness()(images, draws(500)) - images.float() / 255
    assert float(added.flatten(1).std(1).max()) < 1e-6
    assert 0.2 < float(added.abs().max()) <= 63 / 255 + 1e-6
    changed = Contrast(0.2, 1.8)(images, draws(500))
    pixels = images.float() / 255
    assert torch.allclose(changed.mean((-2, -1)), pixels.mean((-2, -1)), atol=1e-5)
    factor = changed.std((-2, -1)) / pixels.std((-2, -1))
    assert float(factor.min()) + 1e-4 >= 0.2
    assert float(factor.max()) <= 1.8 + 1e-4
    assert torch.allclose(factor, factor[:, :1].expand_as(factor), atol=1e-4)


def test_standardized_images_have_mean_0_and_deviation_1_and_blank_ones_stay_blank() -> None:
    images = random_images(5)
    images[4] = 77
    result = Standardize()(images, draws(5))
    assert result[:4].mean((1, 2, 3)).abs().max() < 1e-5
    assert torch.allclose(result[:4].std((1, 2, 3), correction=0), torch.ones(4), atol=1e-5)
    assert result[4].abs().max() < 1e-2


def test_normalizing_bytes_and_floats_agrees_with_the_formula() -> None:
    images = random_images(5)
    mean, std = (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616)
    pixels = images.double() / 255
    expected = (pixels - torch.tensor(mean)[:, None, None].double()) / torch.tensor(std)[
        :, None, None
    ].double()
    for given_images in (images, images.float() / 255):
        result = Normalize(mean, std)(given_images, draws(5))
        assert torch.allclose(result.double(), expected, atol=1e-5)


def test_normalizing_refuses_images_of_other_channels_and_takes_tensors() -> None:
    three = Normalize((0.5,) * 3, (0.2,) * 3)
    with pytest.raises(ValueError, match="numbers for 3 channels; the images have 1"):
        three(random_images(2, 1), draws(2))
    mean, std = image_set().statistics()
    normalized = Normalize(mean.tolist(), std.tolist())(random_images(2), draws(2))
    tensors = Normalize(cast("list[float]", mean), cast("list[float]", std))
    assert torch.equal(tensors(random_images(2), draws(2)), normalized)


def test_every_transform_takes_an_empty_batch() -> None:
    images = random_images(0)
    normalize = Normalize([0] * 3, [1] * 3)
    others: tuple[Transform, ...] = (
        Shift(1),
        Crop(4),
        CenterCrop(4),
        Mono(),
        Cutout(3),
        normalize,
    )
    for transform in ALL + others:
        assert len(transform(images, draws(0))) == 0


def test_channels_are_repeated_or_dropped() -> None:
    gray, stereo = random_images(3, 1), random_images(3, 2)
    tripled = Channels(3)(gray, draws(3))
    assert tripled.dtype == torch.uint8
    assert torch.equal(tripled, torch.cat([gray] * 3, 1))
    assert torch.equal(Mono()(stereo, draws(3)), stereo[:, :1])
    with pytest.raises(ValueError, match="repeats one channel; the images have 2"):
        Channels(3)(stereo, draws(3))
    with pytest.raises(ValueError, match="count must be at least 1"):
        Channels(0)


def test_elastic_moves_no_point_further_than_it_says() -> None:
    ramp = torch.arange(20.0).expand(64, 1, 20, 20)  # a pixel is its own column
    inside = (..., slice(5, 15), slice(5, 15))
    for distance in (0.0, 1.0, 3.0):
        for images in (ramp, ramp.mT):
            moved = (Elastic(distance, 4)(images, draws(64)) - images)[inside].abs().max()
            # a cubic through the points may pass beyond them
            assert 0.5 * distance - 1e-4 <= moved <= 1.3 * distance + 1e-4
    bent = Elastic(2.0)(ramp, draws(64))
    assert not torch.equal(bent[0], bent[1])
    assert torch.equal(bent[3:5], Elastic(2.0)(ramp[3:5], Draws(stream_key(0), torch.arange(3, 5))))
    with pytest.raises(ValueError, match="points must be at least 2"):
        Elastic(points=1)


def test_sometimes_leaves_its_share_of_the_images_as_they_are() -> None:
    images = random_images(2000, 1, 8) | 1
    same = (
        (Sometimes(Contrast(0, 0), 0.3)(images, draws(2000)) == as_float(images)).flatten(1).all(1)
    )
    assert 0.65 <= same.float().mean() <= 0.75
    assert torch.equal(Sometimes(Flip(1.0), 0.0)(images, draws(2000)), as_float(images))
    with pytest.raises(ValueError, match="share must be a probability"):
        Sometimes(Flip(), 1.5)
