"""Convolutions with large kernels and strides: their kernel, in Triton's interpreter."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, library

import torchcaps as tc
from helpers.kernels.cases import compare
from helpers.repetitions import mark_slow_except
from torchcaps.kernels import convolve
from torchcaps.kernels.convolution import operator

if TYPE_CHECKING:
    from helpers.kernels.interpreter import Launch

pytestmark = pytest.mark.usefixtures("interpreter")


WIDE = {
    "capsnet's": ((2, 64, 13, 13), 64, (9, 9), (2, 2), (0, 0)),
    "padded": ((3, 64, 8, 11), 128, (5, 7), (2, 3), (2, 3)),
    "padded beyond the kernel": ((2, 64, 3, 3), 64, (5, 5), (2, 2), (7, 7)),
    "one position": ((2, 128, 5, 5), 64, (5, 5), (2, 2), (0, 0)),
    "unseen edge": ((130, 64, 8, 8), 64, (5, 5), (2, 2), (0, 0)),
}


def wide(name: str, kind: torch.dtype) -> tuple[Any, ...]:
    size, n, k, stride, padding = WIDE[name]
    torch.manual_seed(0)
    features = torch.randn(size).to(torch.bfloat16).to(kind).requires_grad_()
    weight = torch.randn(n, size[1], *k).div(size[1]).to(torch.bfloat16).to(kind).requires_grad_()
    bias = torch.randn(n).to(torch.bfloat16).to(kind).requires_grad_()
    return features, weight, bias, stride, padding


@pytest.mark.parametrize("name", mark_slow_except(WIDE, "padded", "one position"))
def test_wide_convolutions_err_no_more_than_pytorchs(
    name: str, monkeypatch: pytest.MonkeyPatch, launches: "list[Launch]"
) -> None:
    monkeypatch.setattr(operator, "MIN_IMAGES", 1)
    names = ("out", "d features", "d weight", "d bias")

    def everything(kind: torch.dtype, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        leaves = wide(name, kind)
        out = function(*leaves)
        torch.manual_seed(1)
        towards = torch.randn(out.shape).to(torch.bfloat16).to(kind)
        gradients = torch.autograd.grad((out * towards).sum(), leaves[:3])
        return dict(zip(names, (out, *gradients), strict=True))

    low, plain = torch.bfloat16, torch.nn.functional.conv2d
    got = everything(low, convolve)
    assert len(launches) == (1 if any(WIDE[name][4]) else 2)
    compare(got, everything(low, plain), everything(torch.float64, plain), low)


@pytest.mark.parametrize("name", mark_slow_except(["one position", "unseen edge"], "one position"))
def test_wide_convolutions_are_an_operator_too(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.use_deterministic_algorithms(False)
    monkeypatch.setattr(operator, "MIN_IMAGES", 1)
    features, weight, bias, stride, padding = wide(name, torch.bfloat16)
    features = features[:2].detach().contiguous(memory_format=torch.channels_last)
    weight = weight.detach().contiguous(memory_format=torch.channels_last)
    arguments = (features.requires_grad_(), weight.requires_grad_(), [*stride], [*padding])
    library.opcheck(torch.ops.torchcaps.wide_conv.default, arguments)
    compiled = torch.compile(convolve, dynamic=True, fullgraph=True, backend="aot_eager")
    got, plain = (f(features, weight, bias, stride, padding) for f in (compiled, convolve))
    assert torch.equal(got, plain)


@pytest.mark.parametrize("name", mark_slow_except(["capsnet's", "one position"], "one position"))
def test_wide_convolutions_have_second_derivatives(
    name: str, monkeypatch: pytest.MonkeyPatch, launches: "list[Launch]"
) -> None:
    monkeypatch.setattr(operator, "MIN_IMAGES", 1)

    def everything(kind: torch.dtype, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        features, weight, bias, *how = wide(name, kind)
        out = function(features, weight, bias, *how).to(kind)
        (gradient,) = torch.autograd.grad(out.sin().sum(), features, create_graph=True)
        second = torch.autograd.grad(gradient.sin().sum(), (features, weight))
        return dict(zip(("d features", "d weight"), second, strict=True))

    low, plain = torch.bfloat16, torch.nn.functional.conv2d
    got = everything(low, convolve)
    assert len(launches) == 4
    compare(got, everything(low, plain), everything(torch.float64, plain), low)


class Poses(torch.nn.Module):
    """Primary capsules with a tensor for an output."""

    def __init__(self) -> None:
        super().__init__()
        self.primary = tc.PrimaryCapsules(64, 8, 8, kernel_size=5, stride=2).bfloat16()

    def forward(self, features: Tensor) -> Tensor:
        poses: Tensor = self.primary(features).poses
        return poses


@pytest.mark.parametrize("count", [2, 64])
def test_primary_capsules_are_exported_for_any_batch(count: int) -> None:
    torch.use_deterministic_algorithms(False)
    features, network = torch.randn(66, 64, 5, 5).bfloat16(), Poses()
    anything = ({0: torch.export.Dim("b")},)
    exported = torch.export.export(network, (features[:count],), dynamic_shapes=anything).module()
    for n in (3, 66):
        torch.testing.assert_close(exported(features[:n]), network(features[:n]))


def test_compiled_primary_capsules_keep_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.use_deterministic_algorithms(False)
    torch.compiler.reset()
    targets: list[str] = []

    def keep(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        targets.extend(str(node.target) for node in graph.graph.nodes)
        return graph.forward

    compiled = torch.compile(Poses(), backend=keep)
    monkeypatch.setattr(torch.compiler, "is_exporting", lambda: True)  # what torch 2.11 traces
    compiled(torch.randn(64, 64, 5, 5).bfloat16())
    assert "torchcaps.wide_conv.default" in targets


def test_wide_convolutions_refuse_what_pytorch_refuses(launches: "list[Launch]") -> None:
    features, weight = torch.randn(64, 128, 5, 5).bfloat16(), torch.randn(64, 64, 5, 5)
    for kind, channels, match in ((torch.bfloat16, 128, "channels"), (torch.float32, 64, "type")):
        with pytest.raises(RuntimeError, match=match):
            convolve(features[:, :channels], weight.to(kind), None, (2, 2), (0, 0))
    with torch.autocast("cpu", torch.bfloat16):
        out = convolve(features[:, :64].double(), weight.double(), None, (2, 2), (0, 0))
    assert out.dtype == torch.float64
    alone = convolve(features[0, :64], weight.bfloat16(), None, (2, 2), (0, 0))
    assert alone.shape == (64, 1, 1)
    assert not launches


def test_other_convolutions_are_left_to_pytorch(launches: "list[Launch]") -> None:
    features = torch.randn(64, 64, 7, 7)
    for kind, channels, k, stride in (
        (torch.float32, 64, 5, 2),
        (torch.bfloat16, 63, 5, 2),
        (torch.bfloat16, 64, 3, 2),
        (torch.bfloat16, 64, 5, 1),
    ):
        x, weight = features[:, :channels].to(kind), torch.randn(64, channels, k, k).to(kind)
        convolve(x, weight, None, (stride, stride), (0, 0))
    convolve(features[:63].bfloat16(), torch.randn(64, 64, 5, 5).bfloat16(), None, (2, 2), (0, 0))
    assert not launches
    with torch.autocast("cpu", torch.bfloat16):
        primary = tc.PrimaryCapsules(64, 8, 8, kernel_size=5, stride=2, nonlinearity=None)
        out = primary(features)
    assert len(launches) == 1
    assert out.poses.shape == (64, 2, 2, 8, 8)
