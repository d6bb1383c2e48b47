"""Fused kernels on a machine without a GPU: in Triton's interpreter, and compiled for one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from helpers.routings import route
from torchcaps.kernels import attend_in_chunks, worth_chunking
from torchcaps.kernels.attend import chunked
from torchcaps.routing import Sizes
from torchcaps.votes import Votes, Window

HERE = Path(__file__).parent
needs_triton = pytest.mark.skipif(
    sys.platform != "linux", reason="Triton has no build for this system"
)


def run(*arguments: str, **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": f"src{os.pathsep}tests", **variables},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]
    return done.stdout


@needs_triton
@pytest.mark.parametrize("what", ["kernels", "image", "operators"])
def test_all_pass_in_the_interpreter(what: str) -> None:
    out = run(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", f"tests/helpers/interpreted_{what}.py",
        TRITON_INTERPRET="1",
    )  # fmt: skip
    assert " passed" in out
    assert "skipped" not in out


@needs_triton
def test_kernels_compile_for_a_gpu_that_is_not_here(tmp_path: Path) -> None:
    out = run(
        "tests/helpers/compile_kernels.py", TRITON_CACHE_DIR=str(tmp_path), TRITON_INTERPRET="0"
    )
    assert out.count("wgmma") >= 8


def test_importing_the_package_does_not_import_triton() -> None:
    assert run("-c", "import sys, torchcaps; print('triton' in sys.modules)").strip() == "False"


def test_without_a_gpu_the_plain_function_runs_and_says_why() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    votes = Votes(torch.randn(2, 3, 4), torch.randn(3, 5, 4, 4))
    automatic, plain = (
        tc.DynamicRouting(Sizes(3, 5, 8, 4)),
        tc.DynamicRouting(Sizes(3, 5, 8, 4), implementation="torch"),
    )
    assert "implementation=torch (there is no CUDA device)" in repr(automatic)
    for a, b in zip(automatic(votes), plain(votes), strict=True):
        assert torch.equal(a, b)
    with pytest.raises(ValueError, match="there is no CUDA device"):
        route(tc.DynamicRouting(Sizes(3, 5, 8, 4), implementation="fused"), votes)


def test_a_routing_without_a_kernel_refuses_to_be_fused() -> None:
    with pytest.raises(ValueError, match="no fused kernel"):
        tc.AttentionRouting(Sizes(2, 3, 8, 4), implementation="fused")


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
    routing = getattr(tc, name)(18, 4, 8, iterations=3).double()
    grid = torch.randn(2, 4, 4, 2, 16, dtype=torch.float64)
    weight = torch.randn(18, 4, 4, 2, dtype=torch.float64)
    votes = Votes(grid, weight, window=Window((3, 3)))
    expected = route(routing, votes.dense())
    monkeypatch.setattr(chunked, "CPU_CHUNK", 1000)
    assert routing.chunked(votes)
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


@needs_triton
@pytest.mark.parametrize("least", [1, 2, 4])
def test_programs_share_out_all_children_of_a_tile(least: int) -> None:
    from torchcaps.kernels.common.layout import SLOTS, split

    for tiles in (0, 1, 2, 7, 32, 131, 263, 264, 265, 400, 1568, 10**6):
        for n_children in (0, 1, 2, 3, 5, 31, 33, 288, 1152, 10**5):
            n_part, parts = split(tiles, n_children, least)
            assert n_part >= 1
            assert n_part % least == 0
            assert parts * n_part >= n_children
            assert (parts - 1) * n_part < max(n_children, 1)
            assert tiles * parts <= max(SLOTS, 8 * tiles), "sums of parts take memory"
