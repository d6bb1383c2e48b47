"""Recipes that predict numbers: R², training, resume, evaluation and wrong use."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

import torchcaps as tc
from helpers.commands import invoke, one_sentence
from helpers.data.own_images import draw
from helpers.runs.training import BrokenError, Listener, break_at, metrics, quick
from torchcaps.cli.metrics import describe_scores
from torchcaps.data import Draws, PoseRange, first_samples, load
from torchcaps.data.strokes.render import POSE
from torchcaps.errors import InputError, UsageError
from torchcaps.figures.metrics import draw_metrics
from torchcaps.models.demo import POSE_MEAN, POSE_STD
from torchcaps.models.network import Ensemble
from torchcaps.recipes import Recipe, get
from torchcaps.recipes.losses import margin, squared_error
from torchcaps.train.building import check_recipe
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.evaluation.score import score_of, sums_of

NAME = "demo/strokes-pose"
QUICK = {"limit": 80, "batch_size": 8, "epochs": 3, "test_limit": 100}
WORDS = [word for key, value in QUICK.items() for word in ("--set", f"{key}={value}")]
SQUARED_ERROR = partial(squared_error, step=torch.zeros(()), share=torch.zeros(()), smoothing=0.0)


def pose(**changes: Any) -> Recipe:
    return get(NAME).override(**{**QUICK, **changes})


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short run of the recipe, as the command trains it."""
    folder = tmp_path_factory.mktemp("numbers") / "run"
    record = folder.parent / "accuracy.csv"
    places = ["--out", str(folder), "--results", str(record)]
    result = invoke("train", NAME, *WORDS, *places, "--device", "cpu", "--no-tensorboard")
    assert result.exit_code == 0, result.output
    (folder.parent / "stdout").write_text(result.stdout)
    return folder


def test_r_squared_by_hand() -> None:
    """Targets 1, 2, 3, 6 have mean 3 and variation 14; errors 0, 1, 0, -1 leave 1 - 2/14."""
    targets = torch.tensor([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0], [6.0, 5.0]])
    scores = torch.tensor([[1.0, 5.0], [3.0, 4.0], [3.0, 5.0], [5.0, 5.0]])
    parts = [sums_of(scores[part], targets[part], "r2") for part in (slice(0, 1), slice(1, 4))]
    result = score_of(torch.stack(parts).sum(0).tolist(), 4, "r2")
    assert result.r2[0] == pytest.approx(1 - 2 / 14)
    assert result.r2[1] == 0  # a constant has nothing to explain
    assert result.percent == pytest.approx(100 * (12 / 14) / 2)
    assert (result.right, result.images) == (None, 4)
    worse = score_of(sums_of(targets * 10, targets, "r2").tolist(), 4, "r2")
    assert worse.r2[0] == pytest.approx(1 - 81 * 50 / 14)
    assert worse.percent == 0


def test_the_squared_error_is_in_the_units_of_each_number() -> None:
    scores, targets = torch.tensor([[1.0, 10.0], [3.0, 10.0]]), torch.tensor([[0.0, 0.0]] * 2)
    plain = SQUARED_ERROR(scores, targets)
    assert plain.item() == pytest.approx((5 + 100) / 2)
    scaled = SQUARED_ERROR(scores, targets, std=(1.0, 5.0))
    assert scaled.item() == pytest.approx((5 + 4) / 2)
    with pytest.raises(UsageError, match=r"compares numbers \[2, 2\] with as many, not with \[2\]"):
        SQUARED_ERROR(scores, torch.tensor([0, 1]))


def test_the_network_knows_mean_and_standard_deviation_of_the_poses() -> None:
    ranges = PoseRange()
    limits = [(-ranges.shift * 28, ranges.shift * 28)] * 2 + [(-ranges.rotation, ranges.rotation)]
    limits += [ranges.scale] * 2 + [(-ranges.shear, ranges.shear)]
    limits += [(ranges.thickness[0] * 28, ranges.thickness[1] * 28)]
    assert [sum(limit) / 2 for limit in limits] == pytest.approx(POSE_MEAN, abs=1e-9)
    assert [(high - low) / 12**0.5 for low, high in limits] == pytest.approx(POSE_STD, rel=1e-3)


