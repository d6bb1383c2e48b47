"""Weights that come with the package, found by the name of their recipe or network."""

from pathlib import Path
from typing import Any

from torchcaps.errors import InputError
from torchcaps.models.files import describe, load
from torchcaps.models.network import Network
from torchcaps.models.zoo import ZOO

__all__ = [
    "MOST_BYTES",
    "facts",
    "file_name",
    "find_shipped",
    "load_shipped",
    "shipped",
    "weights_folder",
]

MOST_BYTES = 20_000_000
"""Of one file."""


def weights_folder() -> Path:
    """Where the files are."""
    return Path(__file__).parents[1] / "weights"


def file_name(recipe: str) -> str:
    """What the file of a recipe is called."""
    return f"{recipe.replace('/', '-')}.safetensors"


def shipped() -> dict[str, Path]:
    """Recipe -> its file."""
    files = sorted(weights_folder().glob("*.safetensors"))
    return {path.stem.replace("-", "/", 1): path for path in files}


def facts() -> dict[str, dict[str, Any]]:
    """Recipe -> what its file says of its run and of itself."""
    return {
        recipe: {**_described(recipe, path)["trained"], "bytes": path.stat().st_size}
        for recipe, path in shipped().items()
    }


def find_shipped(name: str, *, own: bool = False) -> Path:
    """The file of a recipe; for a network the best there is, modern recipes first.

    Args:
        name: of a recipe or a network; some are both.
        own: of what is both take the recipe, if it has a file.
    """
    files = shipped()
    if name in files and (own or name not in ZOO):
        _described(name, files[name])
        return files[name]
    found = {r: p for r, p in files.items() if r == name or r.startswith(f"{name}-")}
    if name in ZOO and found:
        described = {recipe: _described(recipe, path) for recipe, path in found.items()}
        fit = [recipe for recipe in found if described[recipe]["network"] == name]
        if fit:
            tests = {recipe: described[recipe]["trained"]["test"] for recipe in fit}
            return found[max(fit, key=lambda one: (one.endswith("-modern"), tests[one]))]
    have = f"these have: {', '.join(files)}" if files else "none are in this installation"
    raise InputError(f"{name!r} has no shipped weights; {have}")


def _described(recipe: str, path: Path) -> dict[str, Any]:
    """What a file says it is, which must be weights of that recipe and their score."""
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
    """The network of :func:`find_shipped` with its weights, in float32 and training mode."""
    return load(find_shipped(name)).train()
