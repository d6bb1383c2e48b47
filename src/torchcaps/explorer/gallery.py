"""The networks that the page offers, each loaded when it is first asked for."""

from functools import cache
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

from torchcaps.data import Batches
from torchcaps.errors import InputError, MissingFileError
from torchcaps.explorer.explored import Explored
from torchcaps.export.parity import load_test_batches
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import RECIPES
from torchcaps.train.evaluation.trained import (
    description_of,
    find_trained,
    find_weights,
    load_trained,
)
from torchcaps.train.outputs.folder import RunFolder

DIGITS = "sabour2017/mnist-modern"
PAIRS = "sabour2017/multimnist-modern"


class Sample(NamedTuple):
    """A test image: its pixels from 0 to 255, channels first, and its class names."""

    pixels: list[int]
    labels: list[str]


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
        """Return name, network, recipe and test accuracy of each, without loading it."""
        return [{"name": name, **_facts(path)} for name, path in self._paths.items()]

    def sample(self, name: str, number: int) -> Sample:
        """Return one of the test images of a network's recipe, in a random but fixed order.

        Args:
            name: a network of the page.
            number: any whole number; the order starts again at its end.
        """
        explored = self.open(name)
        recipe = _facts(self._paths[name])["recipe"]
        own = description_of(self._paths[name]).get("data") is not None
        if own or recipe not in RECIPES:
            raise InputError("the test images of this network are your own: open one of them")
        with self.lock:
            batches = _test_images(recipe)
            batch = batches.batch(batches.order(0)[[number % len(batches)]])
        if tuple(batch.images.shape[1:]) != explored.input_shape:
            raise InputError("the test images of this network's recipe have another size")
        pixels = (batch.images * 255).round().int().flatten().tolist()
        classes = explored.describe_classes()
        labels = [classes[label] for label in batch.labels.flatten().tolist() if label >= 0]
        return Sample(pixels, labels)


@cache
def _test_images(recipe: str) -> Batches:
    chosen = RECIPES[recipe]
    try:
        return load_test_batches(chosen)
    except MissingFileError:
        name = chosen.test_dataset or chosen.dataset
        raise MissingFileError(
            f"the test images of {name} are not on this machine: torchcaps data info {name} says "
            "where to get them"
        ) from None


def _facts(path: Path) -> dict[str, Any]:
    described = describe(find_weights(path))
    row = RunFolder(path).row() if path.is_dir() else None
    trained = described["trained"] or (description_of(path) if row is None else vars(row))
    return {
        "network": described["network"],
        "recipe": trained.get("recipe"),
        "test": trained.get("test"),
    }