def test_training_learns_the_poses_in_their_units(tmp_path: Path) -> None:
    row = quick(pose(limit=960, epochs=2, batch_size=16, lr=6e-3, test_limit=300), out=tmp_path)
    assert row.test is not None
    assert row.test > 10
    network = tc.load(tmp_path)
    assert network.class_names == POSE
    batch = load("strokes", "test").draw(torch.arange(300), Draws(0, torch.arange(300)))
    with torch.no_grad():
        numbers = network(batch.images / 255).scores
    errors = (numbers - batch.annotations["pose"]).square().mean(dim=0)
    r2 = 1 - errors / batch.annotations["pose"].var(dim=0, correction=0)
    assert 100 * float(r2.mean()) == pytest.approx(row.test, abs=0.01)


def test_a_broken_run_goes_on_to_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = quick(pose(), out=tmp_path / "whole")
    with monkeypatch.context() as patched:
        break_at(patched, 14)
        with pytest.raises(BrokenError):
            quick(pose(), out=tmp_path / "broken", save_every=0.0)
    heard = Listener()
    resumed = quick(pose(), out=tmp_path / "broken", reporter=heard)
    assert heard.said[0] == "resumed at step 14 of 30"
    assert resumed.weights_sha256 == whole.weights_sha256
    one, other = ([m["train"] for m in metrics(tmp_path / n)] for n in ("whole", "broken"))
    assert one == other


def test_the_command_says_that_its_scores_are_r_squared(run: Path) -> None:
    printed = (run.parent / "stdout").read_text().splitlines()
    assert any(line.startswith("epoch 1  loss") and line.count("% R²") == 2 for line in printed)
    row = json.loads((run / "result.json").read_text())
    assert printed[-1].startswith(f"{NAME} seed 0: test {row['test']:.2f} % R², validation ")
    assert (run.parent / "accuracy.csv").read_text().count(NAME) == 1


def test_evaluate_prints_r_squared_of_each_number(run: Path, tmp_path: Path) -> None:
    scores = evaluate_files([run], recipe=pose(), device="cpu")  # of as few images as the run
    value = scores[str(run)]
    assert value.keys() == {"percent", "images", "r2"}
    assert tuple(value["r2"]) == POSE
    assert value["percent"] == json.loads((run / "result.json").read_text())["test"]
    assert value["percent"] == pytest.approx(max(0, 100 * sum(value["r2"].values()) / 7))
    lines = describe_scores(scores, None).splitlines()
    assert lines[0] == f"{run}: {value['percent']:.2f} % R² on 100 images"
    assert [line.split()[0] for line in lines[3:]] == list(POSE)
    assert lines[3].endswith(f"{100 * value['r2']['x']:.2f} %")
    with pytest.raises(InputError, match="no confusion matrix to draw: the network predicts num"):
        draw_metrics(scores, tmp_path / "it.png")


def test_predict_prints_the_numbers_by_name(run: Path, tmp_path: Path) -> None:
    images = first_samples(load("strokes", "test"), 2)
    paths = [tmp_path / f"{number}.png" for number in range(2)]
    for path, image in zip(paths, images, strict=True):
        Image.fromarray(image[0].numpy()).save(path)
    rows = json.loads(invoke("predict", run, *paths, "--json", "--device", "cpu").stdout)
    network = tc.load(run)
    with torch.no_grad():
        expected = network(network.preprocess(images)).scores
    assert [list(row["numbers"]) for row in rows] == [list(POSE)] * 2
    found = torch.tensor([list(row["numbers"].values()) for row in rows])
    torch.testing.assert_close(found, expected)
    lines = invoke("predict", run, *paths, "--device", "cpu").stdout.splitlines()
    assert lines[1].startswith(f"{paths[1]}: x {expected[1, 0]:.3f}, y {expected[1, 1]:.3f}, ")
    top = invoke("predict", run, *paths, "--top", "2", "--device", "cpu")
    assert "predicts numbers and no classes: leave out --top" in one_sentence(top, 2)


