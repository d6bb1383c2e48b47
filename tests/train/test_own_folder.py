"""What a folder of the user's own images says of itself, and what a run remembers of it."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from helpers.commands import invoke, one_sentence
from helpers.data.own_images import SMALL, draw, made
from torchcaps import build, figures, load, load_weights, save
from torchcaps.analysis import open_subject
from torchcaps.data import find, load_folder
from torchcaps.models.weights.files import describe
from torchcaps.recipes import RECIPES, get
from torchcaps.train import TrainOptions, train
from torchcaps.train.evaluation.score import Score
from torchcaps.train.images import load_sources

CPU = torch.device("cpu")
RECIPE = "demo/strokes-pairwise"
OWN = ["train", RECIPE, "--data", "mine", *SMALL, "--out", "run"]


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def labels(monkeypatch: pytest.MonkeyPatch) -> list[list[int]]:
    """The labels that networks are scored by."""
    seen: list[list[int]] = []

    def score(network: object, source: Any, **_: object) -> Score:
        seen.append(source.labels.tolist())
        return Score(1, 2)

    monkeypatch.setattr("torchcaps.train.evaluation.files.score", score)
    return seen


def folders(place: str, names: tuple[str, ...]) -> None:
    draw(Path("drawn"), shape=(28, 28), count=1)
    for name in names:
        shutil.copytree("drawn/dark", Path(place, name))
    shutil.rmtree("drawn")


def run_of(names: tuple[str, ...]) -> None:
    """The run folder of a network that saw other images of these classes; not trained."""
    folders("seen", names)
    Path("run").mkdir()
    described = {"recipe": RECIPE, "seed": 0, "settings": {}, "data": str(Path("seen").absolute())}
    Path("run/run.json").write_text(json.dumps(described))
    network = build(get(RECIPE).network, n_classes=len(names))
    save(network, "run/weights.safetensors", classes=names)


@pytest.mark.parametrize("clean", [str, lambda name: name.upper().replace("-", "_")])
def test_folders_named_as_the_classes_get_the_network_s_labels(
    clean: Any, labels: list[list[int]]
) -> None:
    names = find("fashion_mnist").classes
    mine = tuple(clean(name.replace("/", "-")) for name in names)
    folders("mine", mine)
    words = ["evaluate", "zhao2020/fashion-mnist-modern", "--data", "mine", "--device", "cpu"]
    assert invoke(*words).exit_code == 0
    assert labels.pop() == [mine.index(name) for name in sorted(mine)] != [*range(10)]
    shutil.move(f"mine/{mine[3]}", "mine/gown")
    said = one_sentence(invoke(*words), 2)
    assert "gown" in said
    assert ", ".join(names) in said


def test_folders_may_be_numbered_and_are_not_sorted_as_words(labels: list[list[int]]) -> None:
    names = tuple(f"class {letter}" for letter in "cabdefghijkl")
    folders("numbered", tuple(map(str, range(12))))
    folders("named", tuple(name.replace(" ", "-") for name in names))
    run_of(names)
    for place, expected in (
        ("numbered", [0, 1, 10, 11, 2, 3, 4, 5, 6, 7, 8, 9]),
        ("named", [1, 2, 0, 3, 4, 5, 6, 7, 8, 9, 10, 11]),
    ):
        result = invoke("evaluate", "run", "--data", place, "--device", "cpu")
        assert result.exit_code == 0, result.output
        assert labels.pop() == expected


def test_images_of_some_of_the_classes_are_scored_by_the_network_s_labels(
    labels: list[list[int]],
) -> None:
    folders("some", ("trouser", "Dress"))
    folders("one", ("coat",))
    folders("numbers", ("1", "3"))
    words = ["evaluate", "zhao2020/fashion-mnist-modern", "--device", "cpu", "--data"]
    for place, expected in (("some", [3, 1]), ("one", [4])):
        result = invoke(*words, place)
        assert result.exit_code == 0, result.output
        assert labels.pop() == expected
    assert "has the classes 1, 3, and" in one_sentence(invoke(*words, "numbers"), 2)
    folders("scans", ("3", "5"))
    assert invoke("evaluate", "sabour2017/mnist-modern", "--data", "scans").exit_code == 0
    assert labels.pop() == [3, 5]


def test_a_run_on_own_images_knows_its_classes_by_name() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    assert invoke(*OWN).exit_code == 0
    assert json.loads(Path("run/run.json").read_text())["classes"] == ["dark", "light"]
    shutil.copy("run/weights.safetensors", "alone.safetensors")
    assert describe("alone.safetensors")["classes"] == ["dark", "light"]
    load_weights(load("alone.safetensors"), "alone.safetensors")
    shutil.copytree("mine", "other")
    shutil.move("other/dark", "other/night")
    for place in ("run", "alone.safetensors"):
        assert "dark, light" in one_sentence(invoke("evaluate", place, "--data", "other"), 2)
    shutil.move("mine/dark", "mine/night")
    assert "dark, light" in one_sentence(invoke("evaluate", "run", "--split", "validation"), 2)
    assert "dark, light" in one_sentence(invoke("figures", "run", "--out", "page"), 2)


def test_networks_of_other_classes_are_scored_one_by_one() -> None:
    folders("mine", find("cifar10").classes)
    made("run", data=None, n_classes=10)
    network = build("tsai2020/cifar10-simple")
    save(network, "other.safetensors", classes=tuple("0123456789"))
    words = ["evaluate", "run", "other.safetensors", "--data", "mine"]
    assert "different images" in one_sentence(invoke(*words), 2)


def test_every_recipe_s_data_set_names_its_classes() -> None:
    for recipe in RECIPES.values():
        if not recipe.test_dataset and not recipe.targets:
            with torch.device("meta"):
                network = build(recipe.network)
            assert len(find(recipe.dataset).classes) == network.n_classes


def test_a_run_does_not_go_on_with_other_images() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    assert invoke(*OWN).exit_code == 0
    assert invoke(*OWN).exit_code == 0
    shutil.move("mine/dark", "mine/night")
    said = one_sentence(invoke(*OWN), 2)
    assert "holds a run with classes dark, light and not light, night: choose" in said
    shutil.move("mine/night", "mine/dark")
    shutil.copy("mine/dark/0.png", "mine/dark/more.png")
    assert "holds a run with images 40 and not 41" in one_sentence(invoke(*OWN), 2)
    Path("mine/dark/0.png").unlink()  # the other has its content, and comes last
    assert "images of other names or sizes" in one_sentence(invoke(*OWN), 2)
    for key in ("hold_out", "classes", "images", "files_sha256"):
        described = json.loads(Path("run/run.json").read_text())
        del described[key]
        Path("run/run.json").write_text(json.dumps(described))
    assert invoke(*OWN).exit_code == 0  # as an earlier version left it


def test_the_test_images_of_a_folder_are_part_of_what_a_run_is_of() -> None:
    for part in ("train", "test"):
        draw(Path("mine", part), shape=(28, 28), count=20)
    assert invoke(*OWN).exit_code == 0
    shutil.copy("mine/test/dark/0.png", "mine/test/dark/more.png")
    assert "images 80 and not 81" in one_sentence(invoke(*OWN), 2)


def test_nothing_is_held_out_where_that_was_asked_for() -> None:
    recipe = get("tsai2020/cifar10-resnet")
    assert not recipe.hold_out
    draw(Path("mine"), shape=(32, 32, 3), count=20)
    for chosen, fit in ((recipe, 36), (recipe.parse(["hold_out=false"]), 40)):
        assert chosen.changed == {}
        sources = load_sources(chosen, root=None, own_folder=Path("mine"), device=CPU)
        assert len(sources.train) == fit
        assert (sources.validation is None) == (fit == 40)


@pytest.mark.parametrize("asked", [False, True])
def test_a_run_remembers_that_nothing_was_to_be_held_out(
    asked: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    usual = get(RECIPE).variant(RECIPE, hold_out=False).override(epochs=1, limit=16)
    told = usual.override(hold_out=False)
    first, second = (told, usual) if asked else (usual, told)
    draw(Path("mine"), shape=(28, 28), count=20)
    row = train(first, TrainOptions(own_data="mine", out="run", device="cpu", tensorboard=False))
    assert "hold_out" not in row.modified
    assert (row.validation is None) == asked
    with pytest.raises(ValueError, match=f"hold_out {not asked} and not {asked}"):
        train(second, TrainOptions(own_data="mine", out="run", device="cpu"))
    monkeypatch.setitem(RECIPES, RECIPE, usual)
    scored = invoke("evaluate", "run", "--split", "validation", "--device", "cpu")
    assert scored.exit_code == (2 if asked else 0)


@pytest.mark.parametrize("part", ["", "train", "test"])
def test_a_class_without_images_that_can_be_read_is_named(part: str) -> None:
    for name in ("train", "test") if part else ("",):
        draw(Path("mine", name), shape=(28, 28), count=20)
        Path("mine", name, ".thumbnails").mkdir()
    Path("mine", part, "heic").mkdir()
    Path("mine", part, "heic", "photo.heic").touch()
    said = one_sentence(invoke(*OWN), 1)
    assert f"{Path('mine', part, 'heic')} has no images (.bmp, .gif, .jpeg" in said
    assert "remove the folder" in said
    Path("mine", part, "heic", "photo.heic").unlink()
    with pytest.raises(ValueError, match="heic has no images"):
        load_folder("mine", part or "train")


def test_a_class_may_be_called_train(labels: list[list[int]]) -> None:
    names = ("bus", "car", "train")
    folders("vehicles", names)
    run_of(names)
    result = invoke("evaluate", "run", "--data", "vehicles", "--device", "cpu")
    assert result.exit_code == 0, result.output
    assert labels.pop() == [0, 1, 2]


def test_figures_say_that_images_were_held_out() -> None:
    draw(Path("mine"), shape=(28, 28), count=20)
    assert invoke(*OWN).exit_code == 0
    subject = open_subject("run")
    assert subject.split == "held-out"
    page = figures.report([subject], "page", command="figures", only=["robustness"]).read_text()
    assert "Accuracy on 4 held-out images" in page
    assert " of 4 held-out images" in page
    assert "test images" not in page


@pytest.mark.parametrize("recipe", [RECIPE, "sabour2017/cifar10"])
def test_own_images_are_resized_where_that_was_asked_for(recipe: str) -> None:
    draw(Path("mine"), shape=(40, 60), count=10)
    side = 32 if recipe == RECIPE else 26
    words = ["train", recipe, *OWN[2:], "--set", f"resize={side}"]
    assert invoke(*words).exit_code == 0
    network = load("run/weights.safetensors")
    assert network.image_shape[1:] == ((32, 32) if recipe == RECIPE else (24, 24))  # a crop
    assert open_subject("run").batch(1).images.shape[2:] == (side, side)
    assert json.loads(Path("run/result.json").read_text())["changes"]["resize"] == side
    assert invoke("evaluate", "run", "--split", "validation").exit_code == 0
    assert invoke("evaluate", "run", "--data", "mine", "--split", "validation").exit_code == 0
    assert f"resize {side} and not 0" in one_sentence(invoke(*words[:-2]), 2)


def test_a_run_from_before_a_setting_was_there_goes_on() -> None:
    draw(Path("mine"), shape=(28, 28), count=10)
    assert invoke(*OWN).exit_code == 0
    place = Path("run/run.json")
    described = json.loads(place.read_text())
    assert described["settings"].pop("resize") == 0
    place.write_text(json.dumps(described))
    assert invoke(*OWN).exit_code == 0
    assert "lr 0.003 and not 0.5" in one_sentence(invoke(*OWN, "--set", "lr=0.5"), 2)


def test_images_that_are_drawn_are_not_resized() -> None:
    said = one_sentence(invoke("train", RECIPE, *SMALL, "--out", "run", "--set", "resize=20"), 2)
    assert "resize is for image files, and strokes is drawn at its own size" in said
