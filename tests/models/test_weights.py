"""Files of weights that come with the package: found by name, exact, refused where damaged."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

import torchcaps as tc
from helpers.commands import invoke, refused
from torchcaps.models.weights import pretrained
from torchcaps.models.weights.files import describe, save_packed
from torchcaps.models.weights.packed import SCALE
from torchcaps.models.weights.pretrained import file_name, find_shipped
from torchcaps.recipes import RECIPES
from torchcaps.train.evaluation.trained import find_recipe, find_trained


def test_names_without_weights_are_told_which_have_them(weights: Path) -> None:
    with pytest.raises(ValueError, match="'sabour2017/mnist' has no shipped weights; none are in"):
        tc.build("sabour2017/mnist", pretrained=True)
    weights.mkdir()
    made(weights, "sabour2017/svhn")
    for name in ("sabour2017/mnist", "nonsense", "sabour2017/sv"):
        with pytest.raises(ValueError, match="has no shipped weights; these have: sabour2017/svhn"):
            tc.build(name, pretrained=True)
    assert "these have: sabour2017/svhn; it was not trained here" in refused(
        "evaluate", "sabour2017/mnist"
    )


def made(folder: Path, recipe: str, test: float = 90.0, **build: Any) -> Path:
    network = tc.build(RECIPES[recipe].network, iterations=RECIPES[recipe].iterations, **build)
    path = folder / file_name(recipe)
    save_packed(network, path, store="int8", trained={"recipe": recipe, "seed": 0, "test": test})
    return path


def test_a_network_gets_the_best_of_its_own_and_a_recipe_the_one_it_names(weights: Path) -> None:
    weights.mkdir()
    first = made(weights, "tsai2020/cifar10-simple-1", 80.0)
    third = made(weights, "tsai2020/cifar10-simple-3", 85.0)
    other = made(weights, "tsai2020/cifar10-simple-em-3", 99.0)
    assert find_shipped("tsai2020/cifar10-simple") == third
    assert find_shipped("tsai2020/cifar10-simple-em") == other
    assert find_shipped("tsai2020/cifar10-simple-1") == first
    assert tc.build("tsai2020/cifar10-simple", pretrained=True).overrides == {"iterations": 3}
    once = tc.build("tsai2020/cifar10-simple-1", pretrained=True, iterations=2)
    assert once.overrides == {"iterations": 2}
    made(weights, "zhao2020/fashion-mnist", 95.0)
    modern = made(weights, "zhao2020/fashion-mnist-modern", 94.0)
    assert find_shipped("zhao2020/fashion-mnist") == modern


def test_statistics_and_counters_are_exact_and_bytes_repeat(tmp_path: Path) -> None:
    network = tc.build("zhao2020/smallnorb").train()
    with torch.no_grad():
        network(torch.rand(2, 1, 32, 32))
    for name in ("a", "b"):
        save_packed(network, tmp_path / name, store="int8", trained={"recipe": "x", "test": 1})
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
    again = dict(tc.load(tmp_path / "a").named_buffers())
    assert again
    for name, buffer in network.named_buffers():
        assert torch.equal(buffer, again[name]), name
    single = tc.build("zhao2020/smallnorb")
    tc.load_weights(single, tmp_path / "a")
    loaded = tc.load(tmp_path / "a").state_dict()
    assert all(torch.equal(loaded[name], value) for name, value in single.state_dict().items())


def test_damaged_and_foreign_files_get_one_sentence(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    good, tensors = path.read_bytes(), load_file(path)
    scale = next(name for name in tensors if name.endswith(SCALE))
    weight = scale.removesuffix(SCALE)
    described = {"torchcaps": json.dumps(describe(path))}
    without = {name: tensor for name, tensor in tensors.items() if name != scale}
    broken: list[tuple[dict[str, torch.Tensor], str]] = [
        (without, f"holds '{weight}' as I8"),
        ({**tensors, scale: tensors[scale].half()}, "tensors differ"),
        ({**tensors, scale: tensors[scale].flatten()[:1].clone()}, "tensors differ"),
        ({**tensors, weight: tensors[weight].float()}, "tensors differ"),
        ({**tensors, f"nothing{SCALE}": torch.ones(1)}, "tensors differ"),
    ]
    for content, sentence in broken:
        save_file(content, path, described)
        with pytest.raises(ValueError, match=sentence) as caught:
            tc.build("sabour2017/svhn", pretrained=True)
        assert "\n" not in str(caught.value)
    for junk in (good[:-1000], b"", b"junk" * 100):
        path.write_bytes(junk)
        with pytest.raises(ValueError, match="not a whole safetensors file"):
            tc.build("sabour2017/svhn", pretrained=True)
    hostile: list[Any] = [None, [], {"test": [1]}, {"test": {}}]
    for trained in hostile:
        named = {"network": "sabour2017/svhn", "overrides": {}, "trained": trained}
        save_file(tensors, path, {"torchcaps": json.dumps(named)})
        with pytest.raises(ValueError, match="this version does not know"):
            tc.build("sabour2017/svhn", pretrained=True)


def test_scales_that_are_no_scales_are_refused(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    tensors, described = load_file(path), {"torchcaps": json.dumps(describe(path))}
    scale = next(name for name in tensors if name.endswith(SCALE))
    for wrong in (-1.0, 0.0, 1e38, float("nan"), float("inf")):
        changed = tensors[scale].clone()
        changed.view(-1)[-1] = wrong
        tensors_now = {**tensors, scale: changed, scale.removesuffix(SCALE): _full(tensors, scale)}
        save_file(tensors_now, path, described)
        with pytest.raises(ValueError, match="is damaged: the scales of"):
            tc.build("sabour2017/svhn", pretrained=True)
        with pytest.raises(ValueError, match="is damaged: the scales of"):
            tc.load_weights(tc.build("sabour2017/svhn", iterations=3), path)


def _full(tensors: dict[str, torch.Tensor], scale: str) -> torch.Tensor:
    return torch.full_like(tensors[scale.removesuffix(SCALE)], 127)


def test_a_file_under_another_name_is_not_taken_for_it(weights: Path) -> None:
    weights.mkdir()
    path = made(weights, "sabour2017/svhn")
    for recipe in ("sabour2017/mnist", "sabour2017/mnist-modern"):
        place = weights / file_name(recipe)
        place.write_bytes(path.read_bytes())
        for name in ("sabour2017/mnist", recipe):
            with pytest.raises(ValueError, match=f"holds weights of '{recipe}'"):
                tc.build(name, pretrained=True)
        assert f"holds weights of '{recipe}'" in refused("evaluate", recipe)
        place.unlink()
    plain = weights / file_name("sabour2017/mnist-modern")
    tc.save(tc.build("sabour2017/mnist"), plain)
    with pytest.raises(ValueError, match="does not say that it holds weights of"):
        pretrained.facts()
    tests: tuple[str | int, ...] = ("good", -1, 101)
    for test in tests:
        kept: dict[str, str | int] = {"recipe": "sabour2017/svhn", "seed": 0, "test": test}
        save_packed(tc.build("sabour2017/svhn"), path, store="int8", trained=kept)
        with pytest.raises(ValueError, match="does not say that it holds weights of"):
            tc.build("sabour2017/svhn", pretrained=True)


def test_a_recipe_is_scored_with_its_own_weights_and_a_stand_in_is_named(weights: Path) -> None:
    weights.mkdir()
    recipe, modern = "zhao2020/fashion-mnist", "zhao2020/fashion-mnist-modern"
    other = made(weights, modern)
    assert find_trained(Path(recipe)) == other
    own = made(weights, recipe)
    assert find_trained(Path(recipe)) == own
    assert find_trained(Path(modern)) == other
    assert find_shipped(recipe) == other
    one = made(weights, "demo/strokes-dynamic")
    one.rename("elsewhere.safetensors")
    words = ["--device", "cpu", "--json"]
    scored = json.loads(invoke("evaluate", "elsewhere.safetensors", *words).stdout)
    assert scored["elsewhere.safetensors"]["weights"] == "demo/strokes-dynamic"


def test_weights_trained_on_all_images_have_no_held_out_ones(tmp_path: Path) -> None:
    path = tmp_path / "all.safetensors"
    recipe = RECIPES["demo/strokes-dynamic"]
    assert recipe.hold_out
    network = tc.build(recipe.network)
    facts: dict[str, Any] = {"recipe": recipe.name, "seed": 0, "test": 97.0}
    save_packed(network, path, store="int8", trained={**facts, "modified": "hold_out=False"})
    assert not find_recipe(path, network).hold_out
    assert "there are no validation images" in refused("evaluate", path, "--split", "validation")
    other = tmp_path / "part.safetensors"
    save_packed(network, other, store="int8", trained={**facts, "validation": 98.0})
    assert find_recipe(other, network).hold_out
    for both in ((path, other), (other, path)):
        assert "no validation images" in refused("evaluate", *both, "--split", "validation")
