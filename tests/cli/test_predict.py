"""``torchcaps predict``: a line per image, JSON, poses, inverted scans and bad files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

import torchcaps as tc
from helpers.commands import invoke, one_sentence, refused
from torchcaps.data import first_samples, load


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A network that tells one stroke digit from another, as a weight file."""
    folder = tmp_path_factory.mktemp("run")
    torch.manual_seed(0)
    network = tc.build("demo/strokes-dynamic")
    network.preprocessing = tc.Preprocessing(1, (28, 28), background=0.0)
    network.class_names = ("zero", *"123456789")
    tc.save(network, folder / "net.safetensors")
    return folder / "net.safetensors"


@pytest.fixture(scope="module")
def digits(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    folder = tmp_path_factory.mktemp("digits")
    paths = []
    for number, image in enumerate(first(5)):
        paths.append(folder / f"{number}.png")
        Image.fromarray(image[0].numpy()).save(paths[-1])
    return paths


def first(count: int) -> torch.Tensor:
    return first_samples(load("strokes", "test"), count)


def test_a_line_for_each_image(run: Path, digits: list[Path]) -> None:
    result = invoke("predict", run, *digits, "--top", "2", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert result.stderr == ""
    expected = tc.classify(tc.load(run), first(5), top=2)
    for path, line, one in zip(digits, result.stdout.splitlines(), expected, strict=True):
        (a, b), (x, y) = one.classes, one.scores
        assert line == f"{path}: {a} ({x:.3f}), {b} ({y:.3f})"
    rows = json.loads(invoke("predict", run, *digits, "--json", "--device", "cpu").stdout)
    assert [row["image"] for row in rows] == [str(path) for path in digits]
    assert [row["classes"][0] for row in rows] == [one.classes[0] for one in expected]
    assert all(len(row["labels"]) == len(row["scores"]) == 1 for row in rows)


def test_poses_are_saved(run: Path, digits: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "poses.npz"
    assert invoke("predict", run, *digits, "--save-poses", path, "--device", "cpu").exit_code == 0
    network = tc.load(run)
    with torch.no_grad(), np.load(path) as saved:
        output = network(network.preprocess(first(5)))
        assert output.capsules is not None
        np.testing.assert_array_equal(saved["poses"], output.capsules.poses.numpy())
        np.testing.assert_array_equal(saved["scores"], output.scores.numpy())
        assert saved["classes"][0] == "zero"
        assert saved["images"].tolist() == [str(path) for path in digits]
    assert "must end in .npz" in refused("predict", run, digits[0], "--save-poses", "poses.png")


def test_inverted_scans_are_noticed_and_inverted(
    run: Path, digits: list[Path], tmp_path: Path
) -> None:
    scans = []
    for path in digits:
        scans.append(tmp_path / path.name)
        Image.fromarray(255 - np.asarray(Image.open(path))).save(scans[-1])
    noticed = invoke("predict", run, *scans, "--device", "cpu")
    assert "5 of 5 images look inverted" in one_sentence(noticed, 0)
    assert noticed.stderr.strip().endswith("try --invert")
    inverted = invoke("predict", run, *scans, "--invert", "--device", "cpu")
    assert inverted.stderr == ""
    plain = invoke("predict", run, *digits, "--device", "cpu").stdout
    assert inverted.stdout.replace(str(tmp_path), str(digits[0].parent)) == plain


def test_evaluate_notices_inverted_scans(run: Path, digits: list[Path], tmp_path: Path) -> None:
    for path in digits:
        for name in ("zero", "1"):
            (tmp_path / name).mkdir(exist_ok=True)
            image = Image.fromarray(255 - np.asarray(Image.open(path)))
            image.save(tmp_path / name / path.name)
    result = invoke("evaluate", run, "--data", tmp_path, "--device", "cpu")
    assert f"the images of {tmp_path} look inverted" in one_sentence(result, 0)


def test_bad_files_get_one_sentence_each_and_the_others_are_classified(
    run: Path, digits: list[Path], tmp_path: Path
) -> None:
    broken = tmp_path / "broken.png"
    broken.write_bytes(digits[0].read_bytes()[:60])
    nowhere = tmp_path / "nowhere.png"
    result = invoke("predict", run, broken, digits[0], nowhere, tmp_path, "--device", "cpu")
    assert result.exit_code == 1
    assert "Traceback" not in result.output
    assert [line.partition(":")[0] for line in result.stdout.splitlines()] == [str(digits[0])]
    sentences = result.stderr.splitlines()
    assert len(sentences) == 3
    assert "it is not a whole image" in sentences[0]
    assert "there is no image" in sentences[1]
    assert "is a folder" in sentences[2]
    assert "there is no image" in one_sentence(invoke("predict", run, nowhere), 1)


def test_wrong_requests_get_one_sentence(run: Path, digits: list[Path], tmp_path: Path) -> None:
    assert "no run folder or weight file nowhere" in refused("predict", "nowhere", digits[0])
    assert "between 1 and 10 classes" in refused("predict", run, digits[0], "--top", "11")
    unknown = tmp_path / "unknown.safetensors"
    tc.save(tc.build("demo/strokes-dynamic"), unknown)
    assert "must be preprocessed" in refused("predict", unknown, digits[0])
    bare = tmp_path / "bare.safetensors"
    network = tc.build("tsai2020/diversemultimnist-baseline")
    network.preprocessing = tc.Preprocessing(3, (36, 36))
    tc.save(network, bare)
    words = ("--save-poses", tmp_path / "poses.npz")
    assert "has no capsules" in refused("predict", bare, digits[0], *words)
