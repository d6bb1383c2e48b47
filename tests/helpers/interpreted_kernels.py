"""Kernels in Triton's interpreter; run by test_kernels.py with TRITON_INTERPRET=1."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.kernel_cases import (
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
from helpers.routings import route
from torchcaps.kernels import (
    gaussian_launch,
    launch,
    ops,
)
from torchcaps.kernels.moments.launch import Moments
from torchcaps.kernels.moments.products_launch import by_products
from torchcaps.routing import RoutingFactory, Sizes
from torchcaps.votes import Votes, Window

pytest_plugins = ["interpreter"]
torch.set_num_threads(1)
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


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


LOW = ["dynamic", "inverted attention", "inverted attention, activated", "em"]


@pytest.mark.parametrize("name", LOW)
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


def _activated(**options: Any) -> RoutingFactory:
    return partial(tc.InvertedAttentionRouting, **{"iterations": 2, "activated": True} | options)


@pytest.mark.parametrize("make", [_two_iterations, _activated])
@pytest.mark.parametrize("name", SQUARES)
def test_squares_in_place_of_votes_err_no_more(
    name: str, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[bool] = []

    def watched(given: Moments) -> bool:
        taken.append(by_products(given))
        return taken[-1]

    monkeypatch.setattr(gaussian_launch, "by_products", watched)
    compare_routing(SQUARES[name], make, torch.bfloat16, "cpu")
    assert taken
    assert all(taken)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["odd windows", "shared and biased"])
def test_activated_attention_errs_no_more(name: str, dtype: str) -> None:
    compare_routing(CASES[name], _activated, DTYPES[dtype], "cpu", n_draws=2)


def test_activated_attention_starts_from_given_parents() -> None:
    torch.manual_seed(0)
    shapes = ((3, 9, 16), (9, 4, 4, 4), (3, 4, 16))
    poses, weight, before = (torch.randn(shape).double() for shape in shapes)
    activations = torch.rand(3, 9).double()

    def everything(kind: torch.dtype, way: str) -> dict[str, Tensor]:
        make = _activated(iterations=1, scale=0.7, implementation=way)
        routing = make(Sizes(9, 4, 8, 16)).to(kind)
        parents = before.to(kind).requires_grad_()
        votes = Votes(poses.to(kind), weight.to(kind))
        routed = route(routing, votes, activations.to(kind), parents)
        loss = (routed.poses * before.to(kind)).sum() + 50 * routed.activations.sum()
        (gradient,) = torch.autograd.grad(loss, parents)
        return {**routed._asdict(), "d parents": gradient}

    got, plain = (everything(torch.float32, way) for way in ("fused", "torch"))
    compare(got, plain, everything(torch.float64, "torch"), torch.float32)


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
        route(routing(Sizes(6, 3, 8, 4), implementation=way), votes, activations)
        for way in ("fused", "torch")
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
        route(routing(Sizes(3, 2, 8, 4)), votes, activations).poses.sum().backward()
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
def test_pairwise_votes_need_not_be_normalized(case: str) -> None:
    make = PAIRWISE["pairwise, not normalized"]
    compare_routing((CASES | SCALED)[case], make, torch.float32, "cpu", n_draws=2)


def test_a_vote_without_a_direction_counts_as_zero_and_gets_no_gradient() -> None:
    torch.manual_seed(0)
    poses = torch.randn(2, 5, 4)
    poses[:, 1], poses[:, 2] = 0, 1e-8 * poses[:, 2]
    poses.requires_grad_()
    votes = Votes(poses, torch.randn(5, 3, 4, 4))
    got, plain = (
        route(tc.PairwiseRouting(Sizes(5, 3, 8, 4), implementation=way), votes)
        for way in ("fused", "torch")
    )
    for a, b in zip(got, plain, strict=True):
        torch.testing.assert_close(a, b)
    (gradient,) = torch.autograd.grad(got.poses.sum() + got.couplings.square().sum(), poses)
    assert torch.equal(gradient[:, 1:3], torch.zeros(2, 2, 4))
    assert bool((gradient[:, 3:] != 0).any())


def test_no_pairwise_votes_at_all_are_routed() -> None:
    poses = torch.zeros(0, 5, 4, requires_grad=True)
    weight, scale = torch.randn(5, 3, 4, 4, requires_grad=True), torch.ones(4, requires_grad=True)
    routed = route(
        tc.PairwiseRouting(Sizes(5, 3, 8, 4), implementation="fused"), Votes(poses, weight, scale)
    )
    assert [list(x.shape) for x in routed] == [[0, 3, 4], [0, 3], [0, 5, 3]]
    for x in torch.autograd.grad(
        torch.cat([x.flatten() for x in routed]).sum(), (poses, weight, scale)
    ):
        assert torch.equal(x, torch.zeros_like(x))


def test_the_repr_says_that_the_kernel_runs() -> None:
    assert "implementation=fused" in repr(tc.DynamicRouting(Sizes(3, 4, 8, 5)))
    assert "implementation=torch" in repr(
        tc.DynamicRouting(Sizes(3, 4, 8, 5), implementation="torch")
    )
    assert "priors are learned" in repr(tc.DynamicRouting(Sizes(3, 4, 8, 5), learned_priors=True))


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
        route(tc.DynamicRouting(Sizes(3, 4, 8, 4), implementation="fused"), votes)
    routing = tc.DynamicRouting(Sizes(3, 4, 8, 4))
    assert route(routing.to(torch.float64 if "float32" in why else None), votes)


def test_large_poses_with_a_scale_take_the_plain_function() -> None:
    votes = Votes(torch.randn(2, 3, 256), torch.randn(3, 4, 16, 1), torch.ones(16))
    with pytest.raises(ValueError, match="16x16 with a scale"):
        route(tc.PairwiseRouting(Sizes(3, 4, 8, 16), implementation="fused"), votes)
    assert route(tc.PairwiseRouting(Sizes(3, 4, 8, 16)), votes).poses.isfinite().all()


def test_windows_need_a_grid() -> None:
    with pytest.raises(ValueError, match="grid of poses"):
        Votes(torch.zeros(2, 3, 4), torch.zeros(3, 2, 4, 4), window=Window((1, 1)))
