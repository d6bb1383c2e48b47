"""Folders of a user's images, and runs on them."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from torchcaps import build, save
from torchcaps.recipes import get
from torchcaps.train.outputs.folder import describe_run

SMALL = ["--set", "limit=64", "--set", "epochs=1", "--set", "test_limit=50", "--device", "cpu"]
SMALL += ["--no-tensorboard"]


def draw(folder: Path, *, shape: tuple[int, ...], count: int) -> None:
    rng = np.random.default_rng(0)
    for label, name in enumerate(("dark", "light")):
        (folder / name).mkdir(parents=True)
        for number in range(count):
            pixels = rng.integers(label * 128, label * 128 + 128, shape, dtype=np.uint8)
            Image.fromarray(pixels).save(folder / name / f"{number}.png")


def made(folder: str, *, data: str | None, n_classes: int) -> Path:
    """The run folder of a network for CIFAR-10, perhaps on a user's own images; not trained."""
    recipe = get("tsai2020/cifar10-simple")
    Path(folder).mkdir()
    asked = describe_run(recipe, 0, None if data is None else Path(data))
    Path(folder, "run.json").write_text(json.dumps(asked))
    save(build(recipe.network, n_classes=n_classes), Path(folder, "weights.safetensors"))
    return Path(folder)
