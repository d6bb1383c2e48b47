"""Three uses of torchcaps from end to end: a student, an engineer and a researcher.

An installed package plays them away from the clone, by the console command:

    python three_uses.py FOLDER
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

import torchcaps as tc

__all__ = ["Torchcaps", "play"]

Torchcaps = Callable[..., str]  # runs one command and returns what it prints

PRETRAINED = "demo/mnist-pairwise"
SHAPES = ("checks", "disk", "stripes")
MODES = {"L": ".png", "RGB": ".jpg", "RGBA": ".png", "P": ".png"}
CPU = ("--device", "cpu")
TRAIN = (*CPU, "--no-tensorboard")


def play(
    torchcaps: Torchcaps, folder: Path, recipe: Path, *, files: int, epochs: int, other: str
) -> None:
    """Play the three uses in a folder, and check what each step returns."""
    classify_an_image(torchcaps, folder)
    fine_tune_on_mixed_images(torchcaps, folder, files=files, epochs=epochs)
    compare_two_recipes(torchcaps, folder, recipe, other)


def classify_an_image(torchcaps: Torchcaps, folder: Path) -> None:
    """Read a PNG with a pretrained network: in Python, and by the command."""
    digits = tc.data.load("strokes", "test")
    labels = [int(digits[n][1]) for n in range(4)]
    files = [folder / f"{n}.png" for n in range(4)]
    for n, file in enumerate(files):
        Image.fromarray((255 * digits[n][0][0]).round().byte().numpy()).save(file)
    network = tc.build(PRETRAINED, pretrained=True)
    assert [p.labels[0] for p in tc.classify(network, files)] == labels
    rows = json.loads(torchcaps("predict", PRETRAINED, *files, "--json", *CPU))
    assert [row["labels"][0] for row in rows] == labels


def fine_tune_on_mixed_images(
    torchcaps: Torchcaps, folder: Path, *, files: int, epochs: int
) -> None:
    """Fine-tune on images of many sizes and colors, score the run, and read a new file."""
    for part, count in (("train", files), ("test", 8)):
        draw_mixed_images(folder / "shapes" / part, count)
    settings = [*TRAIN, "--set", f"epochs={epochs}", "--set", "batch_size=12"]
    data, run = ("--data", folder / "shapes"), folder / "runs" / "shapes"
    torchcaps("train", PRETRAINED, "--from", PRETRAINED, *data, *settings, "--out", run)
    (scored,) = json.loads(torchcaps("evaluate", run, "--json", *CPU)).values()
    assert scored["images"] == 8 * len(SHAPES)
    assert scored["percent"] > 80
    network = tc.load(run)
    assert network.class_names == SHAPES
    draw_mixed_images(folder / "new", 1, seed=2)
    (prediction,) = tc.classify(network, folder / "new" / "disk" / "0.png")
    assert prediction.classes == ("disk",)


def draw_mixed_images(folder: Path, count: int, seed: int = 0) -> None:
    """Draw a folder per shape: files of other sizes, color modes and formats."""
    rng = np.random.default_rng([seed, count])
    for shape in SHAPES:
        (folder / shape).mkdir(parents=True)
        for number in range(count):
            mode, ending = list(MODES.items())[number % len(MODES)]
            width, height = (int(n) for n in rng.integers(40, 120, 2))
            image = draw_shape(shape, width, height, rng).convert(mode)
            image.save(folder / shape / f"{number}{ending}")


def draw_shape(shape: str, width: int, height: int, rng: np.random.Generator) -> Image.Image:
    """Draw one shape on a dark canvas."""
    image = Image.new("RGB", (width, height), (20, 20, 30))
    pen = ImageDraw.Draw(image)
    color = tuple(int(n) for n in rng.integers(150, 255, 3))
    side, step = min(width, height), min(width, height) // 4
    if shape == "disk":
        radius = side * rng.uniform(0.25, 0.45)
        pen.ellipse(
            (width / 2 - radius, height / 2 - radius, width / 2 + radius, height / 2 + radius),
            fill=color,
        )
        return image
    for row, top in enumerate(range(0, height, step)):
        for column, left in enumerate(range(0, width, step)):
            if (row if shape == "stripes" else row + column) % 2:
                pen.rectangle((left, top, left + step - 1, top + step - 1), fill=color)
    return image


def compare_two_recipes(torchcaps: Torchcaps, folder: Path, recipe: Path, other: str) -> None:
    """Train a recipe with a routing of one's own and another one, and compare the two runs."""
    record = ("--results", folder / "accuracy.csv")
    for name, run in ((f"{recipe}:recipe", "mine"), (other, "other")):
        torchcaps("train", name, *TRAIN, *record, "--out", folder / "runs" / run)
    rows = json.loads(torchcaps("results", *record, "--json"))
    tests = {row["recipe"]: round(row["mean"], 4) for row in rows}
    for run in ("mine", "other"):
        result = json.loads((folder / "runs" / run / "result.json").read_text())
        assert tests.pop(result["recipe"]) == round(result["test"], 4)
    assert not tests
    table = torchcaps("results", *record)
    assert all(f"{row['mean']:.2f}" in table for row in rows)
    latex = torchcaps("results", *record, "--latex").splitlines()
    assert latex[0].startswith(r"\begin{tabular}")
    assert sum(line.endswith(r"\\") for line in latex) == 1 + len(rows)


def _command(*words: object) -> str:
    """Run the console command of the environment that plays this script."""
    command = [str(Path(sys.executable).with_name("torchcaps")), *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


if __name__ == "__main__":
    mine = Path(__file__).with_name("my_recipe.py")
    play(_command, Path(sys.argv[1]), mine, files=60, epochs=10, other="demo/strokes-pairwise")
    assert Path(tc.__file__).is_relative_to(sys.prefix), "play it with an installed package"
    print(f"all three uses work with {sys.prefix}")  # noqa: T201
