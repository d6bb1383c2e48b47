"""Every published row as a recipe: what to train, how, and the number its paper prints."""

from collections import defaultdict
from dataclasses import replace
from functools import cache

from torchcaps.errors import UsageError, suggest
from torchcaps.models.zoo import ZOO
from torchcaps.recipes import (
    choi2019,
    hahn2019,
    hinton2018,
    mazzia2021,
    ribeiro2020,
    sabour2017,
    tsai2020,
    yang2021,
    zhao2020,
)
from torchcaps.recipes.base import (
    Measure as Measure,
    Published as Published,
    Recipe as Recipe,
    Setting as Setting,
)
from torchcaps.recipes.controls import controls
from torchcaps.recipes.demo import demo
from torchcaps.recipes.tools.presets import named

_MODERN_ORDER = (
    "sabour2017/mnist-modern",
    "choi2019/mnist-modern",
    "yang2021/mnist-l1-modern",
    "yang2021/mnist-l2-modern",
    "mazzia2021/mnist-modern",
    "sabour2017/multimnist-modern",
    "tsai2020/diversemultimnist-matrix-modern",
    "tsai2020/diversemultimnist-vector-modern",
    "tsai2020/cifar10-resnet-modern",
    "zhao2020/cifar10-modern",
    "zhao2020/fashion-mnist-modern",
    "choi2019/cifar10-modern",
)
"""Modern recipes by data set: digits, overlapping digits, pictures; others come last."""


def _modern() -> list[Recipe]:
    papers = (sabour2017, tsai2020, choi2019, zhao2020, yang2021, mazzia2021)
    rank = {name: number for number, name in enumerate(_MODERN_ORDER)}
    recipes = [recipe for paper in papers for recipe in paper.modern()]
    return sorted(recipes, key=lambda recipe: rank.get(recipe.name, len(rank)))


def all_recipes() -> list[Recipe]:
    """Return every recipe of the package: published, modern, controls, the demo's."""
    papers = (
        sabour2017,
        hinton2018,
        tsai2020,
        choi2019,
        zhao2020,
        yang2021,
        hahn2019,
        mazzia2021,
        ribeiro2020,
    )
    published = [recipe for paper in papers for recipe in paper.published()]
    trained = [*published, *_modern()]
    return [*trained, *controls(named(trained)), *demo()]


RECIPES: dict[str, Recipe] = named(all_recipes())
"""Name -> recipe, as ``paper/dataset-variant``."""


@cache
def _twins() -> dict[str, tuple[str, ...]]:
    """Return the names of the recipes that train one network in one way, for each of them."""
    groups: dict[tuple[int, str], list[str]] = defaultdict(list)
    known: list[Recipe] = []
    for name, recipe in RECIPES.items():
        plain = replace(recipe, name="", network="", notes="", published=Published(""))
        if plain not in known:
            known.append(plain)
        network = next(n for n, entry in ZOO.items() if entry == ZOO[recipe.network])
        groups[known.index(plain), network].append(name)
    return {name: tuple(names) for names in groups.values() for name in names}


def twins(name: str) -> tuple[str, ...]:
    """Return the recipes that train the same network in the same way, this one among them.

    A paper may print one run in two places, such as Table 1 and Figure 4 of Tsai 2020.
    """
    return _twins().get(name, (name,))


def get(name: str) -> Recipe:
    """Return the recipe of the package with this name."""
    if isinstance(name, str) and name in RECIPES:
        return RECIPES[name]
    if not isinstance(name, str):
        raise UsageError(f"a recipe's name is a string such as 'sabour2017/mnist', not {name!r}")
    hint = suggest(name, RECIPES, otherwise="torchcaps list names them all")
    raise UsageError(f"there is no recipe {name!r}: {hint}")
