"""Kernels as operators, in Triton's interpreter; run by test_kernels.py with TRITON_INTERPRET=1."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, library
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from triton.runtime.interpreter import GridExecutor

import torchcaps as tc
from helpers.kernel_cases import FUSED, PAIRWISE, compare
from helpers.routings import route
from torchcaps.kernels import (
    convolve,
    gaussian_ops,
    norm_ops,
    ops,
    pairwise_ops,
    pose_norm,
    wide_conv_ops,
)
from torchcaps.routing import Sizes
from torchcaps.votes import Votes

pytest_plugins = ["interpreter"]
torch.set_num_threads(1)


def operands() -> tuple[Tensor, Tensor, Tensor, list[int]]:
    poses = torch.randn(2, 4, 4, 2, 8, requires_grad=True)
    weight = torch.randn(8, 3, 4, 2, requires_grad=True)
    return poses, weight, torch.randn(8, 3, 4, requires_grad=True), [2, 2, 2, 2, 0, 0]


def test_the_agreement_operator_keeps_its_promises() -> None:
    poses, weight, parents, window = operands()
    torch.use_deterministic_algorithms(False)
    library.opcheck(ops._attend, (poses, weight, None, parents, window, 0.5, False))


@pytest.mark.parametrize("what", ["window", "image", "linear", "uniform"])
def test_the_moments_operator_keeps_its_promises(what: str) -> None:
    poses, weight, center, window = operands()
    torch.use_deterministic_algorithms(False)
    activations = torch.rand(8, 8, requires_grad=True)
    constant = None if what == "uniform" else torch.randn(8, 3, requires_grad=True)
    linear = torch.randn(8, 3, 4, requires_grad=True) if what == "linear" else None
    square = (-torch.rand(8, 3, 4)).requires_grad_() if what in ("window", "image") else None
    child = torch.arange(64).reshape(8, 8) // 3 if what == "image" else None
    forms = (constant, linear, square)
    arguments = (poses, weight, None, activations, center, *forms, child, window)
    library.opcheck(gaussian_ops._moments, arguments)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_pairwise_operators_keep_their_promises(scaled: bool) -> None:
    poses, weight, total, window = operands()
    torch.use_deterministic_algorithms(False)
    scale = torch.randn(4, requires_grad=True) if scaled else None
    bias = torch.randn(8, 3, 4, requires_grad=True) if scaled else None
    votes = (poses, weight, scale, bias, window)
    library.opcheck(pairwise_ops._sums, (*votes, True))
    library.opcheck(pairwise_ops._links, (*votes, total, True, 0.1))


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


def test_kernels_run_on_the_gpu_of_their_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen, ran, whole = list[Tensor](), list[int](), GridExecutor.__call__

    @contextlib.contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        chosen.append(tensor)
        yield
        chosen.pop()

    def launched(self: Any, *given: Any, **options: Any) -> None:
        ran.append(len(chosen))
        whole(self, *given, **options)

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    monkeypatch.setattr(GridExecutor, "__call__", launched)
    poses, activations = torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3)
    for make in (FUSED["inverted attention"], FUSED["em"], PAIRWISE["pairwise"]):
        votes = Votes(poses, torch.randn(3, 2, 4, 4))
        routed = route(make()(Sizes(3, 2, 4, 4)), votes, activations)
        (routed.poses.sum() + routed.couplings.square().sum()).backward()
    assert len(ran) > 10
    assert set(ran) == {1}


def test_normalizing_is_an_operator_too() -> None:
    torch.use_deterministic_algorithms(False)
    poses, weight = torch.randn(4, 3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    bias = torch.randn(5, requires_grad=True)
    library.opcheck(norm_ops._pose_norm, (poses, weight, bias, 1e-5, torch.float32))


@pytest.mark.parametrize("name", FUSED | PAIRWISE)
def test_forward_mode_gradients_are_those_of_the_plain_function(name: str) -> None:
    torch.manual_seed(0)
    routing = (FUSED | PAIRWISE)[name]()(Sizes(3, 2, 4, 4))
    poses, tangent, weight = torch.randn(2, 3, 4), torch.randn(2, 3, 4), torch.randn(3, 2, 4, 4)
    activations = torch.rand(2, 3)

    def routed(x: Tensor) -> Tensor:
        out: Tensor = route(routing, Votes(x, weight), activations).poses
        return out

    (backward,) = torch.func.vjp(routed, poses)[1](torch.ones(2, 2, 4))
    forward = torch.func.jvp(routed, (poses,), (tangent,))[1]
    torch.testing.assert_close(forward.sum(), (backward * tangent).sum(), rtol=1e-4, atol=1e-4)


WIDE = {
    "capsnet's": ((2, 64, 13, 13), 64, (9, 9), (2, 2), (0, 0)),
    "padded": ((3, 64, 8, 11), 128, (5, 7), (2, 3), (2, 3)),
    "padded beyond the kernel": ((2, 64, 3, 3), 64, (5, 5), (2, 2), (7, 7)),
    "one place": ((2, 128, 5, 5), 64, (5, 5), (2, 2), (0, 0)),
    "unseen edge": ((130, 64, 8, 8), 64, (5, 5), (2, 2), (0, 0)),
}


def wide(name: str, kind: torch.dtype) -> tuple[Any, ...]:
    size, n, k, stride, padding = WIDE[name]
    torch.manual_seed(0)
    features = torch.randn(size).to(torch.bfloat16).to(kind).requires_grad_()
    weight = torch.randn(n, size[1], *k).div(size[1]).to(torch.bfloat16).to(kind).requires_grad_()
    bias = torch.randn(n).to(torch.bfloat16).to(kind).requires_grad_()
    return features, weight, bias, stride, padding


@pytest.mark.parametrize("name", WIDE)
def test_wide_convolutions_err_no_more_than_pytorchs(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wide_conv_ops, "LEAST", 1)
    names = ("out", "d features", "d weight", "d bias")

    def everything(kind: torch.dtype, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        leaves = wide(name, kind)
        out = function(*leaves)
        torch.manual_seed(1)
        towards = torch.randn(out.shape).to(torch.bfloat16).to(kind)
        gradients = torch.autograd.grad((out * towards).sum(), leaves[:3])
        return dict(zip(names, (out, *gradients), strict=True))

    low, plain = torch.bfloat16, torch.nn.functional.conv2d
    seen = count_launches(monkeypatch)
    got = everything(low, convolve)
    assert len(seen) == (1 if any(WIDE[name][4]) else 2)
    compare(got, everything(low, plain), everything(torch.float64, plain), low)


def count_launches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for every kernel that is launched from now on."""
    seen, whole = list[int](), GridExecutor.__call__

    def launched(self: Any, *given: Any, **options: Any) -> None:
        seen.append(1)
        whole(self, *given, **options)

    monkeypatch.setattr(GridExecutor, "__call__", launched)
    return seen


