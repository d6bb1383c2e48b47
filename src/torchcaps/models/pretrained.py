"""Weights that come with the package, found by the name of their recipe or network."""

from pathlib import Path
from typing import Any

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
        recipe: {**describe(path)["trained"], "bytes": path.stat().st_size}
        for recipe, path in shipped().items()
    }


def find_shipped(name: str) -> Path:
    """The file of a recipe; for a network the best there is, modern recipes first."""
    files = shipped()
    if name not in ZOO:
        if name in files:
            return files[name]
    elif found := {r: p for r, p in files.items() if r == name or r.startswith(f"{name}-")}:
        described = {recipe: describe(path) for recipe, path in found.items()}
        own = [recipe for recipe in found if described[recipe]["network"] == name]
        if own:
            tests = {recipe: described[recipe]["trained"].get("test", 0) for recipe in own}
            return found[max(own, key=lambda one: (one.endswith("-modern"), tests[one]))]
    have = f"these have: {', '.join(files)}" if files else "none are in this installation"
    raise ValueError(f"{name!r} has no shipped weights; {have}")


def load_shipped(name: str) -> Network:
    """The network of :func:`find_shipped` with its weights, in float32 and training mode."""
    return load(find_shipped(name)).train()
