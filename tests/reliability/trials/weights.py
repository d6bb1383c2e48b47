"""Pretrained weights and the files of every released version."""

import contextlib
import json
from collections.abc import Callable, Iterator
from functools import partial

import torch

import torchcaps as tc
from helpers.runs.saved_files import SAVED, sample, user_network
from torchcaps.data import Batches, Draws
from torchcaps.errors import MissingFileError
from torchcaps.export.parity import find_images, load_test_batches
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import get

N_IMAGES = 500
SPREAD = 4.0
"""Standard deviations by which the accuracy on `N_IMAGES` may be below that on all images."""


def trials(first: int, count: int) -> Iterator[str]:
    """Each shipped file, the smallest first, then the files of each version."""
    for name, case in cases()[first : first + count]:
        try:
            case()
            yield ""
        except (AssertionError, ValueError) as error:
            yield f"{name}: {error!r}"[:500]


def cases() -> list[tuple[str, Callable[[], None]]]:
    """Return every file and how to check it."""
    names = sorted(shipped(), key=lambda name: (shipped()[name].stat().st_size, name))
    saved = [
        (f"{folder.name}/{name}", partial(check_saved, folder.name, f"{name}.safetensors"))
        for folder in sorted(SAVED.iterdir())
        for name in ("packed", "network")
    ]
    return [*((name, partial(check_shipped, name)) for name in names), *saved]


def check_shipped(name: str) -> None:
    """A file's preprocessing is that of its recipe, and its accuracy is the recorded one.

    The accuracy needs the test images on this machine.
    """
    network, recipe = tc.load(shipped()[name]), get(name)
    assert network.preprocessing is not None, "no preprocessing came with the file"
    shape = (network.preprocessing.channels, *network.preprocessing.size)
    generated = (find_images(None, shape, 8)[0] * 255).byte()
    expected = generated / 255
    for transform in recipe.test_transforms:
        expected = transform(expected, Draws(0, torch.arange(len(expected))))
    torch.testing.assert_close(network.preprocess(generated), expected, rtol=1e-5, atol=1e-5)
    with contextlib.suppress(MissingFileError):
        check_accuracy(name, network, load_test_batches(recipe))


def check_accuracy(name: str, network: tc.Network, batches: Batches) -> None:
    right = 0
    for samples in batches.order(0)[:N_IMAGES].split(100):
        batch = batches.batch(samples)
        pixels = (batch.images * 255).round().byte()
        with torch.no_grad():
            scores = network(network.preprocess(pixels)).scores
        predicted = tc.predict(scores, top=network.n_objects)
        right += int((predicted == batch.multi_hot(network.n_classes)).all(dim=1).sum())
    test = float(describe(shipped()[name])["trained"]["test"])
    share = test / 100
    least = test - 100 * SPREAD * (share * (1 - share) / N_IMAGES) ** 0.5
    actual = 100 * right / N_IMAGES
    assert actual >= least, f"{actual:.2f} % are right, and the file says {test:.2f} %"


def check_saved(version: str, name: str) -> None:
    """A file of an earlier version gives the scores that it gave then."""
    with user_network():
        network = tc.load(SAVED / version / name)
    expected = json.loads((SAVED / version / "expected.json").read_text())["scores"][name]
    with torch.no_grad():
        scores = network(sample(network)).scores
    torch.testing.assert_close(scores, torch.tensor(expected))
