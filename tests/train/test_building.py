"""What a run makes of a network before it trains it."""

import pytest
import torch
from torch import nn

import torchcaps as tc
from torchcaps.recipes import get
from torchcaps.train.building import raise_norm_momentum
from torchcaps.train.evaluation.evaluator import NORMS
from torchcaps.train.evaluation.score import tensor_float
from torchcaps.train.loop import torch_settings
from torchcaps.train.process import Process


@pytest.mark.parametrize("name", ["zhao2020/cifar10", "zhao2020/affnist"])
@pytest.mark.parametrize(("steps", "left"), [(163, 0.007), (30, 0.05), (100_000, 0.0)])
def test_running_statistics_forget_their_start_within_the_run(
    name: str, steps: int, left: float
) -> None:
    net = tc.build(name)
    raise_norm_momentum(net, steps)
    norms = [m for m in net.modules() if isinstance(m, NORMS)]
    assert len(norms) == sum(name.endswith("running_var") for name, _ in net.named_buffers())
    assert any(isinstance(norm, tc.VoteNorm) for norm in norms)
    for norm in norms:
        assert norm.momentum is not None
        assert (1 - norm.momentum) ** steps <= left
        assert 0.01 <= norm.momentum <= 0.1
        assert steps < 500 or norm.momentum == 0.01, "long runs are the papers'"


def test_other_momenta_stay() -> None:
    net = tc.build("tsai2020/cifar10-resnet")
    norms = [m for m in net.modules() if isinstance(m, nn.BatchNorm2d)]
    norms[0].momentum = None
    raise_norm_momentum(net, 1)
    assert [norm.momentum for norm in norms] == [None] + [0.1] * (len(norms) - 1)


@pytest.mark.parametrize(("precision", "exact"), [("float32", True), ("auto", False)])
def test_float32_on_a_gpu_is_not_tensor_float_32(precision: str, exact: bool) -> None:
    before = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
    with tensor_float(torch.device("cuda"), precision):
        assert torch.get_float32_matmul_precision() == ("highest" if exact else "high")
        assert torch.backends.cudnn.allow_tf32 is not exact
    assert (torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32) == before


def test_warnings_about_randomness_stay_warnings_after_a_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda device: None)
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with torch_settings(
            get("demo/strokes-em"), Process(torch.device("cuda")), deterministic=False
        ):
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)
