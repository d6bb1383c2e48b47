"""Corruptions, attacks and who is right, on networks simple enough to know."""

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from helpers.networks.families import FAMILIES, family, subject
from torchcaps import analysis
from torchcaps.analysis.robustness import CORRUPTIONS
from torchcaps.data import CenterCrop, Normalize, Standardize

SIDE = 8


def halves() -> tc.Network:
    """Two classes: more ink above, or more ink below."""
    layers = nn.Sequential(nn.Flatten(), nn.Linear(SIDE * SIDE, 2, bias=False))
    weight = torch.zeros(2, SIDE, SIDE)
    weight[0, : SIDE // 2], weight[1, SIDE // 2 :] = 1, 1
    linear = layers[1]
    assert isinstance(linear, nn.Linear)
    linear.weight.data = weight.flatten(1)
    return tc.Classifier((1, SIDE, SIDE), 2, layers).eval()


def dotted(count: int = 40) -> tuple[Tensor, Tensor]:
    """A block of ink near the middle of the upper or of the lower half."""
    labels = torch.arange(count) % 2
    images = torch.zeros(count, 1, SIDE, SIDE)
    images[labels == 0, :, 1:3, 3:5] = 1
    images[labels == 1, :, 5:7, 3:5] = 1
    return images, labels


@pytest.mark.parametrize("name", CORRUPTIONS)
def test_the_level_that_changes_nothing_changes_nothing(name: str) -> None:
    images, labels = torch.rand(6, 3, 12, 12), torch.arange(6)
    level = 1.0 if name == "scale" else 0.0
    assert level in CORRUPTIONS[name].levels
    again = CORRUPTIONS[name].apply(images, labels, level)
    torch.testing.assert_close(again, images, atol=1e-5, rtol=0)
    harder = CORRUPTIONS[name].apply(images, labels, CORRUPTIONS[name].levels[-1])
    assert harder.shape == images.shape
    assert float((harder - images).abs().max()) > 0.05
    torch.testing.assert_close(
        harder, CORRUPTIONS[name].apply(images, labels, CORRUPTIONS[name].levels[-1])
    )


def test_accuracy_falls_as_the_image_leaves_its_half() -> None:
    images, labels = dotted()
    curve = analysis.robustness(halves(), images, labels, "translation", levels=(0, 1, 4))
    assert curve.accuracy[0] == 1
    # four in turn go right, left, down, up by 4: an upper block going down and a lower one going
    # up end in the other half, which is one image of four for each
    assert curve.accuracy[2] == pytest.approx(0.75, abs=0.26)
    assert curve.accuracy[2] < 1
    assert (curve.what, curve.unit, curve.count) == ("translation", "pixels", 40)
    with pytest.raises(ValueError, match="corruption must be one of"):
        analysis.robustness(halves(), images, labels, "fog")


def test_another_image_on_top_has_another_class() -> None:
    images, labels = dotted(6)
    mixed = CORRUPTIONS["overlap"].apply(images, labels, 1.0)
    torch.testing.assert_close(mixed, (images[:1] + images[1:2]).expand(6, -1, -1, -1))


def test_a_square_covers_its_share() -> None:
    covered = CORRUPTIONS["occlusion"].apply(torch.ones(50, 1, 10, 10), torch.zeros(50), 0.4)
    assert (covered == 0).sum((1, 2, 3)).tolist() == [16] * 50
    assert len({image.numpy().tobytes() for image in covered}) > 10


def test_who_is_right() -> None:
    scores = torch.tensor([[3.0, 2.0, -1.0], [3.0, -2.0, 1.0]])
    assert analysis.correct(scores, torch.tensor([0, 2])).tolist() == [True, False]
    assert analysis.correct(scores, torch.tensor([[1, 0], [0, 1]])).tolist() == [True, False]
    assert analysis.correct(scores, torch.tensor([[0, 1], [0, -1]])).tolist() == [True, False]
    assert analysis.correct(scores, torch.tensor([[0, -1], [2, 0]])).tolist() == [False, True]


def test_fgsm_of_a_linear_network_is_its_weights_sign() -> None:
    images, labels = dotted(2)
    images = 0.3 + 0.4 * images
    attacked = analysis.fgsm(halves(), images, labels, epsilon=0.1)
    step = attacked - images
    below = torch.zeros(SIDE, SIDE)
    below[: SIDE // 2], below[SIDE // 2 :] = -0.1, 0.1
    torch.testing.assert_close(step[0, 0], below)
    torch.testing.assert_close(step[1, 0], -below)


def test_attacks_flip_a_linear_network_where_the_margin_ends() -> None:
    images, labels = dotted()
    # the margin is the 4 pixels of ink; 2 x 32 pixels less clipping at 0 and 1 move it by at most
    # 4 epsilon (ink darkened) + 32 epsilon (the other half lit): flipped from epsilon = 1/9 on
    curve = analysis.adversarial(halves(), images, labels, epsilons=(0.0, 0.1, 0.12))
    assert curve.fgsm == (1.0, 1.0, 0.0)
    assert curve.pgd[0] == 1
    assert curve.pgd[2] == 0
    assert (curve.masked, curve.count, curve.steps) == (0.0, 40, 10)


def test_pgd_stays_within_epsilon_and_within_the_image() -> None:
    batch = subject("dynamic").batch(5)
    attacked = analysis.pgd(family("dynamic"), batch.images, batch.labels, epsilon=0.07, steps=3)
    assert float((attacked - batch.images).abs().max()) <= 0.07 + 1e-6
    assert 0 <= float(attacked.min()) <= float(attacked.max()) <= 1
    assert not torch.equal(attacked, batch.images)


def test_a_network_without_gradient_is_not_called_robust_silently() -> None:
    class Steps(nn.Module):
        def forward(self, images: Tensor) -> Tensor:
            above, below = images.flatten(1).chunk(2, dim=1)
            return torch.stack([above.sum(1).round(), below.sum(1).round()], 1)

    network = tc.Classifier((1, SIDE, SIDE), 2, Steps())
    images, labels = dotted()
    curve = analysis.adversarial(network, images, labels, epsilons=(0.0, 0.1), steps=2)
    assert curve.masked == 1
    assert curve.fgsm == (1.0, 1.0)


@pytest.mark.parametrize("name", FAMILIES)
def test_every_network_can_be_attacked_and_stays_as_it_was(name: str) -> None:
    batch, network = subject(name).batch(4), family(name)
    network.train()
    curve = analysis.adversarial(network, batch.images, batch.labels, epsilons=(0, 0.3), steps=2)
    assert network.training
    assert all(parameter.grad is None for parameter in network.parameters())
    network.eval()
    assert all(0 <= value <= 1 for value in (*curve.fgsm, *curve.pgd))


@pytest.mark.parametrize("transform", [Standardize(), Normalize((0.1,), (0.3,)), CenterCrop(28)])
def test_attacks_go_through_the_transforms(transform: object) -> None:
    assert callable(transform)
    size = 32 if isinstance(transform, CenterCrop) else 28
    network = analysis.Prepared(family("plain"), (transform,), (1, size, size)).eval()
    images = torch.rand(3, 1, size, size)
    attacked = analysis.fgsm(network, images, torch.tensor([1, 2, 3]), epsilon=0.05)
    changed = (attacked - images).abs() > 1e-4
    assert float(changed[..., 4:20, 4:20].float().mean()) > 0.2
    if size == 32:
        assert not bool(changed[..., :2, :].any())
    assert network.name == family("plain").name
