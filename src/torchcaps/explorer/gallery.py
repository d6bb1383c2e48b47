"""The networks that the page offers, each loaded when it is first asked for."""

from pathlib import Path
from threading import Lock
from typing import Any

from torchcaps.errors import InputError
from torchcaps.explorer.explored import Explored
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import shipped
from torchcaps.train.evaluation.trained import (
    description_of,
    find_trained,
    find_weights,
    load_trained,
)

DIGITS = "sabour2017/mnist-modern"
PAIRS = "sabour2017/multimnist-modern"


class Gallery:
    """Networks by name: the one that was asked for, the demo networks, MultiMNIST's.

    Args:
        asked: a run folder, a weight file, or a name with weights; None takes CapsNet on MNIST.
    """

    def __init__(self, asked: str | None = None) -> None:
        self.first = DIGITS if asked is None else asked
        demos = [name for name in shipped() if name.startswith("demo/")]
        names = dict.fromkeys([self.first, DIGITS, *demos, PAIRS])
        self._paths = {name: find_trained(Path(name)) for name in names}
        self._explored: dict[str, Explored] = {}
        self.lock = Lock()
        """Held while a network computes: hooks on a network are not safe for threads."""
        self.open(self.first)

    def open(self, name: str) -> Explored:
        """Return a network, loaded at the first call."""
        if name not in self._paths:
            raise InputError(f"this page offers no network {name!r}: reload it")
        with self.lock:
            if name not in self._explored:
                self._explored[name] = Explored(load_trained(self._paths[name]))
            return self._explored[name]

    def entries(self) -> list[dict[str, Any]]:
        """Return name, recipe, routing's network and accuracy of each, without loading it."""
        return [{"name": name, **_facts(path)} for name, path in self._paths.items()]


def _facts(path: Path) -> dict[str, Any]:
    described = describe(find_weights(path))
    trained = described["trained"] or description_of(path)
    return {
        "network": described["network"],
        "recipe": trained.get("recipe"),
        "test": trained.get("test"),
        "images": trained.get("images"),
    }
