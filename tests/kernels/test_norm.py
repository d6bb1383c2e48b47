"""LayerNorm over poses: its kernels, in Triton's interpreter."""

import copy
from functools import partial

import pytest
import torch
from torch import Tensor, library

from helpers.kernels.cases import compare
from torchcaps.kernels import pose_norm

pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 7, 16), (1, 1), (300, 36)])
def test_poses_are_normalized_as_by_pytorch(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    norm = torch.nn.LayerNorm(shape[-1]).double()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    poses = torch.randn(shape, dtype=torch.float64) + 1
    towards = torch.randn(shape, dtype=torch.float64)

    def everything(kind: torch.dtype, fused: bool) -> dict[str, Tensor]:
        module, x = copy.deepcopy(norm).to(kind), poses.to(kind).requires_grad_()
        out = pose_norm(module, x) if fused else module(x)
        leaves = (x, *module.parameters())
        gradients = torch.autograd.grad((out * towards.to(kind)).sum(), leaves)
        return dict(zip(("out", "d poses", "d weight", "d bias"), (out, *gradients), strict=True))

    exact = everything(torch.float64, False)
    got, plain = (everything(torch.float32, fused) for fused in (True, False))
    if shape[-1] == 1:
        del got["d poses"], plain["d poses"], exact["d poses"]  # zero, and rounding
    compare(got, plain, exact, torch.float32)


def test_a_norm_of_another_size_is_left_to_pytorch() -> None:
    poses, norm = torch.randn(3, 2, 4), torch.nn.LayerNorm((2, 4))
    torch.testing.assert_close(pose_norm(norm, poses), norm(poses))
    with pytest.raises(RuntimeError, match="normalized_shape"):
        pose_norm(torch.nn.LayerNorm(2), poses)


def test_norms_compile_for_any_number_of_poses() -> None:
    torch.use_deterministic_algorithms(False)
    norm = torch.nn.LayerNorm(4).requires_grad_(False)
    compiled = torch.compile(partial(pose_norm, norm), dynamic=True, backend="aot_eager")
    for count in (3, 5):
        poses = torch.randn(count, 2, 4, requires_grad=True)
        with torch.autocast("cpu", torch.float16):
            out = compiled(poses)
        assert out.dtype == torch.float16
        torch.testing.assert_close(out.float(), norm(poses), rtol=1e-2, atol=1e-2)
        (gradient,) = torch.autograd.grad(out.float().square().sum(), poses)
        assert bool(gradient.isfinite().all())


def test_normalizing_is_an_operator_too() -> None:
    torch.use_deterministic_algorithms(False)
    poses, weight = torch.randn(4, 3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    bias = torch.randn(5, requires_grad=True)
    arguments = (poses, weight, bias, 1e-5, torch.float32)
    library.opcheck(torch.ops.torchcaps.pose_norm.default, arguments)
