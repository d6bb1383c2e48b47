"""Pairwise routing: its kernels, in Triton's interpreter."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, library
from torch._dynamo.backends.common import aot_autograd
from torch._functorch._aot_autograd.utils import make_boxed_func

import torchcaps as tc
from helpers.kernels.cases import (
    CASES,
    DTYPES,
    PAIRWISE,
    SCALED,
    compare_routing,
    operator_arguments,
)
from helpers.repetitions import mark_slow_except
from helpers.routings import route, sizes_for
from torchcaps.votes import Votes

pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", mark_slow_except(SCALED, "per capsule"))
def test_pairwise_votes_may_have_a_scale(case: str, dtype: str) -> None:
    compare_routing(SCALED[case], PAIRWISE["pairwise"], DTYPES[dtype], "cpu", n_draws=2)


@pytest.mark.parametrize(
    "case", mark_slow_except(["few windows", "shared and biased"], "few windows")
)
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
        route(tc.PairwiseRouting(sizes_for(votes), implementation=way), votes)
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
    votes = Votes(poses, weight, scale)
    routed = route(tc.PairwiseRouting(sizes_for(votes), implementation="fused"), votes)
    assert [list(x.shape) for x in routed] == [[0, 3, 4], [0, 3], [0, 5, 3]]
    for x in torch.autograd.grad(
        torch.cat([x.flatten() for x in routed]).sum(), (poses, weight, scale)
    ):
        assert torch.equal(x, torch.zeros_like(x))


@pytest.mark.parametrize("scaled", mark_slow_except([False, True], True))
def test_the_pairwise_operators_keep_their_promises(scaled: bool) -> None:
    poses, weight, total, window = operator_arguments()
    torch.use_deterministic_algorithms(False)
    scale = torch.randn(4, requires_grad=True) if scaled else None
    bias = torch.randn(8, 3, 4, requires_grad=True) if scaled else None
    votes = (poses, weight, scale, bias, window)
    library.opcheck(torch.ops.torchcaps.pairwise_sums.default, (*votes, True))
    library.opcheck(torch.ops.torchcaps.pairwise_links.default, (*votes, total, True, 0.1))


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
