"""Model cards: valid front matter, and results only of the weights that were scored."""

import copy
import json
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml

import torchcaps as tc
from helpers.runs.folders import write_run
from torchcaps.models.weights.card import dataset_of
from torchcaps.models.weights.facts import has_recorded_weights
from torchcaps.recipes import RECIPES


def front_matter(folder: Path) -> dict[str, Any]:
    text = (folder / "README.md").read_text()
    _, header, _ = text.split("---\n", maxsplit=2)
    parsed: dict[str, Any] = yaml.safe_load(header)
    return parsed


def result(folder: Path) -> dict[str, Any]:
    (model,) = front_matter(folder)["model-index"]
    (only,) = model["results"]
    found: dict[str, Any] = only
    return found


def test_a_shipped_network_has_a_card_with_its_results(tmp_path: Path) -> None:
    network = tc.build("zhao2020/fashion-mnist-modern", pretrained=True)
    facts = network.trained
    network.save_pretrained(tmp_path)
    assert result(tmp_path) == {
        "task": {"type": "image-classification"},
        "dataset": {
            "name": "fashion-mnist",
            "type": "zalando-datasets/fashion_mnist",
            "split": "test",
        },
        "metrics": [
            {"type": "accuracy", "value": facts["test"], "name": "Accuracy, percent"},
        ],
    }
    header, text = front_matter(tmp_path), (tmp_path / "README.md").read_text()
    assert header["library_name"] == "torchcaps"
    assert "PairwiseRouting" in header["tags"]
    for fact in ("recipe", "commit", "weights_sha256", "seed", "epochs"):
        assert f"| {facts[fact]} |" in text
    assert "Ankle boot" in text
    assert '"name": "standardize"' in text


def test_a_pretrained_network_can_be_copied_and_pickled() -> None:
    network = tc.build("zhao2020/fashion-mnist-modern", pretrained=True)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert other.trained == network.trained
        torch.testing.assert_close(dict(other.state_dict()), dict(network.state_dict()))


def test_weights_that_were_trained_further_have_no_results(tmp_path: Path) -> None:
    network = tc.build("zhao2020/fashion-mnist-modern", pretrained=True)
    with torch.no_grad():
        next(network.parameters()).view(-1)[0] += 0.01
    network.save_pretrained(tmp_path)
    assert "model-index" not in front_matter(tmp_path)
    assert "not those of a scored run" in (tmp_path / "README.md").read_text()


@pytest.mark.parametrize("data", [None, "/home/me/flowers"])
def test_a_run_has_a_card_with_its_own_results(data: str | None, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run")
    described = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(described | {"data": data}))
    tc.load(run).save_pretrained(tmp_path / "card")
    only = result(tmp_path / "card")
    assert only["dataset"]["name"] == ("flowers" if data else "strokes")
    assert only["metrics"][0]["value"] == 97.25
    assert "/home/me" not in (tmp_path / "card/README.md").read_text()


def test_names_of_recipes_say_what_they_are_tested_on() -> None:
    for name, recipe in RECIPES.items():
        tested = (recipe.test_dataset or recipe.dataset).removesuffix("_mono")
        assert dataset_of(name).replace("-", "") == tested.replace("_", ""), name


def test_a_network_with_recorded_facts_copies_and_pickles() -> None:
    network = tc.build("demo/mnist-dynamic", pretrained=True)
    for other in (copy.deepcopy(network), pickle.loads(pickle.dumps(network))):
        assert other.trained == network.trained
        assert has_recorded_weights(other)
