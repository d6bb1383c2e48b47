"""Pretrained weights that ship with the package, by the name of their recipe or network."""

from pathlib import Path
from typing import Any

from torchcaps.errors import InputError
from torchcaps.models.network import Network
from torchcaps.models.weights.files import describe, load
from torchcaps.models.zoo import ZOO

MAX_WEIGHT_BYTES = 20_000_000
"""Largest size of one file."""


def weights_folder() -> Path:
    """Return the folder of the files."""
    return Path(__file__).parents[2] / "weights"


def file_name(recipe: str) -> str:
    """Return the name of a recipe's file."""
    return f"{recipe.replace('/', '-')}.safetensors"


def shipped() -> dict[str, Path]:
    """Return the file of each recipe that has one."""
    files = sorted(weights_folder().glob("*.safetensors"))
    return {path.stem.replace("-", "/", 1): path for path in files}


def facts() -> dict[str, dict[str, Any]]:
    """Return the facts of training and the size of each recipe's file."""
    return {
        recipe: {**_described(recipe, path)["trained"], "bytes": path.stat().st_size}
        for recipe, path in shipped().items()
    }


def pretrained_names() -> list[str]:
    """Return the names that :func:`find_shipped` takes: networks in their order, then recipes."""
    files = shipped()
    networks = {recipe: _described(recipe, path)["network"] for recipe, path in files.items()}
    fit = {net for recipe, net in networks.items() if recipe == net or recipe.startswith(f"{net}-")}
    return [*(name for name in ZOO if name in fit), *(name for name in files if name not in ZOO)]


def find_shipped(name: str, *, prefer_recipe: bool = False) -> Path:
    """Return the file of a recipe, or the best file of a network, modern recipes first.

    Args:
        name: name of a recipe or a network; some names are both.
        prefer_recipe: for a name of both, take the recipe's file if there is one.
    """
    files = shipped()
    if name in files and (prefer_recipe or name not in ZOO):
        _described(name, files[name])
        return files[name]
    related = {r: p for r, p in files.items() if r == name or r.startswith(f"{name}-")}
    if name in ZOO and related:
        described = {recipe: _described(recipe, path) for recipe, path in related.items()}
        fit = [recipe for recipe in related if described[recipe]["network"] == name]
        if fit:
            tests = {recipe: described[recipe]["trained"]["test"] for recipe in fit}
            return related[max(fit, key=lambda one: (one.endswith("-modern"), tests[one]))]
    available = f"these have: {', '.join(files)}" if files else "none are in this installation"
    raise InputError(f"{name!r} has no shipped weights; {available}")


def _described(recipe: str, path: Path) -> dict[str, Any]:
    """Return the metadata of a file, which must name the recipe and its test accuracy."""
    described = describe(path)
    trained = described["trained"]
    scored = isinstance(trained.get("test"), int | float) and 0 <= trained["test"] <= 100
    if trained.get("recipe") != recipe or not scored or not {"seed", "store"} <= set(trained):
        raise InputError(
            f"{path} does not say that it holds weights of {recipe!r} and what they scored: ship "
            "the run again, or take the file away"
        )
    return described


def load_shipped(name: str) -> Network:
    """Return the network of :func:`find_shipped` with its weights, in float32 and training mode."""
    return load(find_shipped(name)).train()
