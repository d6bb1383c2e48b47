"""The agreement step in plain PyTorch, a chunk of windows at a time."""

import pytest
import torch

import torchcaps as tc
from helpers.routings import route, sizes_for
from torchcaps.kernels import attend_in_chunks, worth_chunking
from torchcaps.kernels.attend import chunked
from torchcaps.votes import Votes, Window


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("leaky", [False, True])
def test_chunks_give_what_dense_votes_give(
    shared: bool, leaky: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(chunked, "CPU_CHUNK", 700)
    poses = torch.randn(3, 4, 5, 2, 12, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(2 if shared else 12, 5, 4, 3, dtype=torch.float64, requires_grad=True)
    bias = torch.randn(12, 1, 9, dtype=torch.float64)
    votes = Votes(poses, weight, bias=bias, window=Window((3, 2), (1, 2), (1, 1)))
    parents = torch.randn(votes.shape[0], 5, 9, dtype=torch.float64, requires_grad=True)
    assert worth_chunking(votes)
    got = attend_in_chunks(votes, parents, scale=0.3, leaky=leaky)
    dense = votes.dense()
    logits = 0.3 * torch.einsum("bije,bje->bij", dense, parents)
    if leaky:
        logits = torch.nn.functional.pad(logits, (1, 0))
    couplings = logits.softmax(dim=-1)[..., -5:]
    expected = torch.einsum("bij,bije->bje", couplings, dense), couplings
    leaves = (poses, weight, parents)
    towards = [torch.randn_like(x) for x in expected]
    gradients = [
        torch.autograd.grad((out[0] * towards[0]).sum() + (out[1] * towards[1]).sum(), leaves)
        for out in (got, expected)
    ]
    for a, b in zip((*got, *gradients[0]), (*expected, *gradients[1]), strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize("name", ["DynamicRouting", "InvertedAttentionRouting"])
def test_many_votes_are_routed_in_chunks_to_the_same_parents(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    grid = torch.randn(2, 4, 4, 2, 16, dtype=torch.float64)
    weight = torch.randn(18, 4, 4, 2, dtype=torch.float64)
    votes = Votes(grid, weight, window=Window((3, 3)))
    routing = getattr(tc, name)(sizes_for(votes), iterations=3).double()
    expected = route(routing, votes.dense())
    monkeypatch.setattr(chunked, "CPU_CHUNK", 1000)
    assert routing.path(votes) == "chunked"
    for a, b in zip(route(routing, votes), expected, strict=True):
        torch.testing.assert_close(a, b)


@pytest.mark.parametrize(
    ("batch", "dtype", "in_chunks"),
    [(128, torch.bfloat16, False), (128, torch.float32, True), (256, torch.bfloat16, True)],
)
def test_a_gpu_casts_votes_of_up_to_a_gigabyte_and_a_half_at_once(
    batch: int, dtype: torch.dtype, in_chunks: bool
) -> None:
    grid = torch.empty(batch, 8, 8, 16, 64, dtype=dtype, device="meta")
    weight = torch.empty(144, 16, 64, 64, dtype=dtype, device="meta")
    votes = Votes(grid, weight, window=Window((3, 3)))
    assert chunked.worth_chunking(votes) == in_chunks


@pytest.mark.parametrize("window", [None, Window((3, 3), (2, 1), (1, 0))])
def test_the_sum_of_votes_needs_no_votes(window: Window | None) -> None:
    torch.manual_seed(0)
    shape = (2, 6, 5, 3, 12) if window else (2, 6, 12)
    poses = torch.randn(shape, dtype=torch.float64)
    weight = torch.randn(27 if window else 3, 4, 4, 2, dtype=torch.float64)
    bias = torch.randn(27 if window else 6, 1, 6, dtype=torch.float64)
    votes = Votes(poses, weight, bias=bias, window=window)
    torch.testing.assert_close(votes.total(), votes.dense().sum(dim=1))
    shared = Votes(poses, weight[:3], bias=bias, window=window)
    torch.testing.assert_close(shared.total(), shared.dense().sum(dim=1))
    scaled = Votes(poses, weight, torch.randn(6, dtype=torch.float64), bias, window=window)
    torch.testing.assert_close(scaled.total(), scaled.dense().sum(dim=1))


@pytest.mark.parametrize("iterations", [1, 2, 3, 5])
def test_updates_that_never_reach_the_classes_can_be_left_out(iterations: int) -> None:
    torch.manual_seed(0)
    network = tc.build("tsai2020/cifar10-simple").eval()
    network.set_iterations(iterations)
    images = torch.rand(1, 3, 32, 32)
    whole, needed = network(images, couplings=True), network(images)
    assert torch.equal(whole.scores, needed.scores)
    assert len(whole.couplings) == 3
    weights = list(network.parameters())
    gradients = [torch.autograd.grad(out.scores[:, 0].sum(), weights) for out in (whole, needed)]
    for one, other in zip(*gradients, strict=True):
        assert torch.equal(one, other)
