"""The first convolution: patches are what it would do, and where they are not, it does it."""

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

from torchcaps.models.parts.backbones import ImageConv2d


@pytest.mark.parametrize(
    ("channels", "kernel", "stride", "padding", "bias"),
    [(1, 9, 1, 0, True), (3, 3, 1, 1, False), (3, 5, 2, 2, True), (4, 3, 2, 0, True)],
)
def test_patches_convolve_images(
    channels: int, kernel: int, stride: int, padding: int, bias: bool
) -> None:
    conv = ImageConv2d(channels, 6, kernel, stride, padding, bias=bias).double()
    conv.weight.data = conv.weight.data.contiguous(memory_format=torch.channels_last)
    images = torch.randn(2, channels, 17, 14, dtype=torch.float64)
    expected, made = conv(images), conv.by_patches(images)
    torch.testing.assert_close(made, expected)
    weights = list(conv.parameters())
    upstream = torch.randn_like(expected)
    for mine, theirs in zip(
        torch.autograd.grad(made, weights, upstream),
        torch.autograd.grad(expected, weights, upstream),
        strict=True,
    ):
        torch.testing.assert_close(mine, theirs)
    conv.by_patches(images).sum().backward()
    assert conv.weight.grad is not None
    assert conv.weight.grad.stride() == conv.weight.stride(), "DDP would warn"


class OnGPU(Tensor):
    """A tensor that says it is on a GPU."""

    is_cuda = True


@pytest.mark.parametrize(
    ("options", "shape"),
    [
        ({}, (2, 2, 9, 8)),
        ({}, (0, 2, 9, 8)),
        ({}, (2, 9, 8)),
        ({"dilation": 2}, (2, 2, 9, 8)),
        ({"groups": 2}, (2, 2, 9, 8)),
        ({"padding": "same"}, (2, 2, 9, 8)),
        ({"padding": 1, "padding_mode": "reflect"}, (2, 2, 9, 8)),
    ],
)
def test_a_gpu_convolves_images_as_it_was_told(
    options: dict[str, Any], shape: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    conv = ImageConv2d(2, 4, 3, **options).double()
    images = torch.randn(shape, dtype=torch.float64)
    patches, whole = list[Tensor](), conv.by_patches

    def by_patches(given: Tensor) -> Tensor:
        patches.append(given)
        return whole(given)

    monkeypatch.setattr(conv, "by_patches", by_patches)
    for low in (False, True):
        with torch.autocast("cpu", enabled=low):
            got, expected = conv(images.as_subclass(OnGPU)), conv(images)
            torch.testing.assert_close(got.as_subclass(Tensor), expected)
    assert len(patches) == 2 * (not options and len(shape) == 4)


def test_patches_take_any_number_of_images_when_compiled_or_exported() -> None:
    class Patches(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = ImageConv2d(1, 4, 3, padding=1)

        def forward(self, images: Tensor) -> Tensor:
            return self.conv.by_patches(images)

    net, images = Patches(), torch.randn(5, 1, 7, 6)
    assert set(net.conv.state_dict()) == {"weight", "bias"}
    compiled = torch.compile(net, dynamic=True, fullgraph=True, backend="aot_eager")
    batch = {0: torch.export.Dim("batch", min=2)}
    exported = torch.export.export(net, (images[:3],), dynamic_shapes=(batch,)).module()
    for count in (3, 5):
        expected = copy.deepcopy(net).conv(images[:count])
        torch.testing.assert_close(compiled(images[:count]), expected)
        torch.testing.assert_close(exported(images[:count]), expected)
