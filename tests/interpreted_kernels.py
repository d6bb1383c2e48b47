"""Kernels in Triton's interpreter; run by test_kernels.py with TRITON_INTERPRET=1."""

import contextlib
import copy
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func
from triton.runtime.interpreter import GridExecutor

import torchcaps as tc
from kernel_bounds import refuse_strays
from kernel_cases import (
    CASES,
    FUSED,
    PAIRWISE,
    SCALED,
    Case,
    agreement,
    compare,
    compare_routing,
    exact_agreement,
)
from torchcaps.capsules import Votes, Window
from torchcaps.kernels import (
    gaussian_launch,
    gaussian_ops,
    launch,
    norm_ops,
    ops,
    pairwise_ops,
    pose_norm,
)
from torchcaps.kernels.gaussian_launch import Moments
from torchcaps.kernels.product_launch import by_products
from torchcaps.routing import RoutingFactory

torch.set_num_threads(1)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    """No kernel reads or writes outside its tensors."""
    refuse_strays(monkeypatch)


@pytest.fixture(autouse=True)
def _poisoned() -> Iterator[None]:
    """Memory that nothing has written yet is NaN."""
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", CASES)
def test_an_agreement_step_errs_no_more_than_plain_pytorch(name: str, dtype: str) -> None:
    case, kind = CASES[name], DTYPES[dtype]
    got = agreement(case, kind, "cpu", fused=True)
    plain = agreement(case, kind, "cpu", fused=False)
    compare(got, plain, exact_agreement(case, kind, "cpu"), kind)


@pytest.mark.parametrize("case", ["linear matrix", "few windows"])
@pytest.mark.parametrize("name", FUSED)
def test_routings_err_no_more_than_the_plain_functions(name: str, case: str) -> None:
    compare_routing(CASES[case], FUSED[name], torch.float32, "cpu")


@pytest.mark.parametrize("name", ["dynamic", "inverted attention", "em"])
def test_routings_err_no_more_in_bfloat16(name: str) -> None:
    compare_routing(CASES["few windows"], FUSED[name], torch.bfloat16, "cpu")


MOMENTS = "moments_backward"
SQUARES = {
    "windows": CASES["windows"],
    "scattered": CASES["scattered"],
    "shared": Case((2, 2, 3, 3, 12), 5, 4, 4, shared=True),
}


def _two_iterations(**options: Any) -> RoutingFactory:
    return partial(tc.EMRouting, iterations=2, **options)


