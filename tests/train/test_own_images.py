"""A user's own images: trained on, scored, and shown to networks that saw others."""

import json
import shlex
import shutil
from collections.abc import Sized
from pathlib import Path
from typing import Any

import pytest

from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL, draw, made
from torchcaps import build, load, save
from torchcaps.data import load_folder
from torchcaps.recipes import get
from torchcaps.train.evaluation.score import Score

QUICK = ["--only", "robustness", "--samples", "20", "--out", "figures"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_the_network_adapts_to_a_user_s_own_images() -> None:
    draw(Path("mine/train"), shape=(20, 24, 3), count=40)
    draw(Path("mine/test"), shape=(20, 24, 3), count=10)
    fit = ["--set", "epochs=8", "--set", "batch_size=8", "--device", "cpu", "--no-tensorboard"]
    result = invoke("train", "demo/strokes-pairwise", "--data", "mine", *fit, "--out", "run")
    assert result.exit_code == 0, result.output
    network = load("run/weights.safetensors")
    assert network.image_shape == (3, 20, 24)
    assert network.n_classes == 2
    row = json.loads(Path("run/result.json").read_text())
    assert row["test"] == 100
    assert row["changes"]["data"] == "mine"
    for words in ([], ["--data", "mine"]):
        scored = invoke("evaluate", "run", *words, "--device", "cpu")
        assert "100.00 % of 20 images" in scored.stdout
    alone = shutil.copy("run/weights.safetensors", "alone.safetensors")
    refused = invoke("evaluate", alone, "--device", "cpu")
    assert "or the folder of your own images with --data" in one_sentence(refused, 2)


def test_a_network_sees_other_images_as_it_saw_those_it_was_trained_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[Any, int]] = []

    def score(network: object, source: Sized, *, transforms: list[Any], **_: object) -> Score:
        seen.append((transforms[-1].mean, len(source)))
        return Score(1, 2)

    monkeypatch.setattr("torchcaps.train.evaluation.files.score", score)
    draw(Path("mine"), shape=(32, 32, 3), count=20)
    draw(Path("other"), shape=(32, 32, 3), count=3)
    draw(Path("ten"), shape=(32, 32, 3), count=3)
    for label in range(10):
        shutil.copytree("ten/dark", f"ten/{label}")
    shutil.rmtree("ten/dark")
    shutil.rmtree("ten/light")
    made("recipe", data=None, n_classes=10)
    weights = made("mine-run", data="mine", n_classes=2) / "weights.safetensors"
    shutil.copy("recipe/weights.safetensors", "bare.safetensors")
    shutil.copy(weights, "adapted.safetensors")
    cifar = (0.4914, 0.4822, 0.4465)
    mine = tuple(load_folder("mine", "fit").statistics()[0].tolist())
    for words, mean, count in (
        (["recipe", "--data", "ten"], cifar, 30),
        (["bare.safetensors", "--data", "ten"], cifar, 30),
        (["mine-run", "--data", "other"], mine, 6),
        ([str(weights), "--data", "other"], mine, 6),
        (["mine-run", "--data", "mine", "--split", "validation"], mine, 4),
        (["mine-run", "--split", "validation"], mine, 4),
    ):
        result = invoke("evaluate", *words, "--device", "cpu")
        assert result.exit_code == 0, result.output
        assert seen.pop() == (mean, count), words
    shutil.copytree("mine", "more/train")
    shutil.copytree("other", "more/test")
    assert invoke("evaluate", "adapted.safetensors", "--data", "more").exit_code == 0
    assert seen.pop() == (tuple(load_folder("more").statistics()[0].tolist()), 6)
    both = ["adapted.safetensors", "mine-run", "--recipe", "tsai2020/cifar10-simple"]
    assert "different images" in one_sentence(invoke("evaluate", *both, "--data", "other"), 2)
    shutil.rmtree("mine")
    said = one_sentence(invoke("evaluate", "mine-run", "--data", "other"), 1)
    assert "was trained on" in said
    assert "so put it back" in said


def test_other_images_are_normalized_as_the_resized_ones_of_the_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[tuple[float, ...]] = []

    def score(network: object, source: object, *, transforms: list[Any], **_: object) -> Score:
        seen.append((*transforms[-1].mean, *transforms[-1].std))
        return Score(1, 2)

    draw(Path("mine"), shape=(64, 64, 3), count=20)
    shutil.copytree("mine", "copy")
    words = ["--data", "mine", *SMALL, "--set", "resize=16", "--out", "run"]
    assert invoke("train", "tsai2020/cifar10-simple", *words).exit_code == 0
    monkeypatch.setattr("torchcaps.train.evaluation.files.score", score)
    for words in (["mine", "--split", "validation"], ["copy"]):
        result = invoke("evaluate", "run", "--device", "cpu", "--data", *words)
        assert result.exit_code == 0, result.output
    assert seen[0] == seen[1]