def test_what_is_for_classes_refuses_a_network_of_numbers(run: Path, tmp_path: Path) -> None:
    network = tc.load(run)
    with pytest.raises(UsageError, match="predicts numbers and no classes"):
        tc.classify(network, first_samples(load("strokes", "test"), 1))
    for command in ("figures", "explore"):
        assert "predicts numbers" in one_sentence(invoke(command, run), 2)
    other = invoke("evaluate", run, "--recipe", "demo/strokes-dynamic", "--device", "cpu")
    assert "is about classes and demo/strokes-pose predicts numbers" in one_sentence(other, 2)
    draw(tmp_path / "mine", shape=(28, 28), count=10)
    own = ["--data", str(tmp_path / "mine"), "--out", str(tmp_path / "run"), "--device", "cpu"]
    assert "predicts numbers (pose)" in one_sentence(invoke("train", NAME, *own), 2)
    with pytest.raises(InputError, match="predicts 7 numbers, not 3"):
        tc.build(NAME, n_classes=3)


def test_networks_of_numbers_are_averaged_and_not_mixed_with_classes() -> None:
    networks = [tc.build(NAME).eval() for _ in range(2)]
    images = torch.rand(3, 1, 28, 28)
    with torch.no_grad():
        one, other = (network(images).scores for network in networks)
        torch.testing.assert_close(Ensemble(networks)(images).scores, (one + other) / 2)
    classes = tc.build("demo/strokes-dynamic", n_classes=7)
    with pytest.raises(InputError, match="either classes or numbers"):
        Ensemble([networks[0], classes])


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"loss": margin}, "predicts numbers and its loss is for classes: take squared_error"),
        ({"loss": partial(margin, scale=2.0)}, "its loss is for classes"),
        ({"network": "demo/strokes-dynamic"}, "is about numbers and .* predicts classes"),
        ({"targets": ""}, "has '' and 'r2'"),
        ({"measure": "top1"}, "has 'pose' and 'top1'"),
        ({"label_smoothing": 0.1}, "label_smoothing is for cross-entropy"),
        ({"reconstruction_weight": 0.1}, "has no decoder"),
    ],
)
def test_a_recipe_whose_parts_do_not_fit_is_refused(changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UsageError, match=sentence):
        check_recipe(replace(get(NAME), **changes))


@pytest.mark.parametrize(
    ("dataset", "targets", "sentence"),
    [
        ("waveforms", "pose", "waveforms has no annotation 'pose' of numbers"),
        ("strokes", "offsets", "no annotation 'offsets' .* it has pose, glyph"),
        ("strokes_overlapping", "pose", "no annotation 'pose' .* it has glyph"),
    ],
)
def test_a_set_without_these_numbers_is_refused(
    dataset: str, targets: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(UsageError, match=sentence):
        quick(replace(pose(), dataset=dataset, targets=targets), out=tmp_path)


def test_a_head_reads_numbers_from_the_poses_of_all_its_capsules() -> None:
    head = tc.CapsuleHead(8, n_classes=3, n_types=2, d=4, outputs=5)
    output = head(torch.randn(2, 8, 4, 4))
    assert output.capsules.poses.shape == (2, 3, 4)
    assert head.readout is not None
    torch.testing.assert_close(output.scores, head.readout(output.capsules.poses.flatten(1)))
    output.scores.square().sum().backward()
    assert all(p.grad is not None for p in head.parameters())
    with pytest.raises(ValueError, match="outputs must be at least 1"):
        tc.CapsuleHead(8, n_classes=3, outputs=0)
