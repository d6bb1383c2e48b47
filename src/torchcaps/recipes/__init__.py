"""Every published row as a recipe: what to train, how, and the number its paper prints."""

import difflib

from torchcaps.recipes.base import Measure, Published, Recipe, Setting
from torchcaps.recipes.demo import demo
from torchcaps.recipes.sabour import sabour

__all__ = ["RECIPES", "Measure", "Published", "Recipe", "Setting", "get"]

RECIPES: dict[str, Recipe] = {
    recipe.name: recipe for recipes in (sabour(), demo()) for recipe in recipes
}
"""Name -> recipe, as ``paper/dataset-variant``."""


def get(name: str) -> Recipe:
    """The recipe of that name."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "torchcaps list names them all"
    raise ValueError(f"there is no recipe {name!r}: {hint}")
