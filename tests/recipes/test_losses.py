"""Losses of recipes that have no public function of their own."""

import math
from dataclasses import replace
from functools import partial
from itertools import islice

import pytest
import torch
from torch import Tensor

from torchcaps.data import Batches, load
from torchcaps.models import build
from torchcaps.recipes import get
from torchcaps.recipes.losses import (
    cross_entropy,
    log_likelihood,
    margin,
    proportional_cross_entropy,
)
from torchcaps.train.process import Process
from torchcaps.train.step import make_step


def test_log_likelihood_is_that_of_the_target_class() -> None:
    activations = torch.tensor([[0.7, 0.2, 0.1], [0.25, 0.25, 0.5]], requires_grad=True)
    targets, (step, share) = torch.tensor([0, 1]), torch.zeros(2)
    loss = log_likelihood(activations, targets, step=step, share=share, smoothing=0.0)
    expected = -(torch.tensor(0.7).log() + torch.tensor(0.25).log()) / 2
    torch.testing.assert_close(loss, expected)
    certain = torch.tensor([[1.0, 0.0]], requires_grad=True)
    wrong = log_likelihood(certain, torch.tensor([1]), step=step, share=share, smoothing=0.0)
    assert wrong.item() == pytest.approx(16.118, abs=1e-2)  # -log of 1e-7
    (gradient,) = torch.autograd.grad(wrong, certain)
    assert gradient.isfinite().all()


@pytest.mark.parametrize("epochs", [2, 350])
def test_the_margin_of_the_spread_loss_is_whole_at_the_end_of_any_run(epochs: int) -> None:
    """Scores of 0.5 cost (n - 1) m^2, so that the loss shows the margin m."""
    scores, targets = torch.full((4, 3), 0.5), torch.zeros(4, dtype=torch.long)
    for name in ("tsai2020/cifar10-simple-em", "hinton2018/smallnorb"):
        loss_of = get(name).loss
        steps = epochs * 391
        for share, height in ((0.0, 0.2), (0.5, 0.55), (1.0, 0.9)):
            step = torch.tensor(share * steps)
            loss = loss_of(scores, targets, step=step, share=step / steps, smoothing=0.0)
            assert loss.item() == pytest.approx(2 * height**2)


def test_a_step_hands_its_share_of_the_run_to_the_loss() -> None:
    shares = list[float]()

    def loss(
        scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        shares.append(float(share))
        return margin(scores, targets, step=step, share=share, smoothing=smoothing)

    recipe = replace(get("demo/strokes-attention"), loss=loss, batch_size=4)
    torch.manual_seed(0)
    step = make_step(recipe, build(recipe.network), Process(torch.device("cpu")), steps=4)
    for batch in islice(Batches(load("strokes"), 4).epoch(0), 4):
        step(batch)
    assert shares == [0.0, 0.25, 0.5, 0.75]


@pytest.mark.parametrize("name", ["yang2021/mnist-l1-plain", "yang2021/mnist-l2-plain"])
def test_the_penalty_on_coefficients_follows_the_recipe(name: str) -> None:
    """With 0.001 it is far below the objective's own gradient; a large one pulls every b down."""
    moved = []
    for penalty in (None, 0.001, 1e6):
        recipe = get(name).override(batch_size=2)
        recipe = recipe if penalty is None else recipe.override(coefficient_penalty=penalty)
        torch.manual_seed(0)
        network = build(recipe.network)
        step = make_step(recipe, network, Process(torch.device("cpu")))
        step(next(Batches(load("strokes"), 2).epoch(0)))
        (b,) = (p for n, p in network.named_parameters() if n.endswith("coefficients"))
        moved.append(b.detach().clone() - 1)
    assert torch.equal(moved[0], moved[1])
    assert (moved[1] > 0).any()
    assert (moved[2] < 0).all()


def test_bounded_scores_are_scaled_to_sum_to_one_before_the_cross_entropy() -> None:
    scores = torch.tensor([[0.9, 0.3, 0.0], [0.2, 0.2, 0.4]])
    zero = torch.zeros(())
    measured = partial(proportional_cross_entropy, step=zero, share=zero, smoothing=0.0)
    loss = measured(scores, torch.tensor([0, 2]))
    assert loss.item() == pytest.approx(-(math.log(0.75) + math.log(0.5)) / 2)
    absent = torch.zeros(1, 3, requires_grad=True)
    measured(absent, torch.tensor([1])).backward()
    assert absent.grad is not None
    assert absent.grad.isfinite().all()


@pytest.mark.parametrize("name", ["affnist-dynamic", "affnist-em", "smallnorb-em-2"])
def test_the_routings_that_zhao_compares_share_one_cross_entropy(name: str) -> None:
    recipe = get(f"zhao2020/{name}")
    assert recipe.loss is proportional_cross_entropy
    assert get(f"zhao2020/{name.partition('-')[0]}").loss is cross_entropy
