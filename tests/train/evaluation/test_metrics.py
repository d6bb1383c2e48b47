"""Per-class accuracy, confusion, top 2 and calibration of ``torchcaps evaluate``."""

import json
from pathlib import Path

import pytest
import torch
from PIL import Image

from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL, draw
from torchcaps.train.evaluation.metrics import Tally, calibration, compute_metrics, confidences

SCORES = torch.tensor([[0.9, 0.1, 0.2], [0.8, 0.5, 0.1], [0.2, 0.7, 0.1], [0.1, 0.3, 0.4]])
LABELS = torch.tensor([0, 1, 1, 2])


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_metrics_of_four_images_by_hand() -> None:
    metrics = compute_metrics(SCORES, LABELS, ("a", "b", "c"))
    assert metrics.confusion == [[1, 0, 0], [1, 1, 0], [0, 0, 1]]
    assert metrics.per_class == {"a": 100.0, "b": 50.0, "c": 100.0}
    assert metrics.balanced == pytest.approx(250 / 3)
    assert metrics.top2 == 100.0
    # lengths 0.9, 0.8, 0.7 and 0.4 fall into bins of their own; the second image is wrong
    assert metrics.ece == pytest.approx((10 + 80 + 30 + 60) / 4, abs=1e-4)


def test_classes_without_images_count_for_nothing() -> None:
    metrics = compute_metrics(SCORES[:3], LABELS[:3], ("a", "b", "c"))
    assert metrics.per_class["c"] is None
    assert metrics.balanced == 75.0


def test_a_calibrated_classifier_has_almost_no_calibration_error() -> None:
    torch.manual_seed(0)
    confidence = torch.rand(200_000)
    right = torch.rand(200_000) < confidence
    assert calibration(confidence, right)[0] < 0.5
    assert calibration(confidence, torch.zeros_like(right))[0] == pytest.approx(50, abs=0.5)


def test_logits_go_through_a_softmax_and_lengths_do_not() -> None:
    assert confidences(torch.tensor([[0.3, 0.9]])).item() == pytest.approx(0.9)
    assert confidences(torch.tensor([[0.0, 2.0]])).item() == pytest.approx(0.8808, abs=1e-4)
    assert confidences(torch.tensor([[-1.0, 0.0]])).item() == pytest.approx(0.7311, abs=1e-4)


def test_an_ensemble_s_confidence_is_that_of_its_mean_scores() -> None:
    alone, summed = Tally(), Tally(summed=3)
    alone.add(SCORES, LABELS)
    summed.add(3 * SCORES, LABELS)
    ours, theirs = summed.metrics(("a", "b", "c")), alone.metrics(("a", "b", "c"))
    assert ours is not None
    assert theirs is not None
    assert ours.ece == pytest.approx(theirs.ece, abs=1e-4)


def test_images_of_two_objects_have_no_confusion_matrix() -> None:
    tally = Tally()
    tally.add(SCORES, torch.stack([LABELS, LABELS], dim=1))
    assert tally.metrics(("a", "b", "c")) is None


def test_evaluate_prints_metrics_within_80_columns_and_writes_json_and_a_figure() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    Path("mine/dark").rename("mine/dark images with a name that is far too long for a table")
    words = ["train", "demo/strokes-pairwise", "--data", "mine", *SMALL, "--out", "run"]
    assert invoke(*words).exit_code == 0
    words = ["evaluate", "run", "--split", "validation", "--device", "cpu"]
    result = invoke(*words, "--figure", "metrics.png")
    assert result.exit_code == 0, result.output
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert "balanced" in result.stdout
    with Image.open("metrics.png") as picture:
        assert picture.width > picture.height > 400
    scored = json.loads(invoke(*words, "--json").stdout)["run"]
    assert sum(map(sum, scored["confusion"])) == scored["images"] == 4
    right = sum(row[label] for label, row in enumerate(scored["confusion"]))
    assert scored["percent"] == 100 * right / 4
    assert scored["balanced"] == pytest.approx(sum(scored["per_class"].values()) / 2)
    refused = one_sentence(invoke(*words, "--figure", "metrics.pdf"), 2)
    assert refused == "metrics.pdf must end in .png or .svg"
