"""Muon against its formulas, PyTorch's Adam, and the loop that trains with it."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from helpers.runs.training import BrokenError, break_at, quick, small
from torchcaps import build
from torchcaps.data import Batch
from torchcaps.optim import Muon, orthogonal
from torchcaps.recipes import get
from torchcaps.train.optimizers import make_optimizers
from torchcaps.train.process import Process
from torchcaps.train.step import Step


@pytest.mark.parametrize("shape", [(16, 81), (81, 16), (64, 2000), (1, 7), (40, 40)])
def test_singular_values_come_near_one(shape: tuple[int, int]) -> None:
    torch.manual_seed(0)
    matrix = torch.randn(shape, dtype=torch.float64)
    u, _, vt = torch.linalg.svd(matrix, full_matrices=False)
    near = orthogonal(matrix)
    values = torch.linalg.svdvals(near)
    assert 1 > float(values.min()) > (0.6 if shape != (40, 40) else 0.0)
    assert float(values.max()) < 1.25
    assert torch.cosine_similarity(near.flatten(), (u @ vt).flatten(), dim=0) > 0.97


def moved(weight: Tensor, gradients: list[Tensor], **group: object) -> Tensor:
    """How far the weight is after steps along these gradients."""
    parameter = nn.Parameter(weight.clone())
    optimizer = Muon([{"params": [parameter], **group}], lr=0.1, momentum=0.9)
    for gradient in gradients:
        parameter.grad = gradient.clone()
        optimizer.step()
    return parameter.detach() - weight


def test_a_step_along_filters_is_that_of_the_paper() -> None:
    torch.manual_seed(0)
    weight, first, second = (torch.randn(5, 2, 3, 3, dtype=torch.float64) for _ in range(3))
    momentum = 0.1 * first
    change = orthogonal((0.9 * momentum + 0.1 * first).flatten(1))
    momentum = 0.9 * momentum + 0.1 * second
    change = change + orthogonal((0.9 * momentum + 0.1 * second).flatten(1))
    expected = -0.1 * 0.2 * math.sqrt(18) * change.view(weight.shape)
    torch.testing.assert_close(moved(weight, [first, second], kind="filters"), expected)
    last = [x.to(memory_format=torch.channels_last) for x in (weight, first, second)]
    torch.testing.assert_close(moved(last[0], last[1:], kind="filters"), expected)


def test_votes_are_one_matrix_of_parents_by_children_and_twice_as_fast() -> None:
    torch.manual_seed(0)
    weight, gradient = (torch.randn(6, 2, 3, 4, dtype=torch.float64) for _ in range(2))
    matrix = torch.empty(2 * 4, 6 * 3, dtype=torch.float64)
    for i, j, d, e in torch.cartesian_prod(*map(torch.arange, gradient.shape)).tolist():
        matrix[j * 4 + e, i * 3 + d] = gradient[i, j, d, e]
    change = moved(weight, [gradient], kind="votes")
    expected = -2 * 0.1 * 0.2 * math.sqrt(18) * orthogonal(matrix)
    for i, j, d, e in ((0, 0, 0, 0), (5, 1, 2, 3), (2, 1, 0, 2)):
        assert change[i, j, d, e].item() == pytest.approx(expected[j * 4 + e, i * 3 + d].item())


def test_what_is_no_matrix_moves_as_by_adam() -> None:
    torch.manual_seed(0)
    start = torch.randn(7)
    ours, theirs = nn.Parameter(start.clone()), nn.Parameter(start.clone())
    muon = Muon([ours], lr=torch.tensor(0.05), weight_decay=0.1)
    adam = torch.optim.AdamW([theirs], lr=0.02, weight_decay=0.1)
    for _ in range(5):
        gradient = torch.randn(7)
        ours.grad, theirs.grad = gradient.clone(), gradient.clone()
        muon.step()
        adam.step()
    torch.testing.assert_close(ours, theirs)


def test_decay_shrinks_a_weight_that_nothing_pulls() -> None:
    weight = torch.ones(2, 3)
    expected = weight * (1 - 0.1 * 0.5)
    change = moved(weight, [torch.zeros(2, 3)], kind="filters", weight_decay=0.5)
    torch.testing.assert_close(weight + change, expected)


def test_a_closure_is_called_and_its_loss_returned() -> None:
    weight = nn.Parameter(torch.ones(2, 2))
    optimizer = Muon([{"params": [weight], "kind": "filters"}])

    def closure() -> Tensor:
        loss = weight.square().sum()
        loss.backward()
        return loss

    assert optimizer.step(closure).item() == 4.0
    assert float(weight.detach().sum()) < 4.0


def test_an_unknown_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="kind must be 'filters', 'votes' or None, not 'vote'"):
        Muon([{"params": [nn.Parameter(torch.ones(2, 2))], "kind": "vote"}])


def test_convolutions_and_votes_are_found_and_biases_do_not_decay() -> None:
    network = build("sabour2017/multimnist")
    recipe = get("sabour2017/multimnist-modern")
    optimizer, _ = make_optimizers(recipe, network, torch.device("cpu"))
    assert isinstance(optimizer, Muon)
    names = {id(p): name for name, p in network.named_parameters()}
    groups = {
        (group["kind"], group["weight_decay"]): {names[id(p)] for p in group["params"]}
        for group in optimizer.param_groups
    }
    assert groups["filters", 0.004] == {"backbone.conv.weight", "primary.pose_conv.weight"}
    assert groups["votes", 0.004] == {"classes.weight"}
    assert {name.split(".")[0] for name in groups[None, 0.004]} == {"decoder"}
    assert "classes.routing.bias" in groups[None, 0.0]
    assert sum(map(len, groups.values())) == len(names)


@pytest.mark.parametrize(
    ("name", "layer"),
    [
        ("choi2019/mnist", "classes.weight"),
        ("hinton2018/smallnorb", "classes.weight"),
        ("tsai2020/cifar10-resnet", "layers.0.weight"),
    ],
)
def test_vote_weights_of_every_layer_are_votes(name: str, layer: str) -> None:
    with torch.device("meta"):
        network = build(name)
    recipe = get("sabour2017/multimnist-modern")
    optimizer, _ = make_optimizers(recipe, network, torch.device("cpu"))
    votes = {id(p) for g in optimizer.param_groups if g["kind"] == "votes" for p in g["params"]}
    assert id(network.get_parameter(layer)) in votes


def test_a_broken_run_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = replace(small(), optimizer=Muon, lr=5e-3)
    whole = quick(recipe, out=tmp_path / "whole")
    with monkeypatch.context() as patch:
        break_at(patch, 14)
        with pytest.raises(BrokenError):
            quick(recipe, out=tmp_path / "broken", save_every=0.0)
    resumed = quick(recipe, out=tmp_path / "broken")
    assert resumed.weights_sha256 == whole.weights_sha256
    assert whole.test is not None
    assert whole.test > 30


@pytest.mark.parametrize("clip", [0.0, 1.0])
def test_a_nan_that_the_device_leaves_out_changes_no_weight(
    clip: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # as on a GPU, where scores of NaN are not refused
    monkeypatch.setattr(
        "torchcaps.train.evaluation.score.right", lambda scores, *_: scores[:, 0] > 0
    )
    recipe = replace(small(clip=clip), optimizer=Muon)
    network = build(recipe.network)
    optimizer, _ = make_optimizers(recipe, network, torch.device("cpu"))
    for group in optimizer.param_groups:
        group["lr"] = torch.tensor(recipe.lr)
    step = Step(recipe, network, network, optimizer, None, Process(torch.device("cpu")))
    step.skips = True  # as on a GPU
    before = [p.detach().clone() for p in network.parameters()]
    images = torch.full((4, *network.image_shape), torch.nan)
    for later in (images, images.nan_to_num(0.5)):
        step(Batch(later, torch.zeros(4, dtype=torch.long), torch.arange(4)))
        assert step.bad_step == 0
    for old, new in zip(before, network.parameters(), strict=True):
        assert torch.equal(old, new)
