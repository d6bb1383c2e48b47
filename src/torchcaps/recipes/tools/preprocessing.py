"""The preprocessing of a recipe's images, as the record that its weights carry."""

from torchcaps.data import find
from torchcaps.preprocessing import Preprocessing
from torchcaps.preprocessing.description import are_steps
from torchcaps.recipes.base import Recipe


def preprocessing_of(recipe: Recipe) -> Preprocessing | None:
    """Return the preprocessing of test images; None if a transform cannot be recorded."""
    if not are_steps(recipe.test_transforms):
        return None
    channels, height, width = find(recipe.dataset).shape
    size = (recipe.resize, recipe.resize) if recipe.resize else (height, width)
    # every gray set of the package is white on black
    background = 0.0 if channels == 1 else None
    return Preprocessing(channels, size, recipe.test_transforms, background)
