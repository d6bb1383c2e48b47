"""The training protocols of single papers, where a recipe once differed from them."""

import pytest

from torchcaps.recipes import get
from torchcaps.recipes.losses import cross_entropy, margin, spread

AFFNIST = ("affnist", "affnist-baseline", "affnist-style", "affnist-style-baseline")


@pytest.mark.parametrize("name", AFFNIST)
def test_sabours_affnist_runs_stop_early_and_are_not_annealed(name: str) -> None:
    recipe = get(f"sabour2017/{name}")
    assert recipe.stop_at == (99.22 if "baseline" in name else 99.23)
    assert recipe.hold_out
    assert recipe.train_transforms == ()
    assert recipe.test_draws == (32 if "style" in name else 1)


@pytest.mark.parametrize("routing", ["", "-dynamic", "-em"])
def test_zhaos_affnist_rows_are_scored_on_32_draws(routing: str) -> None:
    assert get(f"zhao2020/affnist-style{routing}").test_draws == 32


def test_zhaos_baselines_keep_their_own_loss_as_a_control() -> None:
    for routing, loss in (("dynamic", margin), ("em", spread)):
        assert get(f"zhao2020/affnist-style-{routing}-control-own-loss").loss is loss
    assert get("zhao2020/affnist-style").loss is cross_entropy


def test_zhaos_multimnist_follows_the_text() -> None:
    recipe = get("zhao2020/multimnist")
    assert recipe.reconstruction_weight == 0.0005
    assert recipe.weight_decay == 0
    assert recipe.shift is None


@pytest.mark.parametrize("routing", ["", "-dynamic-1", "-dynamic-3", "-em-1", "-em-2"])
def test_zhaos_smallnorb_rows_train_on_the_images_of_both_cameras(routing: str) -> None:
    recipe = get(f"zhao2020/smallnorb{routing}")
    assert recipe.dataset == "smallnorb_mono"
    assert not recipe.hold_out


def test_yangs_cooler_controls_have_the_learning_rate_of_the_code() -> None:
    for routing in ("l1", "dynamic"):
        control = get(f"yang2021/fashion-mnist-{routing}-control-cooler")
        assert control.lr == pytest.approx(1e-4)
        assert get(f"yang2021/fashion-mnist-{routing}").lr == pytest.approx(1e-3)
