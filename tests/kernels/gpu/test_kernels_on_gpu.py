"""Fused kernels on a GPU: errors, determinism, compilation, CUDA graphs, memory."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import torchcaps as tc
from helpers.kernels.cases import (
    CASES,
    FUSED,
    IMAGE,
    PAIRWISE,
    SCALED,
    Case,
    agreement,
    compare,
    compare_routing,
    exact_agreement,
    routed,
)
from torchcaps.kernels import convolve
from torchcaps.votes import Window

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]


@pytest.fixture(autouse=True)
def convolve_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Uniform couplings are one convolution, for which PyTorch allows ten bits by default."""
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


LARGER = {
    "capsule convolution": Case((3, 9, 9, 32, 16), 32, 4, 4, Window((3, 3), (2, 2))),
    "6x6 poses": Case((2, 7, 7, 8, 36), 32, 6, 6, Window((3, 3))),
    "primary to digits": Case((70, 1, 1, 288, 8), 10, 8, 16),
    "a thousand classes": Case((20, 3, 3, 32, 16), 1000, 4, 4, shared=True, biased=True),
    "vectors of 64": Case((3, 8, 8, 16, 64), 16, 64, 64, Window((3, 3))),
    "vectors to digits": Case((130, 1, 1, 576, 64), 10, 64, 64, leaky=True),
}
ALL = CASES | LARGER
ZHAO = {
    "primary to hidden": Case((40, 4, 4, 4, 16), 32, 4, 4, norm="entry"),
    "hidden to classes": Case((130, 1, 1, 16, 16), 10, 4, 4, norm="capsule"),
}
ONE_PASS = SCALED | ZHAO | {k: CASES[k] for k in ("linear vector", "few windows", "odd windows")}
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ALL)
def test_an_agreement_step_errs_no_more_than_plain_pytorch(name: str, dtype: str) -> None:
    case, kind = ALL[name], DTYPES[dtype]
    got = agreement(case, kind, "cuda", fused=True)
    plain = agreement(case, kind, "cuda", fused=False)
    compare(got, plain, exact_agreement(case, kind, "cuda"), kind)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ["linear matrix", "few windows", "shared and biased"])
@pytest.mark.parametrize("name", FUSED)
def test_routings_err_no_more_than_the_plain_functions(name: str, case: str, dtype: str) -> None:
    # in float32 the iterations of variational routing amplify what tensor cores truncate
    times = 4 if (name, dtype) == ("variational", "float32") else 2
    compare_routing(CASES[case], FUSED[name], DTYPES[dtype], "cuda", times=times)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", ONE_PASS)
@pytest.mark.parametrize("name", PAIRWISE)
def test_pairwise_routing_errs_no_more_than_the_plain_function(
    name: str, case: str, dtype: str
) -> None:
    compare_routing(ONE_PASS[case], PAIRWISE[name], DTYPES[dtype], "cuda")


@pytest.mark.parametrize("name", ZHAO)
def test_pairwise_routing_gives_the_same_bits(name: str) -> None:
    fused = PAIRWISE["pairwise"](implementation="fused")
    first, second = (routed(ZHAO[name], fused, torch.bfloat16, "cuda") for _ in range(2))
    for key, value in first.items():
        assert torch.equal(value, second[key]), f"{key} differs from run to run"


def test_capsnets_convolution_errs_no_more_than_cudnns() -> None:
    names = ("out", "d features", "d weight", "d bias")

    def everything(kind: torch.dtype, function: Callable[..., Tensor]) -> dict[str, Tensor]:
        torch.manual_seed(0)
        shapes = ((130, 256, 20, 20), (256, 256, 9, 9), (256,), (130, 256, 6, 6))
        drawn = [torch.randn(shape, device="cuda").bfloat16().to(kind) for shape in shapes]
        leaves = [x.requires_grad_() for x in drawn[:3]]
        out = function(*leaves, (2, 2), (0, 0))
        gradients = torch.autograd.grad((out * drawn[3]).sum(), leaves)
        return dict(zip(names, (out, *gradients), strict=True))

    got, again = (everything(torch.bfloat16, convolve) for _ in range(2))
    assert all(torch.equal(got[name], again[name]) for name in ("out", "d features"))
    plain = functional.conv2d
    compare(
        got, everything(torch.bfloat16, plain), everything(torch.float64, plain), torch.bfloat16
    )


@pytest.mark.filterwarnings("ignore:The CUDA Graph is empty")
def test_what_the_convolution_keeps_is_not_in_the_memory_of_a_graph() -> None:
    from torchcaps.kernels.convolution import launch

    launch._order.cache_clear()
    network = tc.build("sabour2017/mnist-plain").cuda()
    compiled = torch.compile(network, mode="reduce-overhead")
    images = torch.rand(64, 1, 28, 28, device="cuda")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        with torch.autocast("cuda", torch.bfloat16):
            scores = compiled(images).scores
        kept = scores.detach().clone()
        scores.sum().backward()
    with torch.autocast("cuda", torch.bfloat16):
        torch.testing.assert_close(kept, network(images).scores, rtol=2e-2, atol=2e-2)