def test_a_row_says_the_command_as_a_shell_takes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    draw(Path("my flowers"), shape=(28, 28), count=10)
    words = ["train", "demo/strokes-pairwise", "--data", "my flowers", *SMALL, "--out", "run"]
    monkeypatch.setattr("sys.argv", ["torchcaps", *words])
    assert invoke(*words).exit_code == 0
    row = json.loads(Path("run/result.json").read_text())
    assert shlex.split(row["command"]) == ["torchcaps", *words]


def test_images_of_another_size_and_color_become_what_the_network_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    seen: list[list[int]] = []

    def score(network: object, source: Any, **_: object) -> Score:
        seen.append(list(source.images.shape))
        return Score(1, 2)

    monkeypatch.setattr("torchcaps.train.evaluation.files.score", score)
    draw(Path("gray"), shape=(40, 56), count=2)
    draw(Path("color"), shape=(20, 24, 3), count=2)
    for label in range(8):
        shutil.copytree("gray/dark", f"gray/{label}")
        shutil.copytree("color/dark", f"color/{label}")
    for recipe, shape in (
        ("tsai2020/cifar10-simple", [20, 3, 32, 32]),
        ("demo/strokes-dynamic", [20, 1, 28, 28]),
        ("yang2021/cifar10-dynamic", [20, 3, 32, 32]),  # whose middle 24x24 it takes
    ):
        save(build(get(recipe).network), "network.safetensors")
        for folder in ("gray", "color"):
            words = ["network.safetensors", "--recipe", recipe, "--data", folder]
            result = invoke("evaluate", *words, "--device", "cpu")
            assert result.exit_code == 0, result.output
            assert seen.pop() == shape
    draw(Path("two"), shape=(28, 28), count=2)
    words = ["network.safetensors", "--recipe", "yang2021/cifar10-dynamic", "--data", "two"]
    assert "of 2: give a folder that has them" in one_sentence(invoke("evaluate", *words), 2)


def test_a_folder_without_test_images_says_what_it_has() -> None:
    draw(Path("mine"), shape=(28, 28), count=10)
    words = ["demo/strokes-pairwise", "--data", "mine", *SMALL, "--out", "run"]
    assert invoke("train", *words).exit_code == 0
    said = one_sentence(invoke("evaluate", "run", "--device", "cpu"), 2)
    assert said.endswith("it has validation images: --split validation")
    scored = invoke("evaluate", "run", "--split", "validation", "--device", "cpu")
    assert "of 2 images" in scored.stdout
    shutil.rmtree("mine/light")
    said = one_sentence(invoke("train", *words, "--fresh"), 1)
    assert "mine has one class, 'dark': give it two or more" in said


def test_training_images_are_not_scored_as_held_out_ones() -> None:
    draw(Path("mine"), shape=(28, 28), count=10)
    words = ["demo/strokes-pairwise", "--data", "mine", *SMALL, "--out", "run"]
    assert invoke("train", *words).exit_code == 0
    shutil.copy("mine/dark/0.png", "mine/dark/00.png")  # the tenth in order is another now
    for words in (["evaluate", "run", "--split", "validation"], ["figures", "run"]):
        said = one_sentence(invoke(*words, "--device", "cpu"), 2)
        assert "held-out images are unknown" in said


def test_sizes_and_skipped_files_are_told_and_remembered() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    draw(Path("wide"), shape=(30, 60), count=2)
    for name in ("dark", "light"):
        for file in Path("wide", name).iterdir():
            shutil.copy(file, f"mine/{name}/wide-{file.name}")
    Path("mine/dark/3.png").write_bytes(b"not an image")
    words = ["train", "demo/strokes-pairwise", "--data", "mine", *SMALL, "--out", "run"]
    assert "mine/dark/3.png cannot be used" in one_sentence(invoke(*words), 1)
    trained = invoke(*words, "--skip-bad")
    assert trained.exit_code == 0, trained.output
    told = "mine: 43 images of height x width 28x28 (39), 30x60 (4); each is scaled until it covers"
    assert told in " ".join(trained.stdout.split())
    assert "mine: skipped 1 files that are no images: mine/dark/3.png" in trained.stdout
    for command in (["evaluate", "run", "--split", "validation"], ["figures", "run", *QUICK]):
        result = invoke(*command, "--device", "cpu")
        assert result.exit_code == 0, result.output
    described = invoke("data", "info", "mine", "--skip-bad").stdout
    assert "size    28x28        39 images" in described
    assert "skipped mine/dark/3.png" in described
