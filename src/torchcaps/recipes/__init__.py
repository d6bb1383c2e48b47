"""Every published row as a recipe: what to train, how, and the number its paper prints."""

import difflib
from collections.abc import Callable

from torchcaps.errors import UsageError
from torchcaps.recipes.base import Measure, Published, Recipe, Setting
from torchcaps.recipes.choi2019 import choi
from torchcaps.recipes.demo import demo
from torchcaps.recipes.hinton2018 import hinton
from torchcaps.recipes.modern import modern
from torchcaps.recipes.sabour2017 import sabour
from torchcaps.recipes.tsai2020 import tsai
from torchcaps.recipes.yang2021 import yang
from torchcaps.recipes.zhao2020 import zhao

__all__ = ["PAPERS", "RECIPES", "Measure", "Published", "Recipe", "Setting", "get"]

PAPERS: tuple[Callable[[], list[Recipe]], ...] = (
    sabour,
    hinton,
    tsai,
    choi,
    zhao,
    yang,
    modern,
    demo,
)
"""What makes the recipes, in the order they are listed."""

RECIPES: dict[str, Recipe] = {recipe.name: recipe for paper in PAPERS for recipe in paper()}
"""Name -> recipe, as ``paper/dataset-variant``."""


def get(name: str) -> Recipe:
    """The recipe of that name."""
    if name in RECIPES:
        return RECIPES[name]
    near = difflib.get_close_matches(name, RECIPES, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "torchcaps list names them all"
    raise UsageError(f"there is no recipe {name!r}: {hint}")