def test_zhaos_network_scores_alike_with_and_without_the_kernel() -> None:
    torch.manual_seed(0)
    network = tc.ResCapsNet((3, 32, 32), 10, blocks=(1, 1, 1)).cuda().eval()
    images = torch.rand(3, 3, 32, 32, device="cuda")
    assert "implementation=fused" in repr(network)
    fused = network(images, couplings=True)
    for module in network.modules():
        if isinstance(module, tc.PairwiseRouting):
            module.implementation = "torch"
    plain = network(images, couplings=True)
    torch.testing.assert_close(fused.scores, plain.scores, rtol=1e-3, atol=1e-4)
    for a, b in zip(fused.couplings, plain.couplings, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", LARGER)
def test_the_same_input_gives_the_same_bits(name: str) -> None:
    first, second = (agreement(LARGER[name], torch.bfloat16, "cuda", fused=True) for _ in range(2))
    for key, value in first.items():
        assert torch.equal(value, second[key]), f"{key} differs from run to run"


@pytest.mark.parametrize("iterations", [1, 2])
def test_em_without_votes_errs_no_more_and_repeats_itself(iterations: int) -> None:
    case, kind = LARGER["capsule convolution"], torch.bfloat16
    make = partial(partial, tc.EMRouting, iterations=iterations)
    compare_routing(case, make, kind, "cuda")
    first, second = (routed(case, make(implementation="fused"), kind, "cuda") for _ in range(2))
    for key, value in first.items():
        assert torch.equal(value, second[key]), f"{key} differs from run to run"


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["capsule convolution", "6x6 poses"])
def test_activated_attention_errs_no_more_in_a_network(name: str, dtype: str) -> None:
    make = partial(partial, tc.InvertedAttentionRouting, iterations=2, activated=True)
    compare_routing(LARGER[name], make, DTYPES[dtype], "cuda", n_draws=2)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("iterations", [1, 2, 3])
@pytest.mark.parametrize("name", IMAGE)
def test_parents_of_all_windows_err_no_more(name: str, iterations: int, dtype: str) -> None:
    make = partial(partial, tc.EMRouting, iterations=iterations)
    compare_routing(IMAGE[name], make, DTYPES[dtype], "cuda")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["capsule convolution", "6x6 poses"])
def test_parents_of_all_windows_err_no_more_in_a_network(name: str, dtype: str) -> None:
    make = partial(partial, tc.EMRouting, iterations=2)
    compare_routing(replace(LARGER[name], image=True), make, DTYPES[dtype], "cuda", n_draws=2)


def test_the_whole_image_competes_to_the_same_bits_if_asked() -> None:
    case = replace(LARGER["capsule convolution"], image=True)
    fused = partial(tc.EMRouting, iterations=2, implementation="fused")
    torch.use_deterministic_algorithms(True, warn_only=True)  # cuBLAS asks for a variable
    try:
        first, second = (routed(case, fused, torch.bfloat16, "cuda") for _ in range(2))
    finally:
        torch.use_deterministic_algorithms(False)
    for key, value in first.items():
        assert torch.equal(value, second[key]), f"{key} differs from run to run"


@pytest.mark.parametrize("name", ["dynamic", "inverted attention", "em", "em, image", "pairwise"])
def test_a_layer_compiles_and_is_captured(name: str) -> None:
    torch.manual_seed(0)
    name, _, image = name.partition(", ")
    routing = (FUSED | PAIRWISE)[name](implementation="fused")
    layer = tc.ConvCapsules(
        4, 8, 16, 16, kernel_size=3, routing=routing, matrix=True,
        competition="image" if image else "window",
    ).cuda()  # fmt: skip
    poses = torch.randn(2, 6, 6, 4, 16, device="cuda")
    activations = torch.rand(2, 6, 6, 4, device="cuda")
    plain = layer(tc.Capsules(poses, activations))
    compiled = torch.compile(lambda x, a: tuple(layer(tc.Capsules(x, a))), fullgraph=True)
    for a, b in zip(compiled(poses, activations), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        layer(tc.Capsules(poses, activations))
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = layer(tc.Capsules(poses, activations))
    graph.replay()
    torch.testing.assert_close(captured.poses, plain.poses, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", ["dynamic", "inverted attention", "self-attention"])
@pytest.mark.parametrize("case", ["many parents, shared", "long windows"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_routings_to_many_parents_err_no_more(name: str, case: str, dtype: str) -> None:
    compare_routing(CASES[case], FUSED[name], DTYPES[dtype], "cuda", n_draws=4)


def test_vector_poses_of_64_score_alike_with_and_without_the_kernel() -> None:
    torch.manual_seed(0)
    network = tc.build("tsai2020/diversemultimnist-vector").cuda().eval()
    images = torch.rand(3, 3, 36, 36, device="cuda")
    assert repr(network).count("implementation=fused") == 2
    fused = network(images, couplings=True)
    for module in network.modules():
        if isinstance(module, tc.InvertedAttentionRouting):
            module.implementation = "torch"
    plain = network(images, couplings=True)
    torch.testing.assert_close(fused.scores, plain.scores, rtol=1e-3, atol=1e-4)
    for a, b in zip(fused.couplings, plain.couplings, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4)


def test_a_thousand_classes_train_in_6_gb() -> None:
    torch.manual_seed(0)
    head = tc.CapsuleHead(512, n_classes=1000).cuda()
    assert "implementation=fused" in repr(head)
    features = torch.randn(256, 512, 7, 7, device="cuda")
    torch.cuda.reset_peak_memory_stats()
    with torch.autocast("cuda", torch.bfloat16):
        scores = head(features).scores
    targets = torch.zeros(256, dtype=torch.long, device="cuda")
    tc.cross_entropy_loss(scores.float(), targets).backward()
    assert torch.cuda.max_memory_allocated() < 6 * 2**30


def test_the_plain_function_runs_on_request() -> None:
    routing = partial(tc.DynamicRouting, implementation="torch")
    layer = tc.LinearCapsules(6, 3, 4, 4, routing=routing).cuda()
    assert "implementation=torch" in repr(layer)
    votes = layer.votes(tc.Capsules(torch.randn(2, 6, 4, device="cuda")))
    assert layer.routing.path(votes) == "plain"
