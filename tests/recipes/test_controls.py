"""Controls: each changes what its name says, and nothing else."""

import dataclasses

import pytest
import torch

import torchcaps as tc
from torchcaps.recipes import RECIPES, get
from torchcaps.recipes.schedules import Clock

CONTROLS = [name for name in RECIPES if "-control-" in name]
NAMING = {"name", "notes", "published", "changed", "asked"}
SETTLED = ("S4", "T3", "T5", "Y1", "Y2", "Y3", "Z3")


def changes(name: str, base: str) -> set[str]:
    one, other = get(name), get(base)
    fields = (field.name for field in dataclasses.fields(one))
    return {f for f in fields if getattr(one, f) != getattr(other, f)} - NAMING


@pytest.mark.parametrize("name", CONTROLS)
def test_a_control_changes_one_thing_beside_the_length(name: str) -> None:
    base = name.partition("-control-")[0]
    changed = changes(name, base) - {"epochs", "hold_out", "test_draws", "decay_all"}
    spared = {"iterations", "decay_votes"}
    assert len(changed) == 1 or (changed <= spared and changed) or name.endswith("-draws")
    assert get(name).published.value is None


def test_every_open_experiment_has_a_control() -> None:
    said = {get(name).published.where for name in CONTROLS}
    assert said == {f"finding {finding} of the audit" for finding in SETTLED}


def test_the_notes_of_a_control_say_what_it_changes() -> None:
    notes = get("yang2021/fashion-mnist-l1-control-travel-5").notes
    assert notes.endswith("with one change: a coefficient moves by 5 at most.")


@pytest.mark.parametrize("travel", ["0", "0.05", "0.5", "5"])
def test_coefficients_can_travel_as_far_as_the_name_says(travel: str) -> None:
    recipe = get(f"yang2021/fashion-mnist-l1-control-travel-{travel}")
    steps = recipe.epochs * (60_000 // recipe.batch_size)
    every = 100
    factors = [recipe.schedule(Clock(step, steps, 468)) for step in range(0, steps, every)]
    assert recipe.coefficient_lr > 0  # 0 would train the coefficients with the weights
    moved = recipe.coefficient_lr * every * sum(factors)
    assert moved == pytest.approx(float(travel), rel=0.03, abs=1e-6)


def test_the_loss_scale_of_the_code_is_a_twentieth_of_the_texts() -> None:
    scores, labels = torch.rand(4, 10), torch.arange(4)
    zero = torch.zeros(())
    text, code = get("sabour2017/mnist"), get("sabour2017/mnist-control-code-scale")
    losses = [
        recipe.loss(scores, labels, step=zero, share=zero, smoothing=0.0) for recipe in (text, code)
    ]
    torch.testing.assert_close(losses[1], losses[0] / 20)
    assert code.reconstruction_weight == text.reconstruction_weight == 0.0005


@pytest.mark.parametrize("name", ["tsai2020/cifar10-resnet", "tsai2020/diversemultimnist-matrix"])
def test_routed_recipes_differ_from_the_headline_in_what_makes_couplings_decide(name: str) -> None:
    changed = changes(f"{name}-routed", f"{name}-modern")
    assert changed - {"decay_all"} == {"network", "iterations", "decay_votes"}
    network = tc.build(get(f"{name}-routed").network)
    scales = [m.scale for m in network.modules() if isinstance(m, tc.InvertedAttentionRouting)]
    assert scales
    assert set(scales) == {1.0}


def test_both_starts_of_yangs_coefficients_give_the_same_first_poses() -> None:
    stds = []
    for name in ("yang2021/fashion-mnist-l1", "yang2021/fashion-mnist-l1-tenth"):
        torch.manual_seed(0)
        network = tc.build(name)
        coefficients = network.get_parameter("classes.routing.coefficients").detach()
        weight = network.get_parameter("classes.weight").detach()
        stds.append(float((coefficients.mean() * weight).std()))
    assert stds[0] == pytest.approx(stds[1], rel=1e-3)
