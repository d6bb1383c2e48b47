"""Runs that start from trained weights: ``torchcaps train --from``."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from PIL import Image

import torchcaps as tc
from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL, draw, made
from torchcaps.analysis import open_subject
from torchcaps.analysis.subjects import Prepared
from torchcaps.data import Batches, Normalize, load
from torchcaps.preprocessing import Preprocessing
from torchcaps.recipes import get
from torchcaps.train.images import load_sources

RECIPE = "demo/strokes-pairwise"
WORDS = ["--device", "cpu", "--no-tensorboard", "--json"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The run of a small network that reads ten digits."""
    folder = tmp_path_factory.mktemp("digits") / "run"
    record = folder.parent / "accuracy.csv"
    settings = ["--set", "limit=6400", "--set", "test_limit=100"]
    result = invoke("train", RECIPE, *settings, *WORDS, "--out", folder, "--results", record)
    assert result.exit_code == 0, result.output
    return folder


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def write_digits(folder: str) -> None:
    """A folder of 100 images to train on and 200 to test, of the digits 0 to 4."""
    for split, count in (("train", 20), ("test", 40)):
        batch = Batches(load("strokes", split), 1000).batch(torch.arange(1000))
        pixels = (255 * batch.images[:, 0]).byte().numpy()
        for digit in range(5):
            place = Path(folder, split, f"digit-{digit}")
            place.mkdir(parents=True)
            for number in (batch.labels == digit).nonzero()[:count, 0].tolist():
                Image.fromarray(pixels[number]).save(place / f"{number}.png")


def test_fine_tuning_on_few_images_beats_training_from_scratch(trained: Path) -> None:
    write_digits("mine")
    words = ["train", RECIPE, "--data", "mine", "--set", "epochs=3", "--set", "batch_size=20"]
    said = invoke(*words, *WORDS[:-1], "--from", trained, "--out", "tuned").stdout
    message = "classes.weight, decoder.layers.0.weight start from random values"
    assert message in " ".join(said.split())
    scratch = json.loads(invoke(*words, *WORDS, "--out", "scratch").stdout)
    tuned = json.loads(Path("tuned/result.json").read_text())
    assert tuned["test"] > scratch["test"] + 10
    assert tuned["changes"]["from"] == str(trained)
    assert tc.load("tuned").class_names == tuple(f"digit-{n}" for n in range(5))
    scored = json.loads(invoke("evaluate", "tuned", *WORDS[:2], "--json").stdout)["tuned"]
    assert scored["percent"] == tuned["test"]


def test_the_preprocessing_of_the_weights_applies_to_training_and_scoring() -> None:
    draw(Path("mine"), shape=(20, 20, 3), count=10)
    source = made("source", data=None, n_classes=10)
    words = ["train", "tsai2020/cifar10-simple", "--data", "mine", *SMALL, "--json"]
    row = json.loads(invoke(*words, "--from", source, "--out", "run").stdout)
    known = tc.load(source).preprocessing
    assert known is not None
    assert any(isinstance(step, Normalize) for step in known.steps)
    recorded = tc.load("run").preprocessing
    assert recorded is not None
    assert recorded.to_json() == known.to_json()
    assert tc.load("run").image_shape == (3, 32, 32)
    words = ["evaluate", "run", "--split", "validation", "--device", "cpu", "--json"]
    assert json.loads(invoke(*words).stdout)["run"]["percent"] == row["validation"]
    subject = open_subject("run").network
    assert isinstance(subject, Prepared)
    black = torch.zeros(1, 3, 32, 32)
    assert torch.equal(subject.prepare(black), known(black))


def test_a_data_set_of_the_package_is_normalized_as_the_weights_were() -> None:
    like = Preprocessing(3, (32, 32), (Normalize([0.1, 0.2, 0.3], [1, 1, 1]),))
    recipe = get("tsai2020/cifar10-simple").variant("mine", dataset="strokes")
    recipe = recipe.variant("mine", test_transforms=(Normalize([0.5], [0.5]),))
    recipe = recipe.variant("mine", train_transforms=recipe.test_transforms)
    gray = Preprocessing(1, (28, 28), (Normalize([0.25], [1.0]),))
    cpu = torch.device("cpu")
    sources = load_sources(recipe, root=None, own_folder=None, device=cpu, like=gray)
    assert sources.train_transforms == sources.test_transforms == gray.steps
    with pytest.raises(ValueError, match=r"after Normalize, and demo/.* no step: choose"):
        load_sources(get(RECIPE), root=None, own_folder=None, device=cpu, like=like)


def test_weights_that_cannot_start_a_run_get_one_sentence(trained: Path) -> None:
    words = ["train", RECIPE, *SMALL, "--from"]
    assert "no run folder or weight file nothing" in one_sentence(invoke(*words, "nothing"), 1)
    said = one_sentence(invoke(*words, "zhao2020/fashion-mnist"), 2)
    assert "zhao2020/fashion-mnist, and demo/strokes-pairwise trains" in said
    shutil.copy(trained / "weights.safetensors", "alone.safetensors")
    network = tc.load("alone.safetensors")
    network.preprocessing = None
    tc.save(network, "unknown.safetensors")
    assert "must be preprocessed" in one_sentence(invoke(*words, "unknown.safetensors"), 2)


def test_a_run_does_not_resume_from_other_weights(trained: Path) -> None:
    words = ["train", RECIPE, *SMALL, "--out", "run"]
    assert invoke(*words, "--from", trained).exit_code == 0
    said = one_sentence(invoke(*words), 2)
    assert f"from {trained}" in said
    assert "--fresh" in said
