"""Images for checking an exported graph, and its outputs compared with those of PyTorch."""

from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.functional import interpolate

from torchcaps.data import Batches, ImageSet, load
from torchcaps.errors import TorchcapsError
from torchcaps.export.programs import Inputs, Run
from torchcaps.recipes import RECIPES, Recipe

TOLERANCE = 1e-4
"""Largest difference of an output, relative to its largest value if that is above 1."""

MIN_EQUAL = 0.97
"""Least share of equal predictions where convolutions compute in int8."""

Shape = tuple[int, ...]


class Parity(NamedTuple):
    """An exported graph beside PyTorch.

    ``difference`` is the largest of the scores. ``equal`` predictions of ``images`` images are the
    same.
    """

    images: int
    difference: float
    equal: int


def find_images(recipe: Recipe | None, shape: Shape, count: int) -> tuple[Tensor, str]:
    """Return images in 0 to 1 and what they are: test images of a recipe, or generated ones.

    Args:
        recipe: the recipe that trained the network, if it is known.
        shape: channels, height and width.
        count: number of images.
    """
    real = None if recipe is None else _test_images(recipe, count)
    if real is not None and recipe is not None and real.shape[1:] == shape:
        return real, f"test images of {recipe.test_dataset or recipe.dataset}"
    generator = torch.Generator().manual_seed(0)
    channels, height, width = shape
    coarse = torch.rand(
        count, channels, max(1, height // 4), max(1, width // 4), generator=generator
    )
    return interpolate(coarse, (height, width), mode="bilinear"), "generated images"


def recipe_of(name: str | None, network: str | None) -> Recipe | None:
    """Return the recipe of this name, or the first that trains a network of this name."""
    if name in RECIPES:
        return RECIPES[name]
    return next((one for one in RECIPES.values() if one.network == network), None)


def compare(
    graph: nn.Module, run: Run, batches: list[Inputs], outputs: list[str], *, exact: bool
) -> Parity:
    """Compare a graph's file with the module that it was made from; refuse other outputs.

    Args:
        graph: the module.
        run: runs the file.
        batches: inputs; the sizes of batches may differ.
        outputs: names of the outputs.
        exact: whether every number must be the same up to rounding, and not predictions alone.
    """
    images = equal = 0
    difference = 0.0
    for inputs in batches:
        with torch.no_grad():
            result = graph(*inputs.values())
        expected = list(result.values()) if isinstance(result, dict) else [result]
        actual = run(inputs)
        for name, ours, theirs in zip(outputs, expected, actual, strict=True):
            if exact:
                _check_close(name, ours, theirs)
        images += len(expected[0])
        difference = max(difference, float((expected[0] - actual[0]).abs().max()))
        ours, theirs = (tensor.flatten(1).argmax(dim=1) for tensor in (expected[0], actual[0]))
        equal += int((ours == theirs).sum())
    if not exact and equal < MIN_EQUAL * images:
        raise TorchcapsError(
            f"only {equal} of {images} predictions in int8 are those of PyTorch, so nothing was "
            "written: export without int8, or give images like those of training"
        )
    return Parity(images, difference, equal)


def _check_close(name: str, expected: Tensor, actual: Tensor) -> None:
    same_shape = expected.shape == actual.shape
    scale = max(1.0, float(expected.abs().max())) if expected.numel() else 1.0
    if not same_shape or not bool(((expected - actual).abs() <= TOLERANCE * scale).all()):
        far = float((expected - actual).abs().max()) if same_shape else float("nan")
        raise TorchcapsError(
            f"the exported output {name!r} differs from PyTorch's by up to {far:.2g}, so nothing "
            "was written: export to the other format, or try another version of torch"
        )


def _test_images(recipe: Recipe, count: int) -> Tensor | None:
    """Return test images before the recipe's transforms; None if they are not on this machine."""
    try:
        batches = load_test_batches(recipe)
    except TorchcapsError:
        return None
    return batches.batch(batches.order(0)[:count]).images


def load_test_batches(recipe: Recipe) -> Batches:
    """Return the test images before the recipe's transforms; refuse to download them."""
    source = load(recipe.test_dataset or recipe.dataset, "test", download=False)
    if recipe.resize and isinstance(source, ImageSet):
        source = source.resize(recipe.resize, recipe.resize)
    return Batches(source, 1, seed=0)
