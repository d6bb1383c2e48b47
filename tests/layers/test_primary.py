"""Primary capsules: every way to convolve and to couple gives the numbers of the plain one."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import torchcaps as tc
from torchcaps.layers.primary import CoupledConv2d, PoseConv2d


def watched(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, ...]]:
    """Return a list that grows by the shape of the patches of every matmul."""
    shapes: list[tuple[int, ...]] = []
    linear = functional.linear

    def watch(patches: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        shapes.append(tuple(patches.shape))
        return linear(patches, weight, bias)

    monkeypatch.setattr(functional, "linear", watch)
    return shapes


@pytest.mark.parametrize("padding", [0, (1, 2)])
@pytest.mark.parametrize("bias", [True, False])
def test_few_places_are_convolved_as_a_matmul_of_patches(
    padding: int | tuple[int, int], bias: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    conv = PoseConv2d(3, 64, (5, 6), (2, 3), padding, bias=bias)
    features = torch.rand(2, 3, 9, 11)
    shapes = watched(monkeypatch)
    expected = functional.conv2d(features, conv.weight, conv.bias, (2, 3), padding)
    assert torch.equal(conv(features), expected)  # gradients are on
    assert shapes == []
    with torch.no_grad():
        torch.testing.assert_close(conv(features), expected)
        assert shapes == [(2, *expected.shape[2:], 3 * 5 * 6)]
        many = torch.rand(40, 3, 9, 11)
        conv(many)
        assert len(shapes) == 1


@pytest.mark.parametrize(("leaky", "rounds"), [(False, False), (True, True)])
def test_coupling_the_output_is_coupling_the_weight(leaky: bool, rounds: bool) -> None:
    torch.manual_seed(0)
    conv = CoupledConv2d(3, 16, 5, 2, n_types=4, leaky=leaky)
    features = torch.rand(20, 3, 11, 11)
    training, inference = conv(features), conv.eval()(features)
    if not rounds:
        assert torch.equal(training, inference)  # a quarter is exact
    torch.testing.assert_close(training, inference)


def test_one_image_of_capsnet_takes_the_matmul(monkeypatch: pytest.MonkeyPatch) -> None:
    network = tc.build("sabour2017/mnist-plain").eval()
    shapes = watched(monkeypatch)
    with torch.no_grad():
        scores = network(torch.rand(1, 1, 28, 28)).scores
    assert scores.isfinite().all()
    assert shapes == [(1, 6, 6, 256 * 81)]
