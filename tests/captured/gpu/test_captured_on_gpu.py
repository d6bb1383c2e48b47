"""The captured step and the captured network on a GPU."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import torchcaps as tc
from torchcaps import kernels
from torchcaps.captured import precompilation
from torchcaps.errors import TorchcapsError
from torchcaps.optim import Muon

pytestmark = pytest.mark.gpu
if not torch.cuda.is_available():
    pytest.skip("needs a CUDA device", allow_module_level=True)

OPTIMIZERS: dict[str, Any] = {
    "adam": torch.optim.Adam,
    "adamw": torch.optim.AdamW,
    "sgd": partial(torch.optim.SGD, momentum=0.9),
    "muon": Muon,
}


def loss(output: tc.Output, labels: Tensor) -> Tensor:
    return tc.margin_loss(output.scores, labels)


def train(optimizer: str, **options: Any) -> dict[str, Tensor]:
    torch.manual_seed(0)
    network = tc.build("demo/strokes-dynamic").cuda()
    made = OPTIMIZERS[optimizer](network.parameters(), lr=1e-3)
    step = tc.CapturedStep(network, loss, made, clip=1.0, **options)
    schedule = torch.optim.lr_scheduler.LinearLR(made, 1.0, 0.1, total_iters=6)
    generator = torch.Generator("cuda").manual_seed(0)
    for size in (16, 16, 7, 16, 16):
        images = torch.rand(size, 1, 28, 28, device="cuda", generator=generator)
        labels = torch.randint(10, (size,), device="cuda", generator=generator)
        step(images, labels)
        schedule.step()
    return network.state_dict()


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_the_captured_step_is_the_plain_step(optimizer: str) -> None:
    plain = train(optimizer, capture=False)
    for name, value in train(optimizer).items():
        assert torch.allclose(value, plain[name], atol=1e-4, rtol=1e-3), name


def test_kernels_that_compiled_ahead_compile_no_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import triton

    # sizes that no other test has
    network = tc.build("demo/strokes-dynamic", n_classes=13).cuda()
    images = torch.rand(11, 1, 28, 28, device="cuda")
    labels = torch.randint(13, (11,), device="cuda")
    compiled: list[str] = []
    monkeypatch.setattr(
        triton.knobs.compilation, "listener", lambda *, src, **_: compiled.append(src.name)
    )
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    tc.precompile(network, images, labels, loss=loss)
    assert compiled
    compiled.clear()
    loss(network(images), labels).backward()
    assert not compiled


def test_a_step_that_waits_for_the_gpu_gets_one_sentence() -> None:
    network = tc.build("demo/strokes-dynamic").cuda()

    def waiting(output: tc.Output, labels: Tensor) -> Tensor:
        value = loss(output, labels)
        print(float(value.detach()))  # noqa: T201
        return value

    step = tc.CapturedStep(network, waiting, torch.optim.Adam(network.parameters()))
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with pytest.raises(TorchcapsError, match="cannot be captured"):
        step(torch.rand(4, 1, 28, 28).cuda(), torch.arange(4).cuda())
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} has changed"
    assert torch.rand(2, device="cuda").isfinite().all()  # the random generator still works


def test_a_captured_network_answers_as_the_network() -> None:
    network = tc.build("demo/strokes-dynamic").cuda().eval()
    fast = tc.CapturedNetwork(network)
    first, second = torch.rand(2, 8, 1, 28, 28).cuda()
    answer = fast(first).scores
    with torch.no_grad():
        assert torch.allclose(fast(second).scores, network(second).scores, atol=1e-4)
        assert torch.allclose(answer, network(first).scores, atol=1e-4)


def test_what_a_kernel_that_is_only_compiled_should_write_is_filled() -> None:
    poses = torch.randn(5, 3, 8, device="cuda")
    with precompilation.compiling_only():
        squashed = kernels.squash(poses)
    assert bool((squashed == precompilation.PLACEHOLDER).all())
