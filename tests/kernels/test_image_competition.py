"""EM routing in which the parents of all windows compete, in Triton's interpreter."""

from functools import partial

import pytest
import torch

import torchcaps as tc
from helpers.kernels.cases import DTYPES, FUSED, IMAGE, Case, compare_routing
from helpers.repetitions import mark_slow_except
from helpers.routings import route, sizes_for
from torchcaps.layers.windows import same_child
from torchcaps.routing import Sizes
from torchcaps.votes import Votes, Window

pytestmark = pytest.mark.usefixtures("interpreter")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", mark_slow_except([1, 2, 3], 2))
@pytest.mark.parametrize("name", mark_slow_except(IMAGE, "side by side"))
def test_parents_of_all_windows_err_no_more(name: str, iterations: int, dtype: str) -> None:
    make = partial(partial, tc.EMRouting, iterations=iterations)
    compare_routing(IMAGE[name], make, DTYPES[dtype], "cpu", n_draws=4)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_poses_too_large_for_squares_err_no_more(dtype: str) -> None:
    case = Case((1, 4, 4, 2, 36), 3, 6, 6, Window((3, 3)), image=True)
    make = partial(partial, tc.EMRouting, iterations=2)
    compare_routing(case, make, DTYPES[dtype], "cpu", n_draws=2)


@pytest.mark.parametrize("iterations", mark_slow_except([1, 2, 3], 3))
@pytest.mark.parametrize("name", mark_slow_except(IMAGE, "padded strides"))
def test_the_parents_of_a_child_share_it_over_the_whole_image(name: str, iterations: int) -> None:
    inputs = {k: x.float() for k, x in IMAGE[name].inputs(torch.float32, "cpu").items()}
    votes = IMAGE[name].votes(inputs)
    routing = tc.EMRouting(sizes_for(votes), iterations=iterations, implementation="fused")
    shares = route(routing, votes, inputs["activations"]).couplings.sum(dim=-1)  # [b i]
    assert votes.child is not None
    total = torch.zeros(shares.numel()).index_add(0, votes.child.flatten(), shares.flatten())
    seen = votes.child.unique()
    torch.testing.assert_close(total[seen], torch.ones(len(seen)))
    assert len(seen) < shares.numel()


def test_a_child_that_one_window_sees_is_shared_within_it() -> None:
    torch.manual_seed(0)
    poses, weight = torch.randn(3, 9, 16), torch.randn(9, 4, 4, 4)
    activations, numbers = torch.rand(3, 9), torch.arange(27).reshape(3, 9)
    routing = tc.EMRouting(Sizes(9, 4, 16, 16), implementation="fused")
    alone, numbered = (
        route(routing, Votes(poses, weight, child=c), activations) for c in (None, numbers)
    )
    for a, b in zip(numbered, alone, strict=True):
        torch.testing.assert_close(a, b)


def test_no_images_at_all_are_routed() -> None:
    poses = torch.zeros(0, 3, 3, 2, 4, requires_grad=True)
    weight = torch.randn(8, 3, 2, 2, requires_grad=True)
    child = same_child((0, 2, 2), (2, 2), (1, 1), 2, poses.device)
    votes = Votes(poses, weight, child=child, window=Window((2, 2)))
    routing = tc.EMRouting(sizes_for(votes), implementation="fused")
    routed = route(routing, votes, torch.zeros(0, 8))
    assert [list(x.shape) for x in routed] == [[0, 3, 4], [0, 3], [0, 8, 3]]
    for x in torch.autograd.grad(torch.cat([x.flatten() for x in routed]).sum(), (poses, weight)):
        assert torch.equal(x, torch.zeros_like(x))


@pytest.mark.parametrize("factor", mark_slow_except([1.0, 1e4, 1e8], 1e8))
def test_votes_of_any_size_stay_finite(factor: float) -> None:
    case = IMAGE["strides"]
    inputs = {k: x.float() for k, x in case.inputs(torch.float32, "cpu").items()}
    inputs["poses"][:, 2] *= factor  # a row that two windows see
    leaf = inputs["poses"].requires_grad_()
    routing = tc.EMRouting(sizes_for(case.votes(inputs)), implementation="fused")
    routed = route(routing, case.votes(inputs), inputs["activations"])
    assert all(bool(x.isfinite().all()) for x in routed)
    loss = routed.poses.sum() + routed.activations.sum() + routed.couplings.square().sum()
    (gradient,) = torch.autograd.grad(loss, leaf)
    assert bool(gradient.isfinite().all())


@pytest.mark.slow
def test_a_layer_of_the_whole_image_compiles() -> None:
    torch.use_deterministic_algorithms(False)
    torch.manual_seed(0)
    layer = tc.ConvCapsules(
        2, 3, 4, 4, kernel_size=2, routing=FUSED["em"](implementation="fused"), matrix=True
    )
    assert layer.competition == "image"
    poses, activations = torch.randn(2, 3, 3, 2, 4), torch.rand(2, 3, 3, 2)

    def forward(poses: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(layer(tc.Capsules(poses, activations)))

    expected = forward(poses)
    compiled = torch.compile(forward, fullgraph=True, backend="aot_eager")(poses)
    for a, b in zip(compiled, expected, strict=True):
        torch.testing.assert_close(a, b)
    gradients = [torch.autograd.grad(x[0].sum(), layer.weight) for x in (compiled, expected)]
    torch.testing.assert_close(*gradients)
