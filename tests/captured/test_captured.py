"""The captured step: the plain step on a CPU, and its copies and restorations around a graph."""

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from torch import Tensor, nn

import torchcaps as tc
from torchcaps.captured import CapturedNetwork, CapturedStep, graphs
from torchcaps.captured.graphs import unchanged
from torchcaps.errors import UsageError


class Replay:
    """Stands in for a CUDA graph on a CPU: replaying calls the recorded function again."""

    def __init__(self, function: Callable[[], Any]) -> None:
        self.replay = function


@pytest.fixture
def _graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    def record(function: Callable[[], Any], *, before: Callable[[], object] = int) -> Any:
        for _ in range(graphs.WARM_UP_STEPS):
            function()
        before()
        return Replay(function), function()

    monkeypatch.setattr(graphs, "record", record)


def make(**options: Any) -> tuple[nn.Module, CapturedStep]:
    torch.manual_seed(0)
    network = nn.Sequential(
        nn.Flatten(), nn.Linear(9, 6, bias=False), nn.BatchNorm1d(6), nn.Linear(6, 3)
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=0.1)
    step = CapturedStep(network, nn.functional.cross_entropy, optimizer, **options)
    return network, step


def as_on_a_gpu(step: CapturedStep) -> CapturedStep:
    """Make a step take the path of a GPU, with `Replay` in place of the graph."""
    step.captures = True
    step._prepare_optimizer()
    for group in step.optimizer.param_groups:
        group["fused"], group["capturable"] = True, False  # as far as a CPU can
    return step


def batches(*sizes: int) -> list[tuple[Tensor, Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (torch.rand(n, 1, 3, 3, generator=generator), torch.randint(3, (n,), generator=generator))
        for n in sizes
    ]


def test_the_plain_step_is_the_loop_that_one_would_write() -> None:
    network, step = make(clip=0.01)
    other, _ = make()
    optimizer = torch.optim.Adam(other.parameters(), lr=0.1)
    for images, labels in batches(8, 8, 5):
        loss = nn.functional.cross_entropy(other(images), labels)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(other.parameters(), 0.01)
        optimizer.step()
        assert torch.equal(step(images, labels), loss.detach())
    for ours, theirs in zip(network.parameters(), other.parameters(), strict=True):
        assert torch.equal(ours, theirs)


@pytest.mark.usefixtures("_graphs")
def test_a_capture_trains_nothing_and_replays_train_as_plain_steps_do() -> None:
    network, step = make()
    plain_network, plain = make()
    as_on_a_gpu(step)
    for images, labels in batches(8, 8, 3, 8):
        loss = step(images, labels)
        assert torch.allclose(loss, plain(images, labels), atol=1e-6)
    for name, ours in network.state_dict().items():
        assert torch.allclose(ours, plain_network.state_dict()[name], atol=1e-5), name


@pytest.mark.usefixtures("_graphs")
def test_a_loss_that_was_returned_stays_after_the_next_step() -> None:
    _, step = make()
    as_on_a_gpu(step)
    (images, labels), second = batches(8, 8)
    first = step(images, labels)
    value = float(first)
    step(*second)
    assert float(first) == value


@pytest.mark.usefixtures("_graphs")
def test_assigned_and_scheduled_learning_rates_count() -> None:
    network, step = make()
    as_on_a_gpu(step)
    (batch,) = batches(8)
    step(*batch)
    schedule = torch.optim.lr_scheduler.LambdaLR(step.optimizer, lambda _: 0.0)
    before = [p.detach().clone() for p in network.parameters()]
    step(*batch)
    after = list(network.parameters())
    assert all(torch.equal(p, old) for p, old in zip(after, before, strict=True))
    schedule.base_lrs = [0.0]
    step.optimizer.param_groups[0]["lr"] = 0.1
    step(*batch)
    assert not torch.equal(after[0], before[0])


def test_a_network_with_a_decoder_gets_the_targets() -> None:
    network = tc.build("sabour2017/mnist")
    given: list[object] = []
    network.register_forward_pre_hook(lambda _, arguments: given.append(arguments[1:]))

    def loss(output: tc.Output, labels: Tensor) -> Tensor:
        return tc.margin_loss(output.scores, labels)

    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    step = CapturedStep(network, loss, optimizer, pass_targets=True)
    labels = torch.tensor([3, 4])
    assert step(torch.rand(2, 1, 28, 28), labels).isfinite()
    assert given == [(labels,)]


@pytest.mark.parametrize(
    ("make_step", "message"),
    [
        (lambda: make(clip=-1.0), "clip must be 0 or above"),
        (lambda: CapturedStep(nn.Linear(1, 1), nn.MSELoss(), cast(Any, "adam")), "not a str"),
        (lambda: CapturedNetwork(nn.Linear(1, 1)), "eval"),
        (
            lambda: as_on_a_gpu(
                CapturedStep(
                    nn.Linear(1, 1), nn.MSELoss(), torch.optim.LBFGS(nn.Linear(1, 1).parameters())
                )
            ),
            "LBFGS cannot be captured",
        ),
    ],
)
def test_what_cannot_be_captured_gets_one_sentence(
    make_step: Callable[[], object], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        make_step()


def test_a_block_leaves_weights_statistics_and_new_optimizer_state_unchanged() -> None:
    network, step = make()
    (batch,) = batches(8)
    counter = torch.zeros(())
    before = {name: value.clone() for name, value in network.state_dict().items()}
    with unchanged([network], [step.optimizer], [counter]):
        step(*batch)
        counter.add_(1)
    assert all(torch.equal(value, before[name]) for name, value in network.state_dict().items())
    assert float(counter) == 0
    states = [value for entries in step.optimizer.state.values() for value in entries.values()]
    assert states
    assert not any(bool(value.any()) for value in states)


@pytest.mark.usefixtures("_graphs")
def test_a_captured_network_answers_as_the_network_for_every_shape() -> None:
    network = tc.build("demo/strokes-dynamic").eval()
    fast = CapturedNetwork(network, most_shapes=1)
    images = torch.rand(4, 1, 28, 28)
    for part in (images, images[:2], images):
        with torch.no_grad():
            assert torch.equal(fast(part).scores, network(part).scores)


def test_the_loop_of_the_page_about_speed_trains(monkeypatch: pytest.MonkeyPatch) -> None:
    page = (Path(__file__).parents[2] / "docs" / "speed.md").read_text()
    (loop,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    assert len([line for line in loop.splitlines() if line]) <= 10
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))
    loader = [(torch.rand(n, 1, 28, 28), torch.arange(n) % 10) for n in (4, 4, 2)]
    names: dict[str, Any] = {"device": "cpu", "loader": loader}
    torch.manual_seed(0)
    exec(loop, names)
    assert names["running"].isfinite()
    steps = {int(state["step"]) for state in names["optimizer"].state.values()}
    assert steps == {3}
