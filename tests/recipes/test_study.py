"""Studies: equal parameters, one loss, and names that find the same recipe in any process."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from helpers.registry import restored_zoo
from torchcaps.errors import UsageError
from torchcaps.models.parts.heads import compared_parameters
from torchcaps.recipes.losses import shared_cross_entropy
from torchcaps.recipes.study import HEADS, STUDIES, Study, study_recipe
from torchcaps.recipes.tools.loading import find_recipe
from torchcaps.routing import ROUTINGS

OWN = Path(__file__).parents[1] / "helpers/my_recipe.py"


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with restored_zoo():
        yield


def test_a_study_takes_every_routing_and_three_plain_heads() -> None:
    assert set(HEADS) == {*ROUTINGS, "plain-average", "plain-flatten", "plain-attention"}


@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_all_heads_have_as_many_parameters_within_five_percent(study: Study) -> None:
    for dataset in study.datasets:
        counts = {}
        for name, head in HEADS.items():
            recipe = study_recipe(study, dataset, name, head)
            with torch.device("meta"):
                counts[name] = compared_parameters(tc.build(recipe.network))
        assert max(counts.values()) < 1.05 * min(counts.values()), (dataset, counts)


def test_only_the_head_of_a_recipe_differs() -> None:
    study = STUDIES["quick"]
    recipes = [study_recipe(study, "fashion_mnist", *item) for item in HEADS.items()]
    settings = [recipe.settings() for recipe in recipes]
    for one in settings:
        one.pop("coefficient_lr")
    assert all(one == settings[0] for one in settings)
    assert len({recipe.loss for recipe in recipes}) == 1


def test_a_routing_of_ones_own_is_found_by_its_file() -> None:
    recipe = find_recipe(f"compare/quick/fashion_mnist/{OWN}:MeanRouting")
    assert recipe.name == "compare/quick/fashion_mnist/MeanRouting"
    network = tc.build(recipe.network)
    assert network(torch.rand(2, 1, 28, 28)).scores.shape == (2, 10)
    same = find_recipe("compare/quick/fashion_mnist/em")
    assert same.network == find_recipe("compare/quick/fashion_mnist/em").network


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("compare/quik/fashion_mnist/em", "there is no study 'quik'"),
        ("compare/quick/svhn/em", "has no data set 'svhn'"),
        ("compare/quick/fashion_mnist/emm", "there is no head 'emm'"),
        ("compare/quick", "has no data set ''"),
        (f"compare/quick/fashion_mnist/{OWN}:recipe", "routing"),
    ],
)
def test_a_wrong_name_gets_one_sentence(text: str, message: str) -> None:
    with pytest.raises((UsageError, ValueError), match=message):
        find_recipe(text)


def test_the_shared_loss_is_the_usual_one_for_one_object_and_even_for_two() -> None:
    scores, zero = torch.randn(3, 5), torch.zeros(())

    def loss(targets: torch.Tensor) -> torch.Tensor:
        return shared_cross_entropy(scores, targets, step=zero, share=zero, smoothing=0.0)

    labels = torch.tensor([1, 4, 0])
    torch.testing.assert_close(loss(labels), torch.nn.functional.cross_entropy(scores, labels))
    both = torch.zeros(3, 5, dtype=torch.long).scatter(1, torch.tensor([[0, 1], [2, 3], [1, 4]]), 1)
    halves = (loss(torch.tensor([0, 2, 1])) + loss(torch.tensor([1, 3, 4]))) / 2
    torch.testing.assert_close(loss(both), halves)