def test_wide_convolutions_are_an_operator_too(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.use_deterministic_algorithms(False)
    monkeypatch.setattr(wide_conv_ops, "LEAST", 1)
    features, weight, bias, stride, padding = wide("unseen edge", torch.bfloat16)
    features = features[:2].detach().contiguous(memory_format=torch.channels_last)
    weight = weight.detach().contiguous(memory_format=torch.channels_last)
    given = (features.requires_grad_(), weight.requires_grad_(), [*stride], [*padding])
    library.opcheck(wide_conv_ops._wide_conv, given)
    compiled = torch.compile(convolve, dynamic=True, fullgraph=True, backend="aot_eager")
    got, plain = (f(features, weight, bias, stride, padding) for f in (compiled, convolve))
    assert torch.equal(got, plain)


def test_wide_convolutions_have_second_derivatives(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wide_conv_ops, "LEAST", 1)

    def everything(kind: torch.dtype, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        features, weight, bias, *how = wide("capsnet's", kind)
        out = function(features, weight, bias, *how).to(kind)
        (gradient,) = torch.autograd.grad(out.sin().sum(), features, create_graph=True)
        second = torch.autograd.grad(gradient.sin().sum(), (features, weight))
        return dict(zip(("d features", "d weight"), second, strict=True))

    low, plain = torch.bfloat16, torch.nn.functional.conv2d
    seen = count_launches(monkeypatch)
    got = everything(low, convolve)
    assert len(seen) == 4
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


def test_wide_convolutions_refuse_what_pytorch_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_launches(monkeypatch)
    features, weight = torch.randn(64, 128, 5, 5).bfloat16(), torch.randn(64, 64, 5, 5)
    for kind, channels, match in ((torch.bfloat16, 128, "channels"), (torch.float32, 64, "type")):
        with pytest.raises(RuntimeError, match=match):
            convolve(features[:, :channels], weight.to(kind), None, (2, 2), (0, 0))
    with torch.autocast("cpu", torch.bfloat16):
        out = convolve(features[:, :64].double(), weight.double(), None, (2, 2), (0, 0))
    assert out.dtype == torch.float64
    alone = convolve(features[0, :64], weight.bfloat16(), None, (2, 2), (0, 0))
    assert alone.shape == (64, 1, 1)
    assert not seen


def test_other_convolutions_are_left_to_pytorch(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = count_launches(monkeypatch)
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
    assert not seen
    with torch.autocast("cpu", torch.bfloat16):
        out = tc.PrimaryCapsules(64, 8, 8, kernel_size=5, stride=2)(features)
    assert seen == [1]
    assert out.poses.shape == (64, 2, 2, 8, 8)


class Layers(torch.nn.Module):
    """Windows and classes with fused routings."""

    def __init__(self) -> None:
        super().__init__()
        fused = {"implementation": "fused"}
        routing = FUSED["inverted attention"](**fused)
        self.conv = tc.ConvCapsules(
            2, 3, 4, 4, kernel_size=2, stride=1, routing=routing, matrix=True
        )
        self.classes = tc.ClassCapsules(3, 4, 4, 4, routing=FUSED["dynamic"](**fused))

    def forward(self, poses: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        poses, activations, couplings = self.classes(self.conv(tc.Capsules(poses)))
        return poses, activations, couplings


def test_layers_compile_export_and_lower_their_precision() -> None:
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    layers, poses = Layers(), torch.randn(2, 3, 3, 2, 4)
    expected = layers(poses)
    compiled = torch.compile(layers, fullgraph=True, backend="aot_eager")(poses)
    exported = torch.export.export(layers, (poses,)).module()(poses)
    for out in (compiled, exported):
        for a, b in zip(out, expected, strict=True):
            torch.testing.assert_close(a, b)
    compiled[0].sum().backward()
    gradient = layers.conv.weight.grad
    assert gradient is not None
    assert bool(gradient.isfinite().all())
    with torch.autocast("cpu", torch.bfloat16):
        low = layers(poses)
    torch.testing.assert_close(low[0].float(), expected[0], rtol=0.05, atol=0.05)


def test_a_pairwise_layer_compiles_to_what_is_asked_for() -> None:
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    layer = tc.LinearCapsules(
        5, 3, 4, 4, routing=PAIRWISE["pairwise"](implementation="fused"), matrix=True,
        vote_norm=tc.VoteNorm,
    ).eval()  # fmt: skip
    poses, ran = torch.randn(2, 5, 4), list[str]()

    def forward(poses: Tensor) -> tuple[Tensor, Tensor]:
        routed = layer(tc.Capsules(poses))
        return routed.poses, routed.activations

    def backend(graph: torch.fx.GraphModule, _: list[Tensor]) -> Callable[..., Any]:
        ran.extend(str(node.target) for node in graph.graph.nodes)
        boxed: Callable[..., Any] = make_boxed_func(graph.forward)
        return boxed

    compiled = torch.compile(forward, fullgraph=True, backend=aot_autograd(fw_compiler=backend))
    exported = torch.export.export(layer, (tc.Capsules(poses),)).module()(tc.Capsules(poses))
    for out in (compiled(poses), exported[:2]):
        for a, b in zip(out, forward(poses), strict=True):
            torch.testing.assert_close(a, b)
    compiled(poses)[0].sum().backward()
    assert layer.vote_norm is not None
    for parameter in layer.parameters():
        assert parameter.grad is not None
        assert bool(parameter.grad.isfinite().all())
    assert any("pairwise_sums" in name for name in ran)
    assert not any("pairwise_links" in name for name in ran)
