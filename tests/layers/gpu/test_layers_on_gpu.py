"""Layers and small networks on a GPU: autocast, compilation, image convolutions."""

import copy

import pytest
import torch

import torchcaps as tc
from helpers.networks.published import SmallNetwork
from helpers.routings import ROUTINGS
from torchcaps.models.parts.backbones import ImageConv2d

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
    pytest.mark.filterwarnings("ignore:The CUDA Graph is empty:UserWarning"),
]


@pytest.mark.parametrize(
    ("name", "mode"),
    [(name, "default") for name in ROUTINGS]
    + [(name, "reduce-overhead") for name in ("dynamic", "em", "inverted-attention-3", "pairwise")],
)
def test_networks_compile_and_run_in_bfloat16(name: str, mode: str) -> None:
    torch.manual_seed(0)
    network = SmallNetwork(ROUTINGS[name]).cuda()
    images = torch.randn(8, 3, 6, 6, device="cuda")
    plain = network(images)
    compiled = torch.compile(network, fullgraph=True, mode=mode)
    for a, b in zip(compiled(images), plain, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-3)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        routed = compiled(images)
    assert all(bool(x.isfinite().all()) for x in routed)
    routed.poses.float().sum().backward()
    assert all(p.grad is None or bool(p.grad.isfinite().all()) for p in network.parameters())


def test_competition_over_the_image_runs_on_the_gpu() -> None:
    torch.manual_seed(0)
    layer = tc.ConvCapsules(
        8,
        4,
        16,
        16,
        kernel_size=3,
        stride=2,
        routing=tc.EMRouting,
        matrix=True,
        competition="image",
    )
    capsules = tc.Capsules(torch.randn(2, 9, 9, 8, 16), torch.rand(2, 9, 9, 8))
    expected = layer(capsules)
    got = layer.cuda()(tc.Capsules(*(x.cuda() for x in capsules if x is not None)))
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("channels", [1, 3])
def test_images_are_convolved_by_patches(channels: int) -> None:
    torch.manual_seed(0)
    conv = ImageConv2d(channels, 64, 9).cuda()
    images = torch.rand(4, channels, 28, 28, device="cuda")
    images = images.contiguous(memory_format=torch.channels_last)
    exact = copy.deepcopy(conv).cpu().double()(images.cpu().double())
    assert (conv(images).cpu() - exact).abs().max() <= 1e-4
    with torch.autocast("cuda", dtype=torch.bfloat16):
        low = conv(images)
    assert low.dtype == torch.bfloat16
    assert low.is_contiguous(memory_format=torch.channels_last)
    assert (low.cpu() - exact).abs().max() <= 0.02
    low.float().sum().backward()
    asked = images.clone().requires_grad_()
    conv(asked).sum().backward()
    assert asked.grad is not None
