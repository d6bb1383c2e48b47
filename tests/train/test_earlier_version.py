"""A run that an earlier version began goes on, and a finished one keeps its row.

``golden/earlier_version`` was written at commit 5a3ce43, on one CPU thread with torch 2.13: a run
of a tiny network that was killed after 6 of 8 steps, and the same run unbroken.
"""

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import torchcaps as tc
from helpers.runs.training import Listener, quick
from torchcaps.models.parts.backbones import ConvBackbone
from torchcaps.recipes import Recipe, get
from torchcaps.train.outputs.folder import RunFolder

EARLIER = Path(__file__).parent / "golden" / "earlier_version"


def tiny(*arguments: Any, **overrides: Any) -> tc.Network:
    """The network of the runs."""
    network = tc.CapsNet(
        (1, 28, 28),
        10,
        backbone=partial(ConvBackbone, out_channels=4, kernel_size=5, stride=2),
        n_types=2,
        d_primary=4,
        d_class=4,
        stride=3,
        reconstructs=False,
    )
    network.name, network.overrides = "demo/strokes-dynamic", {}
    return network


@pytest.fixture
def recipe(monkeypatch: pytest.MonkeyPatch) -> Recipe:
    monkeypatch.setattr("torchcaps.train.building.build", tiny)
    return get("demo/strokes-dynamic").override(
        limit=32,
        batch_size=8,
        epochs=2,
        test_limit=50,
        hold_out=False,
        average=0.9,
        reconstruction_weight=0.0,
    )


def test_a_run_of_an_earlier_version_goes_on_to_the_same_weights(
    recipe: Recipe, tmp_path: Path
) -> None:
    out = tmp_path / "run"
    shutil.copytree(EARLIER / "broken", out)
    heard = Listener()
    row = quick(recipe, seed=3, out=out, reporter=heard)
    assert heard.said[0] == "resumed at step 6 of 8"
    unbroken = RunFolder(EARLIER / "finished")
    before = unbroken.row()
    assert before is not None
    assert (row.test, row.recipe_epochs, row.changes) == (
        before.test,
        before.recipe_epochs,
        before.changes,
    )
    ours, theirs = (load_file(folder.weights) for folder in (RunFolder(out), unbroken))
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
    points, others = RunFolder(out).curve(), unbroken.curve()
    assert [point.loss for point in points] == pytest.approx([point.loss for point in others])


def test_a_finished_run_of_an_earlier_version_is_not_trained_again(
    recipe: Recipe, tmp_path: Path
) -> None:
    shutil.copytree(EARLIER / "finished", tmp_path / "run")
    heard = Listener()
    row = quick(recipe, seed=3, out=tmp_path / "run", reporter=heard)
    assert "is finished" in heard.said[0]
    assert (row.epochs, row.recipe_epochs) == (2, 1)
    assert row.modified == (
        "epochs=2 of 1 limit=32 batch_size=8 test_limit=50 hold_out=False average=0.9 "
        "reconstruction_weight=0.0"
    )
    assert row.command == "torchcaps train demo/strokes-dynamic"
