"""Moments of votes for EM routing: their kernels, in Triton's interpreter."""

from functools import partial
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, library

import torchcaps as tc
from helpers.kernels.cases import (
    CASES,
    DTYPES,
    FUSED,
    Case,
    compare,
    compare_routing,
    operator_arguments,
)
from helpers.repetitions import mark_slow_except
from helpers.routings import route, sizes_for
from torchcaps.routing import RoutingFactory, Sizes
from torchcaps.votes import Votes

if TYPE_CHECKING:
    from helpers.kernels.interpreter import Launch

pytestmark = pytest.mark.usefixtures("interpreter")


SQUARES = {
    "few parents": Case((3, 1, 1, 8, 8), 2, 4, 2),
    "windows": CASES["windows"],
    "scattered": CASES["scattered"],
    "shared": Case((2, 2, 3, 3, 12), 5, 4, 4, shared=True),
}


def _two_iterations(**options: Any) -> RoutingFactory:
    return partial(tc.EMRouting, iterations=2, **options)


def _activated(**options: Any) -> RoutingFactory:
    return partial(tc.InvertedAttentionRouting, **{"iterations": 2, "activated": True} | options)


@pytest.mark.parametrize("make", [_two_iterations, _activated])
@pytest.mark.parametrize("name", mark_slow_except(SQUARES, "few parents"))
def test_squares_in_place_of_votes_err_no_more(
    name: str, make: Any, launches: "list[Launch]"
) -> None:
    compare_routing(SQUARES[name], make, torch.bfloat16, "cpu")
    kernels = {launch.kernel for launch in launches}
    assert {"uniform_moments_kernel", "product_weight_kernel"} <= kernels
    assert not kernels & {"gaussian_child_kernel", "gaussian_weight_kernel"}


@pytest.mark.parametrize("dtype", mark_slow_except(DTYPES, "float32"))
@pytest.mark.parametrize(
    "name", mark_slow_except(["odd windows", "shared and biased"], "shared and biased")
)
def test_activated_attention_errs_no_more(name: str, dtype: str) -> None:
    compare_routing(CASES[name], _activated, DTYPES[dtype], "cpu", n_draws=2)


def test_activated_attention_starts_from_given_parents() -> None:
    torch.manual_seed(0)
    shapes = ((3, 9, 16), (9, 4, 4, 4), (3, 4, 16))
    poses, weight, before = (torch.randn(shape).double() for shape in shapes)
    activations = torch.rand(3, 9).double()

    def everything(kind: torch.dtype, way: str) -> dict[str, Tensor]:
        make = _activated(iterations=1, scale=0.7, implementation=way)
        routing = make(Sizes(9, 4, 16, 16)).to(kind)
        parents = before.to(kind).requires_grad_()
        votes = Votes(poses.to(kind), weight.to(kind))
        routed = route(routing, votes, activations.to(kind), parents)
        loss = (routed.poses * before.to(kind)).sum() + 50 * routed.activations.sum()
        (gradient,) = torch.autograd.grad(loss, parents)
        return {**routed._asdict(), "d parents": gradient}

    got, plain = (everything(torch.float32, way) for way in ("fused", "torch"))
    compare(got, plain, everything(torch.float64, "torch"), torch.float32)


@pytest.mark.parametrize("n_children", mark_slow_except([1, 2, 3], 2))
def test_few_children_err_no_more_in_bfloat16(n_children: int) -> None:
    case = Case((5, 1, 1, n_children, 16), 3, 4, 4)
    compare_routing(case, _two_iterations, torch.bfloat16, "cpu")


def test_couplings_that_nobody_uses_have_no_gradient(launches: "list[Launch]") -> None:
    poses, activations = torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3)
    for routing in (FUSED["dynamic"](), _two_iterations()):
        votes = Votes(poses, torch.randn(3, 2, 4, 4))
        route(routing(sizes_for(votes)), votes, activations).poses.sum().backward()
    gradients = [x.arguments["d_couplings"] for x in launches if "d_couplings" in x.arguments]
    assert len(gradients) >= 4
    assert all(gradient is None for gradient in gradients)


@pytest.mark.parametrize(
    "what", mark_slow_except(["window", "image", "linear", "uniform"], "image", "uniform")
)
def test_the_moments_operator_keeps_its_promises(what: str) -> None:
    poses, weight, center, window = operator_arguments()
    torch.use_deterministic_algorithms(False)
    activations = torch.rand(8, 8, requires_grad=True)
    constant = None if what == "uniform" else torch.randn(8, 3, requires_grad=True)
    linear = torch.randn(8, 3, 4, requires_grad=True) if what == "linear" else None
    square = (-torch.rand(8, 3, 4)).requires_grad_() if what in ("window", "image") else None
    child = torch.arange(64).reshape(8, 8) // 3 if what == "image" else None
    forms = (constant, linear, square)
    arguments = (poses, weight, None, activations, center, *forms, child, window)
    library.opcheck(torch.ops.torchcaps.moments.default, arguments)


@pytest.mark.parametrize("d_parent", [64, 256])
def test_one_parent_with_a_wide_pose_is_routed_like_by_the_plain_function(d_parent: int) -> None:
    torch.manual_seed(0)
    votes = Votes(torch.randn(2, 3, 8), torch.randn(3, 1, 8, d_parent))
    activations = torch.rand(2, 3)
    fused, plain = (
        route(tc.EMRouting(sizes_for(votes), implementation=way), votes, activations)
        for way in ("fused", "torch")
    )
    for got, expected in zip(fused, plain, strict=True):
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)
