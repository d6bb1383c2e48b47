"""Learning rates by hand, at the steps the papers name."""

import math
from functools import partial

import pytest
import torch
from hypothesis import given, strategies as st
from torch import Tensor

from torchcaps.data import Batch, Batches, load
from torchcaps.models import build
from torchcaps.recipes import RECIPES, get
from torchcaps.recipes.schedules import (
    Clock,
    constant,
    cosine,
    exponential,
    inverse_time,
    milestones,
    one_cycle,
)
from torchcaps.train.optimizers import lr_factor, make_optimizers, set_lr


def at(step: int, steps: int = 1000, steps_per_epoch: int = 10) -> Clock:
    return Clock(step, steps, steps_per_epoch)


@pytest.mark.parametrize("per_epoch", [1, 3, 352, 391, 422])
def test_tsais_drops_are_at_the_first_step_after_150_and_250_of_350_epochs(per_epoch: int) -> None:
    schedule = RECIPES["tsai2020/cifar10-resnet"].schedule
    steps = 350 * per_epoch
    for epoch, before, after in ((150, 1.0, 0.1), (250, 0.1, 0.01)):
        first = epoch * per_epoch
        assert schedule(at(first - 1, steps, per_epoch)) == pytest.approx(before)
        assert schedule(at(first, steps, per_epoch)) == pytest.approx(after)
    assert schedule(at(0, steps, per_epoch)) == 1
    assert schedule(at(steps - 1, steps, per_epoch)) == pytest.approx(0.01)


