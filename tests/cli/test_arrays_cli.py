"""Training, scoring and showing arrays that NumPy has saved, on the command line."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL
from torchcaps import classify, load

RECIPE = "demo/strokes-pairwise"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def drawn(*shape: int) -> dict[str, Any]:
    """Float images whose first channel is dark or bright, by the label."""
    images = np.random.default_rng(0).random(shape, np.float32) / 2
    labels = np.arange(len(images)) % 2
    images[labels == 1, ..., 0] += 0.5
    return {"images": images, "labels": labels}


def test_images_of_five_channels_train_and_are_scored() -> None:
    np.savez("mine.npz", **drawn(60, 28, 28, 5), classes=["dark", "bright"])
    words = ["train", "tsai2020/cifar10-simple", "--data", "mine.npz", "--out", "run", *SMALL]
    words.remove("--no-tensorboard")
    result = invoke(*words)
    assert result.exit_code == 0, result.output
    network = load("run/weights.safetensors")
    assert network.image_shape[0] == 5
    assert network.class_names == ("dark", "bright")
    images = np.load("mine.npz")["images"]
    mean = np.rint(images[[n for n in range(60) if n not in (18, 19, 38, 39, 58, 59)]] * 255) / 255
    steps = network.preprocessing.steps if network.preprocessing else ()
    assert steps[0].mean == pytest.approx(mean.mean((0, 1, 2)), abs=1e-4)  # type: ignore[union-attr]
    assert len(classify(network, images[:3].transpose(0, 3, 1, 2))) == 3
    np.savez("other.npz", images=images[:40], labels=np.array(["bright", "dark"] * 20)[::-1])
    for data, count in (("mine.npz", 60), ("other.npz", 40)):
        scored = invoke("evaluate", "run", "--data", data, "--device", "cpu", "--json")
        if data == "mine.npz":
            assert "has none; it has validation" in one_sentence(scored, 2)
            scored = invoke("evaluate", "run", "--split", "validation", "--device", "cpu", "--json")
            count = 6
        assert scored.exit_code == 0, scored.output
        assert json.loads(scored.stdout)["run"]["images"] == count
    np.savez("mine.npz", **drawn(58, 28, 28, 5), classes=["dark", "bright"])
    assert "images 60 and not 58" in one_sentence(invoke(*words), 2)
    np.savez("gray.npz", images=images[..., 0], labels=[0, 1] * 30, classes=["dark", "bright"])
    said = one_sentence(invoke("evaluate", "run", "--data", "gray.npz"), 2)
    assert "takes images of 5 channels, not 1" in said


@pytest.mark.parametrize("shape", [(40, 1, 256), (40, 2, 1, 256)])
def test_signals_are_images_of_height_one(shape: tuple[int, ...]) -> None:
    images = np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)
    np.save("images.npy", images)
    np.save("labels.npy", np.arange(40) % 2)
    result = invoke("train", "demo/waveforms", "--data", "images.npy", "--out", "run", *SMALL)
    assert result.exit_code == 0, result.output
    assert load("run/weights.safetensors").image_shape == (2 if len(shape) == 4 else 1, 1, 256)


def test_a_pretrained_network_is_fine_tuned_on_arrays_of_other_shape() -> None:
    np.savez("mine.npz", **drawn(40, 20, 20))
    words = ["train", RECIPE, "--data", "mine.npz", "--out", "run", *SMALL]
    result = invoke(*words, "--from", "demo/mnist-pairwise")
    assert result.exit_code == 0, result.output
    assert load("run/weights.safetensors").image_shape == (1, 28, 28)
    assert "each is scaled until it covers 28x28" in result.output


def test_arrays_are_described_and_shown() -> None:
    np.savez("mine.npz", **drawn(40, 20, 24), classes=["dark", "bright"])
    said = invoke("data", "info", "mine.npz").output
    assert "image   1x20x24" in said
    assert "classes dark bright" in said
    assert invoke("data", "show", "mine.npz", "--out", "sheet.png").exit_code == 0
    assert Path("sheet.png").is_file()
    np.savez("five.npz", **drawn(40, 20, 20, 5))
    words = ["data", "show", "five.npz", "--out", "five.png"]
    assert "1, 2 or 3 channels" in one_sentence(invoke(*words), 1)


def test_a_wrong_file_is_one_sentence() -> None:
    Path("mine.npz").write_bytes(b"PK")
    for words in (["train", RECIPE, "--out", "run"], ["evaluate", "demo/mnist-pairwise"]):
        said = one_sentence(invoke(*words, "--data", "mine.npz", "--device", "cpu"), 1)
        assert "mine.npz cannot be used" in said
        said = one_sentence(invoke(*words, "--data", "none.npz", "--device", "cpu"), 1)
        assert "there is no file none.npz" in said
