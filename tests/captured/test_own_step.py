"""The captured step of our loop: what its warm-up changes, it restores."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from torchcaps.data import Batch
from torchcaps.models import build
from torchcaps.recipes import get
from torchcaps.train import step as module
from torchcaps.train.process import Process


class Graph:
    """Stands in for a CUDA graph."""

    def replay(self) -> None:
        pass


def test_a_bad_step_before_the_capture_does_not_zero_the_learning_rate(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = build("demo/strokes-dynamic")
    optimizer = torch.optim.RMSprop(network.parameters(), lr=torch.tensor(0.01), capturable=True)
    device = Process(torch.device("cpu"))
    step = module.Step(get("demo/strokes-dynamic"), network, network, optimizer, None, device)
    step.skips = True  # as on a GPU
    batch = Batch(torch.rand(2, 1, 28, 28), torch.tensor([1, 2]), torch.arange(2))
    before = {name: value.clone() for name, value in network.state_dict().items()}

    def record(function: Callable[[], Any], **_: Any) -> Any:
        step.stops.fill_(1)
        step._cancel_bad_step([])
        assert not any(group["lr"] for group in optimizer.param_groups)
        return Graph(), None

    monkeypatch.setattr(module, "record", record)
    module.GraphedStep(step)(batch)
    (group,) = optimizer.param_groups
    assert group["lr"] == torch.tensor(0.01)
    assert not step.stops
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name]), f"{name} has changed"
