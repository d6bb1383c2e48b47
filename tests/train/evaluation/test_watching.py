"""The test score of every epoch is seen where it is asked for, and nothing is chosen by it."""

import csv
from pathlib import Path

import numpy as np
import pytest

from torchcaps import analysis, figures
from torchcaps.recipes import Recipe, get
from torchcaps.train import TrainOptions, train
from torchcaps.train.outputs.folder import RunFolder

SMALL = {"limit": 160, "batch_size": 32, "epochs": 3, "test_limit": 50}


def small(**changes: float) -> Recipe:
    return get("demo/strokes-dynamic").override(**{**SMALL, **changes})


@pytest.mark.parametrize("average", [0.0, 0.9])
def test_watching_the_test_images_changes_nothing_else(tmp_path: Path, average: float) -> None:
    rows, epochs = [], []
    for watch in (False, True):
        out = tmp_path / str(watch)
        recipe = small(average=average)
        rows.append(
            train(
                recipe,
                TrainOptions(
                    out=out,
                    device="cpu",
                    tensorboard=False,
                    watch_test=watch,
                    record=out / "accuracy.csv",
                ),
            )
        )
        epochs.append(RunFolder(out).curve())
    for key in ("test", "validation", "weights_sha256"):
        assert getattr(rows[0], key) == getattr(rows[1], key), key
    assert all(point.test is None for point in epochs[0])
    watched = [point.test for point in epochs[1]]
    chosen = max(epochs[1], key=lambda point: point.validation or 0)
    assert len(watched) == 3
    assert chosen.test == rows[1].test
    (curve,) = (tmp_path / "True" / "curves").iterdir()
    with curve.open() as file:
        assert [float(line["test"]) for line in csv.DictReader(file)] == pytest.approx(watched)
    (curve,) = (tmp_path / "False" / "curves").iterdir()
    assert "test" not in curve.read_text()
    figure = figures.draw_training([analysis.training_curve(tmp_path / "True")])
    assert figure.axes[-1].get_ylabel() == "test accuracy (%)"
    assert np.asarray(figure.axes[-1].lines[0].get_ydata()).tolist() == watched
