"""Files of every released version load and give the numbers they gave then."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

import torchcaps as tc
from helpers.runs.saved_files import (
    BROKEN_STEP,
    SAVED,
    SEED,
    release_recipe,
    sample,
    user_network,
)
from helpers.runs.training import Listener, quick
from torchcaps.train.outputs.folder import RunFolder

VERSIONS = sorted(SAVED.iterdir())


@pytest.fixture(autouse=True)
def _user_network() -> Iterator[None]:
    with user_network():
        yield


@pytest.fixture(params=VERSIONS, ids=lambda folder: folder.name)
def saved(request: pytest.FixtureRequest) -> Path:
    folder: Path = request.param
    return folder


def expected(saved: Path) -> dict[str, Any]:
    values: dict[str, Any] = json.loads((saved / "expected.json").read_text())
    return values


def test_this_version_or_the_last_has_left_its_files() -> None:
    names = [folder.name for folder in VERSIONS]
    assert tc.__version__.partition(".dev")[0] in names or ".dev" in tc.__version__
    assert "0.1.0" in names


@pytest.mark.parametrize("name", ["packed.safetensors", "network.safetensors"])
def test_networks_give_the_scores_they_gave(saved: Path, name: str) -> None:
    network = tc.load(saved / name)
    with torch.no_grad():
        scores = network(sample(network)).scores
    torch.testing.assert_close(scores, torch.tensor(expected(saved)["scores"][name]))


def test_a_network_keeps_its_classes_and_its_preprocessing(saved: Path) -> None:
    network = tc.load(saved / "network.safetensors")
    assert network.class_names == ("a", "b", "c", "d")
    grey = network.preprocess(torch.full((1, 28, 28), 0.5))
    torch.testing.assert_close(grey, torch.zeros(1, 1, 28, 28))


def test_a_finished_run_is_not_trained_again(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "finished", tmp_path / "run")
    heard = Listener()
    row = quick(release_recipe(), seed=SEED, out=tmp_path / "run", reporter=heard)
    assert "is finished" in heard.said[0]
    assert row.test == expected(saved)["test"]


def test_an_unfinished_run_goes_on_to_the_same_weights(saved: Path, tmp_path: Path) -> None:
    shutil.copytree(saved / "broken", tmp_path / "run")
    heard = Listener()
    row = quick(release_recipe(), seed=SEED, out=tmp_path / "run", reporter=heard)
    assert heard.said == [f"resumed at step {BROKEN_STEP} of 8"]
    assert row.test == expected(saved)["test"]
    ours = load_file(RunFolder(tmp_path / "run").weights)
    theirs = load_file(RunFolder(saved / "finished").weights)
    assert ours.keys() == theirs.keys()
    for name, tensor in theirs.items():
        torch.testing.assert_close(ours[name], tensor, rtol=1e-4, atol=1e-6, msg=name)
