"""The agreement step: its kernels, in Triton's interpreter."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import Tensor, library

import torchcaps as tc
from helpers.kernels.cases import (
    CASES,
    DTYPES,
    FUSED,
    agreement,
    compare,
    compare_routing,
    exact_agreement,
    operator_arguments,
)
from helpers.repetitions import mark_slow_except
from helpers.routings import route, sizes_for
from torchcaps import kernels
from torchcaps.votes import Votes

if TYPE_CHECKING:
    from helpers.kernels.interpreter import Launch

pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(
    "name", mark_slow_except(CASES, "few windows", "linear vector", "no batch", "many parents")
)
def test_an_agreement_step_errs_no_more_than_plain_pytorch(name: str, dtype: str) -> None:
    case, kind = CASES[name], DTYPES[dtype]
    got = agreement(case, kind, "cpu", fused=True)
    plain = agreement(case, kind, "cpu", fused=False)
    compare(got, plain, exact_agreement(case, kind, "cpu"), kind)


@pytest.mark.parametrize("case", mark_slow_except(["linear matrix", "few windows"], "few windows"))
@pytest.mark.parametrize("name", mark_slow_except(FUSED, "dynamic"))
def test_routings_err_no_more_than_the_plain_functions(name: str, case: str) -> None:
    compare_routing(CASES[case], FUSED[name], torch.float32, "cpu")


LOW = ["dynamic", "inverted attention", "inverted attention, activated", "em"]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOW)
def test_routings_err_no_more_in_bfloat16(name: str) -> None:
    compare_routing(CASES["few windows"], FUSED[name], torch.bfloat16, "cpu")


BY_TILES = ["partial_normalizer_kernel", "normalizer_kernel", "partial_mean_kernel"]


@pytest.mark.parametrize(("j", "tiled"), [(64, False), (65, True)])
def test_only_parents_of_several_tiles_need_normalizers(
    j: int, tiled: bool, launches: "list[Launch]"
) -> None:
    case = replace(CASES["many parents"], grid=(1, 2, 2, 1, 2), j=j)
    agreement(case, torch.bfloat16, "cpu", fused=True)
    names = [launch.kernel for launch in launches]
    assert [name for name in names if name in BY_TILES] == BY_TILES * tiled


@pytest.mark.parametrize("leaky", [False, True])
def test_votes_of_zero_couple_alike_to_many_parents(leaky: bool) -> None:
    poses, parents = (torch.zeros(2, n, 4, requires_grad=True) for n in (3, 140))
    weight = torch.randn(3, 140, 2, 2, requires_grad=True)
    sums, couplings = kernels.attend(Votes(poses, weight), parents, leaky=leaky)
    torch.testing.assert_close(couplings, torch.full_like(couplings, 1 / (140 + leaky)))
    gradients = torch.autograd.grad(sums.sum() + couplings.square().sum(), (poses, weight, parents))
    expected = weight.sum(dim=(1, 3)).repeat(1, 2) / (140 + leaky)
    torch.testing.assert_close(gradients[0], expected.expand(2, 3, 4))
    assert all(not gradient.any() for gradient in gradients[1:])


def test_long_votes_couple_alike_to_many_equal_parents() -> None:
    votes = Votes(torch.full((2, 3, 4), 1e3), torch.ones(3, 1, 2, 2).repeat(1, 140, 1, 1))
    _, couplings = kernels.attend(votes, torch.ones(2, 1, 4).repeat(1, 140, 1))
    torch.testing.assert_close(couplings, torch.full((2, 3, 140), 1 / 140), rtol=1e-6, atol=0.0)


@pytest.mark.parametrize("size", [1e2, 1e4])
@pytest.mark.parametrize("leaky", mark_slow_except([False, True], True))
def test_couplings_of_long_votes_sum_to_one_over_many_parents(size: float, leaky: bool) -> None:
    torch.manual_seed(0)
    votes = Votes(size * torch.randn(2, 3, 4), torch.randn(3, 140, 2, 2))
    parents = torch.randn(2, 140, 4)
    sums, couplings = kernels.attend(votes, parents, leaky=leaky)
    logits = torch.einsum("bije,bje->bij", votes.dense(), parents)
    largest = logits.max(dim=-1)
    settled = largest.values > 0 if leaky else torch.ones_like(largest.values, dtype=torch.bool)
    assert sums.isfinite().all()
    total = couplings.sum(dim=-1)
    torch.testing.assert_close(total[settled], torch.ones_like(total[settled]))
    assert torch.equal(couplings.argmax(dim=-1)[settled], largest.indices[settled])


@pytest.mark.parametrize("shape", [(1, 1, 4), (6, 1, 1), (1, 1, 1)])
@pytest.mark.parametrize("routing", [tc.DynamicRouting, tc.EMRouting])
def test_a_bias_may_be_broadcast(routing: Any, shape: tuple[int, int, int]) -> None:
    torch.manual_seed(0)
    votes = Votes(torch.randn(2, 6, 4), torch.randn(6, 3, 2, 2), bias=torch.randn(shape))
    activations = torch.rand(2, 6) if routing is tc.EMRouting else None
    got, plain = (
        route(routing(sizes_for(votes), implementation=way), votes, activations)
        for way in ("fused", "torch")
    )
    for a, b in zip(got, plain, strict=True):
        torch.testing.assert_close(a, b)


def test_a_learned_bias_of_self_attention_reaches_the_kernel() -> None:
    case = CASES["few windows"]
    inputs = case.inputs(torch.float64, "cpu")
    votes = case.votes({name: tensor.float() for name, tensor in inputs.items()})
    sizes = sizes_for(votes)
    bias = torch.randn(sizes.n_children, sizes.n_parents)
    plain, fused = (tc.SelfAttentionRouting(sizes, implementation=w) for w in ("torch", "fused"))
    for routing in (plain, fused):
        routing.load_state_dict({"bias": bias})
    unbiased = route(tc.SelfAttentionRouting(sizes), votes)
    for got, expected in zip(route(fused, votes), route(plain, votes), strict=True):
        torch.testing.assert_close(got, expected)
    assert not torch.allclose(unbiased.poses, route(fused, votes).poses, atol=0.01)


def test_the_operator_keeps_its_promises() -> None:
    poses, weight, parents, window = operator_arguments()
    torch.use_deterministic_algorithms(False)
    arguments = (poses, weight, None, parents, window, 0.5, False)
    library.opcheck(torch.ops.torchcaps.attend.default, arguments)


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
