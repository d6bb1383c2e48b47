"""When kernels run, on which device, and why not."""

import contextlib
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from helpers.kernels.cases import FUSED, IMAGE, PAIRWISE
from helpers.processes import run_python
from helpers.routings import route, sizes_for
from torchcaps import kernels
from torchcaps.kernels.common.operators import operands
from torchcaps.routing import Sizes
from torchcaps.votes import Votes, Window

if TYPE_CHECKING:
    from helpers.kernels.interpreter import Launch


def test_importing_the_package_does_not_import_triton() -> None:
    out = run_python("-c", "import sys, torchcaps; print('triton' in sys.modules)")
    assert out.strip() == "False"


def test_without_a_gpu_the_plain_function_runs_and_says_why() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    votes = Votes(torch.randn(2, 3, 4), torch.randn(3, 5, 4, 4))
    automatic, plain = (
        tc.DynamicRouting(sizes_for(votes)),
        tc.DynamicRouting(sizes_for(votes), implementation="torch"),
    )
    assert "implementation=torch (there is no CUDA device)" in repr(automatic)
    for a, b in zip(route(automatic, votes), route(plain, votes), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="there is no CUDA device"):
        route(tc.DynamicRouting(sizes_for(votes), implementation="fused"), votes)


def test_a_routing_without_a_kernel_refuses_to_be_fused() -> None:
    with pytest.raises(ValueError, match="no fused kernel"):
        tc.AttentionRouting(Sizes(2, 3, 8, 4), implementation="fused")


@pytest.mark.usefixtures("interpreter")
def test_the_repr_says_that_the_kernel_runs() -> None:
    sizes = Sizes(3, 4, 8, 5)
    assert "implementation=fused" in repr(tc.DynamicRouting(sizes))
    assert "implementation=torch" in repr(tc.DynamicRouting(sizes, implementation="torch"))
    assert "priors are learned" in repr(tc.DynamicRouting(sizes, learned_priors=True))


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


@pytest.mark.usefixtures("interpreter")
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


MANY = Votes(torch.zeros(1, 1, 4), torch.zeros(1, 1000, 2, 2))


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("name", FUSED | PAIRWISE)
def test_only_agreement_takes_parents_of_several_tiles(name: str) -> None:
    routing = (FUSED | PAIRWISE)[name]()(sizes_for(MANY))
    agrees = name.startswith(("dynamic", "inverted", "self")) and "activated" not in name
    assert routing.path(MANY) == ("fused" if agrees else "plain")
    assert ("implementation=fused" in repr(routing)) == agrees
    if not agrees:
        with pytest.raises(ValueError, match="too many for one tile"):
            (FUSED | PAIRWISE)[name](implementation="fused")(sizes_for(MANY)).path(MANY)


@pytest.mark.usefixtures("interpreter")
@pytest.mark.parametrize("shape", [(1, 2**29, 2, 2), (2**19, 2**10, 2, 2)])
def test_weights_beyond_the_kernels_offsets_are_refused(shape: tuple[int, ...]) -> None:
    weight = torch.zeros(1).expand(shape)
    votes = Votes(torch.zeros(1).expand(1, shape[0], 4), weight)
    why = kernels.obstacle(votes, tiled=True)
    assert why is not None
    assert "more weights or couplings than kernels can count" in why


@pytest.mark.usefixtures("interpreter")
def test_rows_longer_than_a_tile_are_refused() -> None:
    votes = Votes(torch.zeros(1, 1, 4), torch.zeros(1, 5, 4, 130))
    assert "too many for one tile" in (kernels.obstacle(votes, tiled=True) or "")


@pytest.mark.usefixtures("interpreter")
def test_large_poses_with_a_scale_take_the_plain_function() -> None:
    votes = Votes(torch.randn(2, 3, 256), torch.randn(3, 4, 16, 1), torch.ones(16))
    with pytest.raises(ValueError, match="16x16 with a scale"):
        route(tc.PairwiseRouting(sizes_for(votes), implementation="fused"), votes)
    assert route(tc.PairwiseRouting(sizes_for(votes)), votes).poses.isfinite().all()


def test_windows_need_a_grid() -> None:
    with pytest.raises(ValueError, match="grid of poses"):
        Votes(torch.zeros(2, 3, 4), torch.zeros(3, 2, 4, 4), window=Window((1, 1)))


@pytest.mark.usefixtures("interpreter")
def test_only_em_routing_has_a_kernel_for_competing_windows() -> None:
    inputs = {k: x.float() for k, x in IMAGE["strides"].inputs(torch.float32, "cpu").items()}
    votes = IMAGE["strides"].votes(inputs)
    assert kernels.obstacle(votes) == "parents of different windows compete"
    with pytest.raises(ValueError, match="parents of different windows compete"):
        route(tc.DynamicRouting(sizes_for(votes), implementation="fused"), votes)
    assert tc.EMRouting(sizes_for(votes)).path(kernels.lowered(votes)) == "fused"


def test_kernels_run_on_the_gpu_of_their_tensors(
    launches: "list[Launch]", monkeypatch: pytest.MonkeyPatch
) -> None:
    on_device: list[Launch] = []

    @contextlib.contextmanager
    def device_of(tensor: Tensor) -> Iterator[None]:
        start = len(launches)
        yield
        on_device.extend(launches[start:])

    monkeypatch.setattr(torch.cuda, "device_of", device_of)
    poses, activations = torch.randn(2, 3, 4, requires_grad=True), torch.rand(2, 3)
    for make in (FUSED["inverted attention"], FUSED["em"], PAIRWISE["pairwise"]):
        votes = Votes(poses, torch.randn(3, 2, 4, 4))
        routed = route(make()(sizes_for(votes)), votes, activations)
        (routed.poses.sum() + routed.couplings.square().sum()).backward()
    assert len(launches) > 10
    assert len(on_device) == len(launches)


@pytest.mark.usefixtures("interpreter")
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


@pytest.mark.usefixtures("interpreter")
def test_an_address_outside_the_tensors_is_noticed() -> None:
    poses, weight = torch.randn(2, 6, 4), torch.randn(6, 3, 2, 2)
    votes = Votes(poses, weight, bias=torch.randn(1, 1, 4))
    poses, weight, bias, window = operands(votes)
    assert bias is not None
    with pytest.raises(Exception, match="addresses are outside the tensors"):
        torch.ops.torchcaps.attend(
            poses, weight, bias[:1].clone(), torch.randn(2, 3, 4), window, 1.0, False
        )