@pytest.mark.parametrize("per_epoch", [1, 352, 380])
def test_zhaos_drops_are_after_81_and_122_of_163_and_every_20_of_120(per_epoch: int) -> None:
    residual = RECIPES["zhao2020/cifar10"].schedule
    factors = [residual(at(e * per_epoch, 163 * per_epoch, per_epoch)) for e in range(163)]
    assert factors == pytest.approx([1.0] * 81 + [0.1] * 41 + [0.01] * 41)
    halved = RECIPES["zhao2020/smallnorb"].schedule
    factors = [halved(at(e * per_epoch, 120 * per_epoch, per_epoch)) for e in range(120)]
    assert factors == pytest.approx([0.5 ** (e // 20) for e in range(120)])


def test_sabours_decay_is_continuous_by_steps_and_ends_near_a_millionth() -> None:
    recipe = RECIPES["sabour2017/mnist"]
    for step, factor in ((0, 1.0), (1000, 0.96**0.5), (2000, 0.96), (4000, 0.96**2)):
        assert recipe.schedule(at(step, 300_000)) == pytest.approx(factor)
    cifar10 = RECIPES["sabour2017/cifar10"]
    assert cifar10.schedule(at(2000, 600_000)) == pytest.approx(0.96)
    assert cifar10.lr * cifar10.schedule(at(10**6, 10**6)) == pytest.approx(1e-6)
    slower = RECIPES["sabour2017/multimnist"].schedule
    assert slower(at(20_000, 3_000_000)) == pytest.approx(0.96)
    assert RECIPES["sabour2017/affnist"].schedule(at(2_000, 4_000)) == pytest.approx(0.96)


def test_yangs_decays() -> None:
    assert RECIPES["yang2021/mnist-l1"].schedule(at(3000, 8_420)) == pytest.approx(1 / 8)
    fashion = RECIPES["yang2021/fashion-mnist-l1"].schedule
    assert fashion(at(1000, 93_600)) == pytest.approx(0.96)
    multi = RECIPES["yang2021/multimnist-l1"].schedule
    assert multi(at(20_000, 200_000)) == pytest.approx(0.96)


EARLY_STOPPED = tuple(name for name, recipe in RECIPES.items() if recipe.stop_at)


@pytest.mark.parametrize("name", [name for name in RECIPES if name not in EARLY_STOPPED])
def test_a_shortened_run_keeps_the_shape_of_its_schedule(name: str) -> None:
    """A schedule by absolute steps would leave a tenth of a run with a high learning rate."""
    schedule = RECIPES[name].schedule
    for share in (0.0, 0.1, 0.5, 0.9, 1.0):
        factors = [schedule(at(round(share * n), n, n // 100)) for n in (10_000, 100_000)]
        assert factors[0] == pytest.approx(factors[1]), share


def test_the_papers_steps_are_those_of_a_whole_run() -> None:
    for name, end in (
        ("sabour2017/mnist", 0.96**150),
        ("sabour2017/multimnist", 0.96**150),
        ("hinton2018/smallnorb", 0.96**100),
        ("yang2021/multimnist-l1", 0.96**10),
        ("choi2019/mnist-dynamic", 0.9**50),
        ("choi2019/mnist", 1 / 2.08),
    ):
        assert RECIPES[name].schedule(at(500, 500)) == pytest.approx(end), name


def test_chois_rate_is_divided_by_steps_and_halved_after_50_epochs() -> None:
    schedule = RECIPES["choi2019/cifar10"].schedule
    assert schedule(at(0, 90_000, 450)) == 1
    assert schedule(at(22_499, 90_000, 450)) == pytest.approx(1 / 3.2499)
    assert schedule(at(22_500, 90_000, 450)) == pytest.approx(0.5 / 3.25)
    digits = RECIPES["choi2019/mnist"].schedule
    assert digits(at(10_000, 10_800, 540)) == pytest.approx(0.5)


def test_one_cycle_rises_to_one_and_falls_to_its_end() -> None:
    cycle = partial(one_cycle, peak=0.2, start=0.04, end=1e-4)
    assert cycle(at(0)) == pytest.approx(0.04)
    assert cycle(at(100)) == pytest.approx(0.52)
    assert cycle(at(200)) == pytest.approx(1.0)
    assert cycle(at(600)) == pytest.approx((1 + 1e-4) / 2)
    assert cycle(at(1000)) == pytest.approx(1e-4)
    assert cycle(at(2000)) == pytest.approx(1e-4)


def test_cosine_and_constant() -> None:
    assert [cosine(at(step)) for step in (0, 500, 1000, 1500)] == pytest.approx([1, 0.5, 0, 0])
    assert cosine(at(1000), end=0.1) == pytest.approx(0.1)
    assert constant(at(500)) == 1


@given(st.integers(0, 10**7), st.integers(1, 10**7))
def test_every_recipes_rate_stays_between_nothing_and_its_own(step: int, steps: int) -> None:
    clock = Clock(min(step, steps), steps, 1)
    seen = {recipe.schedule for recipe in RECIPES.values()}
    for schedule in seen:
        assert 0 <= schedule(clock) <= 1 + 1e-9
        assert math.isfinite(schedule(clock))


def test_the_pieces_by_themselves() -> None:
    assert exponential(at(1), rate=0.5, every=1, steps=None) == 0.5
    assert exponential(at(100), rate=0.5, every=1, steps=None, floor=0.3) == 0.3
    assert exponential(at(500), rate=0.5, every=10, steps=20) == 0.5
    assert milestones(at(500), at=(0.5,)) == pytest.approx(0.1)
    assert milestones(at(499), at=(0.5,)) == 1
    assert inverse_time(at(1000), decay=1e-3, steps=None) == 0.5


def test_first_step_of_a_baseline_leaves_its_hidden_units_alive() -> None:
    recipe = get("sabour2017/mnist-baseline")
    torch.manual_seed(0)
    network = build(recipe.network).eval()
    batches = Batches(load("strokes"), 8).epoch(0)
    first, second = next(batches), next(batches)
    optimizer, _ = make_optimizers(recipe, network, torch.device("cpu"))
    set_lr(optimizer, recipe.lr * lr_factor(recipe, Clock(0, 641 * 468, 468)))

    def loss(batch: Batch) -> Tensor:
        scores = network(batch.images).scores
        return recipe.loss(
            scores, batch.labels, step=torch.zeros(()), share=torch.zeros(()), smoothing=0.0
        )

    before = loss(second).item()
    loss(first).backward()
    optimizer.step()
    # a whole step took it from 2.3 to 16: all units of a layer move together
    assert loss(second).item() < before + 0.1
