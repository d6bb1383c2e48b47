"""Runs and files load with their preprocessing and class names, those of earlier versions too."""

import json
from pathlib import Path

import pytest
import torch

import torchcaps as tc
from helpers.runs.folders import write_run
from torchcaps.data import Normalize
from torchcaps.models.weights.files import describe, save_packed
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import RECIPES, get
from torchcaps.recipes.tools.preprocessing import preprocessing_of
from torchcaps.train import TrainOptions, train


@pytest.mark.parametrize("name", shipped())
def test_shipped_files_carry_what_their_recipe_says(name: str) -> None:
    described, expected = describe(shipped()[name]), preprocessing_of(get(name))
    assert expected is not None
    assert described["preprocessing"] == expected.to_json()
    assert described["classes"]


@pytest.mark.parametrize("name", RECIPES)
def test_every_recipe_has_a_record_that_fits_its_network(name: str) -> None:
    with torch.device("meta"):
        network = tc.build(RECIPES[name].network)
    record = preprocessing_of(RECIPES[name])
    assert record is not None
    assert record.output_shape() == network.image_shape


def test_a_run_folder_of_an_earlier_version_takes_them_from_its_recipe(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    for path in (run, run / "weights.safetensors"):
        network = tc.load(path)
        assert network.preprocessing == preprocessing_of(get("demo/strokes-dynamic"))
        assert network.class_names == tuple("0123456789")
    assert tc.load(str(run)).preprocess(torch.rand(28, 28)).shape == (1, 1, 28, 28)
    described = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps({**described, "recipe": "me/mine"}))
    assert tc.load(run).preprocessing is None
    (run / "weights.safetensors").unlink()
    with pytest.raises(ValueError, match=r"its weights\.safetensors is gone"):
        tc.load(run)


def test_a_packed_file_of_an_earlier_version_takes_them_from_its_recipe(tmp_path: Path) -> None:
    path = tmp_path / "old.safetensors"
    recipe = get("tsai2020/cifar10-simple-1")
    facts: dict[str, str | int | float] = {"recipe": recipe.name, "seed": 0, "test": 80.0}
    save_packed(tc.build(recipe.network), path, store="int8", trained=facts)
    assert describe(path)["preprocessing"] is None
    network = tc.load(path)
    assert network.class_names is not None
    assert network.class_names[3] == "cat"
    assert network.preprocessing is not None
    assert isinstance(network.preprocessing.steps[0], Normalize)


def test_training_records_them(tmp_path: Path) -> None:
    recipe = get("demo/strokes-pairwise").override(limit=64, epochs=1, test_limit=64)
    train(recipe, TrainOptions(out=tmp_path / "run", tensorboard=False, device="cpu"))
    described = describe(tmp_path / "run/weights.safetensors")
    assert described["classes"] == list("0123456789")
    assert described["preprocessing"]["size"] == [28, 28]
    assert described["preprocessing"]["background"] < 0.1
