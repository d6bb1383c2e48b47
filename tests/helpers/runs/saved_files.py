"""The files that a release leaves for the tests of later ones.

``python tests/helpers/runs/saved_files.py`` writes those of this version into ``tests/saved``.
"""

import json
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[2]))

import pytest
import torch

import torchcaps as tc
from helpers.registry import restored_zoo
from helpers.runs.training import BrokenError, break_at, quick
from torchcaps.data import Normalize
from torchcaps.models.weights.files import save_packed
from torchcaps.recipes import Recipe

with restored_zoo():  # importing the file of a user registers its network
    from helpers.my_recipe import TinyNet
    from helpers.my_recipe import recipe as user_recipe

__all__ = ["BROKEN_STEP", "SAVED", "SEED", "release_recipe", "sample", "user_network"]

SAVED = Path(__file__).parents[2] / "saved"
SEED = 3
BROKEN_STEP = 6


@contextmanager
def user_network() -> Iterator[None]:
    """Register the network of the saved runs inside."""
    with restored_zoo():
        tc.register_network("me/tiny", TinyNet, image_shape=(1, 28, 28))
        yield


def release_recipe() -> Recipe:
    """Return the recipe of the saved runs: eight steps of a network that a user registers."""
    return user_recipe.override(limit=32, batch_size=8, epochs=2, test_limit=50, hold_out=False)


def sample(network: tc.Network) -> torch.Tensor:
    """Return two images that every machine computes alike."""
    n_values = 2 * torch.Size(network.image_shape).numel()
    return (torch.arange(n_values) * 37 % 256 / 255).reshape(2, *network.image_shape)


def write(folder: Path) -> None:
    """Write two networks, a finished run, an unfinished run, and what they score."""
    folder.mkdir(parents=True)
    torch.manual_seed(0)
    named = tc.build("zhao2020/smallnorb").eval()
    facts: dict[str, str | int | float] = {"recipe": "zhao2020/smallnorb", "seed": 0, "test": 20.0}
    save_packed(named, folder / "packed.safetensors", store="int8", trained=facts)
    own = tc.build("me/tiny", n_classes=4).eval()
    own.preprocessing = tc.Preprocessing(1, (28, 28), (Normalize((0.5,), (0.5,)),))
    tc.save(own, folder / "network.safetensors", classes=("a", "b", "c", "d"))
    row = quick(release_recipe(), seed=SEED, out=folder / "finished")
    with pytest.MonkeyPatch.context() as patch:
        break_at(patch, BROKEN_STEP)
        with suppress(BrokenError):
            quick(release_recipe(), seed=SEED, out=folder / "broken", save_every=0.0)
    shutil.rmtree(folder / "finished/checkpoints")
    for lock in folder.rglob(".lock"):
        lock.unlink()
    scores = {
        name: tc.load(folder / name)(sample(tc.load(folder / name))).scores.tolist()
        for name in ("packed.safetensors", "network.safetensors")
    }
    (folder / "expected.json").write_text(json.dumps({"test": row.test, "scores": scores}))


if __name__ == "__main__":
    with user_network():
        write(SAVED / tc.__version__.partition(".dev")[0])
