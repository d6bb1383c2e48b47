"""Squashing, lengths and the margin loss: their kernels, in Triton's interpreter."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, library

from helpers.kernels.cases import compare
from torchcaps import functional, kernels
from torchcaps.kernels.elementwise.launch import BLOCK

Function = Callable[[Tensor], Tensor]

pytestmark = pytest.mark.usefixtures("interpreter")

PAIRS: dict[str, tuple[Function, Function]] = {
    "squash": (kernels.squash, functional.squash),
    "squash_lowered": (kernels.squash_lowered, functional.squash),
    "lengths": (kernels.lengths, functional.lengths),
}
SHAPES = [(5, 3), (2, 3, 7, 16), (1, 1), (300, 36), (4,)]
DTYPES = [torch.float32, torch.bfloat16]


def with_gradient(function: Function, inputs: Tensor) -> dict[str, Tensor]:
    """Return the result, and the gradient of its product with fixed numbers."""
    leaf = inputs.detach().requires_grad_()
    out = function(leaf)
    towards = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).reshape(out.shape)
    (gradient,) = torch.autograd.grad((out * towards.to(out.dtype)).sum(), leaf)
    return {"out": out.detach(), "gradient": gradient}


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("dtype", DTYPES)
def test_poses_give_what_the_plain_function_gives(
    name: str, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    torch.manual_seed(0)
    fused, plain = PAIRS[name]
    sizes = torch.logspace(-3, 3, shape[0], dtype=torch.float64)  # both sides of length one
    poses = torch.randn(shape, dtype=torch.float64) * sizes.view(-1, *[1] * (len(shape) - 1))
    poses = poses.to(dtype)
    got, same = with_gradient(fused, poses), with_gradient(plain, poses)
    assert {k: x.dtype for k, x in got.items()} == {k: x.dtype for k, x in same.items()}
    compare(got, same, with_gradient(plain, poses.double()), dtype)


@pytest.mark.parametrize("name", PAIRS)
@pytest.mark.parametrize("size", [0.0, 1e-30, 1e-18, 1e18])
def test_tiny_and_huge_poses_give_finite_values_and_gradients(name: str, size: float) -> None:
    fused, plain = PAIRS[name]
    poses = size * torch.tensor([[3.0, -4.0, 0.0], [0.0, 0.0, 0.0]])
    got, expected = with_gradient(fused, poses), with_gradient(plain, poses)
    for key, value in got.items():
        assert bool(value.isfinite().all())
        torch.testing.assert_close(value, expected[key])


@pytest.mark.parametrize("name", PAIRS)
def test_poses_that_are_not_contiguous_are_read_in_their_order(name: str) -> None:
    fused, plain = PAIRS[name]
    poses = torch.randn(3, 4, 5).transpose(1, 2)
    got, expected = with_gradient(fused, poses), with_gradient(plain, poses)
    torch.testing.assert_close(got, expected)


def test_precisions_under_autocast_are_those_of_pytorch_unless_votes_follow() -> None:
    poses = torch.randn(3, 4).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        assert kernels.squash(poses).dtype == torch.float32
        assert kernels.squash_lowered(poses).dtype == torch.bfloat16
        wide = kernels.squash(poses)
        torch.testing.assert_close(kernels.squash_lowered(poses), wide.bfloat16())


def classes(count: int, n_classes: int, *, several: bool) -> Tensor:
    if several:
        return (torch.rand(count, n_classes) < 0.3).double()
    return torch.randint(n_classes, (count,))


@pytest.mark.parametrize("several", [False, True])
@pytest.mark.parametrize("sizes", [(5, 3), (1, 1), (2 * BLOCK // 10 + 7, 10)])
@pytest.mark.parametrize("absent_weight", [0.5, 1.0])
def test_margin_losses_are_those_of_the_plain_function(
    several: bool, sizes: tuple[int, int], absent_weight: float
) -> None:
    torch.manual_seed(1)
    lengths = torch.rand(sizes, dtype=torch.float64)
    targets = classes(*sizes, several=several)

    def loss(function: Callable[..., Tensor]) -> Function:
        return lambda x: function(x, targets, absent_weight=absent_weight)

    got, plain = (
        with_gradient(loss(function), lengths.float())
        for function in (kernels.margin_loss, functional.margin_loss)
    )
    compare(got, plain, with_gradient(loss(functional.margin_loss), lengths), torch.float32)


def test_a_margin_loss_of_nan_is_nan() -> None:
    lengths = torch.tensor([[0.5, torch.nan]])
    assert bool(kernels.margin_loss(lengths, torch.tensor([0])).isnan())


@pytest.mark.parametrize("label", [-1, 3])
def test_a_class_that_does_not_exist_makes_the_loss_nan_where_labels_cannot_be_read(
    label: int,
) -> None:
    lengths = torch.rand(2, 3, requires_grad=True)
    loss = torch.ops.torchcaps.margin_loss(lengths, torch.tensor([0, label]), 0.9, 0.1, 0.5)
    assert bool(loss.isnan())


def test_wrong_targets_are_refused_before_a_kernel_reads_them() -> None:
    with pytest.raises(ValueError, match="there is no class 3"):
        kernels.margin_loss(torch.rand(2, 3), torch.tensor([0, 3]))
    with pytest.raises(ValueError, match="do not fit scores"):
        kernels.margin_loss(torch.rand(2, 3), torch.zeros(3, 2))


def test_all_three_are_operators_too() -> None:
    torch.use_deterministic_algorithms(False)
    poses = torch.randn(4, 3, 5, requires_grad=True)
    library.opcheck(torch.ops.torchcaps.squash.default, (poses, torch.float32))
    library.opcheck(torch.ops.torchcaps.lengths.default, (poses, torch.float32))
    lengths = torch.rand(4, 3, requires_grad=True)
    arguments = (lengths, torch.tensor([0, 1, 2, 0]), 0.9, 0.1, 0.5)
    library.opcheck(torch.ops.torchcaps.margin_loss.default, arguments)


@pytest.mark.parametrize("name", ["squash", "lengths"])
def test_second_gradients_are_those_of_the_plain_function(name: str) -> None:
    start = torch.randn(2, 3)

    def second(function: Function) -> Tensor:
        poses = start.clone().requires_grad_()
        total = function(poses).square().sum()
        (first,) = torch.autograd.grad(total, poses, create_graph=True)
        (gradient,) = torch.autograd.grad(first.square().sum(), poses)
        return gradient

    fused, plain = PAIRS[name]
    torch.testing.assert_close(second(fused), second(plain))