@pytest.mark.parametrize("name", SQUARES)
def test_squares_in_place_of_votes_err_no_more(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []

    def watched(given: Moments) -> bool:
        taken.append(by_products(given))
        return taken[-1]

    monkeypatch.setattr(gaussian_launch, "by_products", watched)
    compare_routing(SQUARES[name], _two_iterations, torch.bfloat16, "cpu")
    assert taken
    assert all(taken)


@pytest.mark.parametrize("n_children", [1, 2, 3])
def test_few_children_err_no_more_in_bfloat16(n_children: int) -> None:
    case = Case((5, 1, 1, n_children, 16), 3, 4, 4)
    compare_routing(case, _two_iterations, torch.bfloat16, "cpu")


@pytest.mark.parametrize("shape", [(1, 1, 4), (6, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("routing", [tc.DynamicRouting, tc.EMRouting])
def test_a_bias_may_be_broadcast(routing: Any, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    votes = Votes(torch.randn(2, 6, 4), torch.randn(6, 3, 2, 2), bias=torch.randn(shape))
    activations = torch.rand(2, 6) if routing is tc.EMRouting else None
    got, plain = (
        routing(6, 3, 4, implementation=way)(votes, activations) for way in ("fused", "torch")
    )
    for a, b in zip(got, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_a_place_outside_the_tensors_is_noticed() -> None:
    poses, weight = torch.randn(2, 6, 4), torch.randn(6, 3, 2, 2)
    votes = Votes(poses, weight, bias=torch.randn(1, 1, 4))
    poses, weight, bias, window = ops.operands(votes)
    assert bias is not None
    with pytest.raises(Exception, match="places are outside the tensors"):
        ops._attend(poses, weight, bias[:1].clone(), torch.randn(2, 3, 4), window, 1.0, False)


def test_couplings_that_nobody_uses_have_no_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Tensor | None] = []
    for module, name, place in ((launch, "attend_backward", 4), (gaussian_launch, MOMENTS, 6)):
        whole = getattr(module, name)

        def watched(*given: Any, whole: Any = whole, place: int = place) -> Any:
            seen.append(given[place])
            return whole(*given)

        monkeypatch.setattr(module, name, watched)
    poses, activations = torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3)
    for routing in (FUSED["dynamic"](), _two_iterations()):
        votes = Votes(poses, torch.randn(3, 2, 4, 4))
        routing(3, 2, 4)(votes, activations).poses.sum().backward()
    assert len(seen) >= 4
    assert all(gradient is None for gradient in seen)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", SCALED)
def test_pairwise_votes_may_have_a_scale(case: str, dtype: str) -> None:
    compare_routing(SCALED[case], PAIRWISE["pairwise"], DTYPES[dtype], "cpu", n_draws=2)


@pytest.mark.parametrize("case", ["few windows", "shared and biased"])
def test_pairwise_votes_may_have_none(case: str) -> None:
    compare_routing(CASES[case], PAIRWISE["pairwise"], torch.float32, "cpu", n_draws=2)


@pytest.mark.parametrize("case", ["few windows", "per entry"])
def test_pairwise_votes_need_not_be_normalised(case: str) -> None:
    make = PAIRWISE["pairwise, not normalised"]
    compare_routing((CASES | SCALED)[case], make, torch.float32, "cpu", n_draws=2)


def test_a_vote_without_a_direction_counts_as_zero_and_gets_no_gradient() -> None:
    torch.manual_seed(0)
    poses = torch.randn(2, 5, 4)
    poses[:, 1], poses[:, 2] = 0, 1e-8 * poses[:, 2]
    poses.requires_grad_()
    votes = Votes(poses, torch.randn(5, 3, 4, 4))
    got, plain = (
        tc.PairwiseRouting(5, 3, 4, implementation=way)(votes) for way in ("fused", "torch")
    )
    for a, b in zip(got, plain, strict=True):
        torch.testing.assert_close(a, b)
    (gradient,) = torch.autograd.grad(got.poses.sum() + got.couplings.square().sum(), poses)
    assert torch.equal(gradient[:, 1:3], torch.zeros(2, 2, 4))
    assert bool((gradient[:, 3:] != 0).any())


def test_no_pairwise_votes_at_all_are_routed() -> None:
    poses = torch.zeros(0, 5, 4, requires_grad=True)
    weight, scale = torch.randn(5, 3, 4, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    routed = tc.PairwiseRouting(5, 3, 4, implementation="fused")(Votes(poses, weight, scale))
    assert [list(x.shape) for x in routed] == [[0, 3, 4], [0, 3], [0, 5, 3]]
    for x in torch.autograd.grad(sum(x.sum() for x in routed), (poses, weight, scale)):
        assert torch.equal(x, torch.zeros_like(x))


def operands() -> tuple[Tensor, Tensor, Tensor, list[int]]:
    poses = torch.randn(2, 4, 4, 2, 8, requires_grad=True)
    weight = torch.randn(8, 3, 4, 2, requires_grad=True)
    return poses, weight, torch.randn(8, 3, 4, requires_grad=True), [2, 2, 2, 2, 0, 0]


def test_the_agreement_operator_keeps_its_promises() -> None:
    poses, weight, parents, window = operands()
    torch.use_deterministic_algorithms(False)
    torch.library.opcheck(ops._attend, (poses, weight, None, parents, window, 0.5, False))


@pytest.mark.parametrize("uniform", [False, True])
def test_the_moments_operator_keeps_its_promises(uniform: bool) -> None:
    poses, weight, centre, window = operands()
    torch.use_deterministic_algorithms(False)
    activations = torch.rand(8, 8, requires_grad=True)
    constant = None if uniform else torch.randn(8, 3, requires_grad=True)
    square = None if uniform else (-torch.rand(8, 3, 4)).requires_grad_()
    arguments = (poses, weight, None, activations, centre, constant, square, window)
    torch.library.opcheck(gaussian_ops._moments, arguments)


@pytest.mark.parametrize("scaled", [False, True])
def test_the_pairwise_operators_keep_their_promises(scaled: bool) -> None:
    poses, weight, total, window = operands()
    torch.use_deterministic_algorithms(False)
    scale = torch.randn(4, requires_grad=True) if scaled else None
    bias = torch.randn(8, 3, 4, requires_grad=True) if scaled else None
    votes = (poses, weight, scale, bias, window)
    torch.library.opcheck(pairwise_ops._sums, (*votes, True))
    torch.library.opcheck(pairwise_ops._links, (*votes, total, True, 0.1))


@pytest.mark.parametrize("shape", [(5, 3), (2, 3, 7, 16), (1, 1), (300, 36)])
def test_poses_are_normalised_as_by_pytorch(shape: tuple[int, ...]) -> None:
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
    for make in (FUSED["inverted attention"], _two_iterations, PAIRWISE["pairwise"]):
        votes = Votes(poses, torch.randn(3, 2, 4, 4))
        routed = make()(3, 2, 4)(votes, activations)
        (routed.poses.sum() + routed.couplings.square().sum()).backward()
    assert len(ran) > 10
    assert set(ran) == {1}


def test_normalising_is_an_operator_too() -> None:
    torch.use_deterministic_algorithms(False)
    poses, weight = torch.randn(4, 3, 5, requires_grad=True), torch.randn(5, requires_grad=True)
    bias = torch.randn(5, requires_grad=True)
    torch.library.opcheck(norm_ops._pose_norm, (poses, weight, bias, 1e-5, torch.float32))


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


def test_the_repr_says_that_the_kernel_runs() -> None:
    assert "implementation=fused" in repr(tc.DynamicRouting(3, 4, 5))
    assert "implementation=torch" in repr(tc.DynamicRouting(3, 4, 5, implementation="torch"))
    assert "priors are learned" in repr(tc.DynamicRouting(3, 4, 5, learned_priors=True))


def votes_with(why: str) -> Votes | Tensor:
    poses, weight = torch.randn(2, 3, 4), torch.randn(3, 4, 4, 4)
    if why == "dense already":
        return torch.randn(2, 3, 4, 4)
    if why == "have a scale":
        return Votes(poses, weight, torch.ones(4))
    if why == "differs between parents":
        return Votes(poses, weight, bias=torch.ones(3, 4, 4))
    if why == "not float32 or bfloat16":
        return Votes(poses.double(), weight.double())
    return Votes(torch.randn(2, 3, 128), torch.randn(3, 4, 128, 4))


@pytest.mark.parametrize(
    "why",
    [
        "dense already",
        "have a scale",
        "differs between parents",
        "not float32 or bfloat16",
        "too many for one tile",
    ],
)
def test_what_has_no_kernel_is_refused_with_a_reason(why: str) -> None:
    votes = votes_with(why)
    with pytest.raises(ValueError, match=why):
        tc.DynamicRouting(3, 4, 4, implementation="fused")(votes)
    assert tc.DynamicRouting(3, 4, 4).to(torch.float64 if "float32" in why else None)(votes)


def test_large_poses_with_a_scale_take_the_plain_function() -> None:
    votes = Votes(torch.randn(2, 3, 256), torch.randn(3, 4, 16, 1), torch.ones(16))
    with pytest.raises(ValueError, match="16x16 with a scale"):
        tc.PairwiseRouting(3, 4, 16, implementation="fused")(votes)
    assert tc.PairwiseRouting(3, 4, 16)(votes).poses.isfinite().all()


def test_parents_of_different_windows_take_the_plain_function() -> None:
    layer = tc.ConvCapsules(2, 3, 4, 4, kernel_size=2, routing=FUSED["em"](), matrix=True)
    capsules = tc.Capsules(torch.randn(1, 3, 3, 2, 4), torch.rand(1, 3, 3, 2))
    assert not layer.routing.fused(layer.votes(capsules))
    assert layer(capsules).poses.isfinite().all()


def test_windows_need_a_grid() -> None:
    with pytest.raises(ValueError, match="grid of poses"):
        Votes(torch.zeros(2, 3, 4), torch.zeros(3, 2, 4, 4), window=Window((1, 1)))
