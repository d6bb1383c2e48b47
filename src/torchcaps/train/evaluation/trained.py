"""Trained networks by path or name: their weight file, recipe, images and classes."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import CenterCrop, Channels, Normalize, describe_own, find, own_parts
from torchcaps.errors import InputError, MissingFileError, UsageError
from torchcaps.models import ZOO, Network, load
from torchcaps.models.weights.facts import FACTS, record_training
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import find_shipped
from torchcaps.preprocessing import Preprocessing
from torchcaps.recipes import RECIPES, Recipe, get
from torchcaps.recipes.tools.preprocessing import preprocessing_of
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.own_images import TrainedOn


def find_trained(path: Path) -> Path:
    """Return the shipped weights or the local run of a recipe's name; any other path as it is."""
    name = path.as_posix()
    if path.exists() or (name not in RECIPES and name not in ZOO):
        return path
    try:
        return find_shipped(name, prefer_recipe=True)
    except InputError as error:
        weights = sorted(Path("runs", name).glob("seed*/weights.safetensors"))
        if weights:
            return weights[0].parent
        raise MissingFileError(
            f"{error}; it was not trained here either: torchcaps train {name}"
        ) from None


def find_weights(path: Path) -> Path:
    """Return the weight file of a run folder, or the file itself."""
    if path.is_dir():
        run = RunFolder(path)
        if not run.weights.is_file():
            raise InputError(_without_weights(run))
        return run.weights
    if not path.is_file():
        problem = f"there is no run folder or weight file {path}"
        try:
            get(path.as_posix())
        except UsageError as error:
            raise MissingFileError(f"{problem}, and {error}") from None
        raise MissingFileError(problem)
    return path


def load_trained(path: Path, *, device: str | torch.device = "cpu") -> Network:
    """Load the network of a run folder or a weight file, in evaluation mode.

    Files of earlier versions record neither preprocessing nor class names. For a recipe of the
    package both follow from the recipe.
    """
    network = load(find_weights(path), device=device)
    description = description_of(path)
    recipe = RECIPES.get(
        str((description or describe(find_weights(path))["trained"]).get("recipe"))
    )
    if network.class_names is None:
        names = find_classes(path, None) if recipe is not None else ()
        network.class_names = names if len(names) == network.n_classes else None
    if network.preprocessing is None and recipe is not None:
        network.preprocessing = _derive_preprocessing(recipe, network, description)
    if description and not network.trained:
        record_training(network, _facts(path, description))
    return network


def _facts(path: Path, description: dict[str, Any]) -> dict[str, str | int | float]:
    """Return the facts of a finished run; nothing for a folder without a result."""
    row = RunFolder(path if path.is_dir() else path.parent).row()
    if row is None:
        return {}
    facts = {name: getattr(row, name) for name in (*FACTS, "test")}
    if description.get("data") is not None:
        facts["data"] = Path(str(description["data"])).name
    return {name: value for name, value in facts.items() if value is not None}


def _derive_preprocessing(
    recipe: Recipe, network: Network, description: dict[str, Any]
) -> Preprocessing | None:
    """Return the preprocessing that follows from a recipe; None if it depended on the images."""
    settings = description.get("settings") or {}
    derived = preprocessing_of(replace(recipe, resize=settings.get("resize", recipe.resize)))
    if description.get("data") is not None:
        # a user's images have their own statistics and sizes
        if any(isinstance(t, CenterCrop | Channels | Normalize) for t in recipe.test_transforms):
            return None
        channels, height, width = network.image_shape
        derived = Preprocessing(channels, (height, width), () if derived is None else derived.steps)
    if derived is None or derived.output_shape() != network.image_shape:
        return None
    return derived


def _without_weights(run: RunFolder) -> str:
    """Return the error message for a folder without weights."""
    if run.is_finished:
        return (
            f"{run.path} is finished and its {run.weights.name} is gone: put it back, or train it "
            "again with --fresh"
        )
    seeds = sorted(weights.parent for weights in run.path.glob(f"seed*/{run.weights.name}"))
    if seeds:
        return f"{run.path} holds runs and is none itself: name them, such as {seeds[0]}"
    return f"{run.path} holds no finished run: {run.weights.name} is not there yet"


def description_of(path: Path) -> dict[str, Any]:
    """Return the description of a run by its folder or its weight file; empty for other files."""
    if not path.is_dir() and path.name != RunFolder(path.parent).weights.name:
        return {}
    return RunFolder(path if path.is_dir() else path.parent).description() or {}


def find_recipe(path: Path, network: Network, loaded: Recipe | None = None) -> Recipe:
    """Return the recipe of a run or of shipped weights, or the first that trains this network.

    The recipe of a run that held out no images holds out none either: every other image is one
    that the network was trained on.

    Args:
        path: the run folder or the weight file.
        network: its network.
        loaded: a recipe that is not in the package, which may be that of the run.
    """
    if description := description_of(path):
        recipe = _recipe(str(description.get("recipe")), loaded)
        settings = {**recipe.settings(), **(description.get("settings") or {})}
        changes = {key: settings[key] for key in ("hold_out", "resize", "shift", "test_draws")}
        changes = {key: value for key, value in changes.items() if value != getattr(recipe, key)}
        # a tenth of a user's images is held out unless the user asked for none
        if description.get("hold_out") is False:
            changes["hold_out"] = False
        return recipe.override(**changes)
    if path.is_file() and (facts := describe(path)["trained"]):
        recipe = get(str(facts.get("recipe")))
        # replaced rather than overridden, because a tenth of a user's images may still be held out
        hold_out = recipe.hold_out and facts.get("validation") is not None
        return replace(recipe, hold_out=hold_out)
    for recipe in RECIPES.values():
        if recipe.network == network.name:
            return recipe
    raise UsageError(f"no recipe trains {network.name}: say which data to use with --recipe")


def _recipe(name: str, loaded: Recipe | None) -> Recipe:
    """Return the recipe of a name: the loaded one, or one of the package."""
    return loaded if loaded is not None and loaded.name == name else get(name)


def check_recipe_known(path: Path) -> None:
    """Refuse a run of a recipe that is not in the package."""
    name = description_of(path).get("recipe")
    if name is not None and str(name) not in RECIPES:
        raise UsageError(
            f"{path} was trained with the recipe {name!r}, which is not in the package: give "
            "its file, such as --recipe my_recipe.py:recipe"
        )


def find_training_images(path: Path, network: Network, own_folder: Path) -> TrainedOn:
    """Return which images a network was trained on, before it is shown a user's own."""
    if description := description_of(path):
        if (data := description.get("data")) is None:
            return "recipe"
        return "own" if Path(data) == own_folder.expanduser().resolve() else Path(data)
    # a file alone does not say; another shape than the published one comes from a user's images
    published = ZOO[str(network.name)]
    shape = (published.image_shape, published.n_classes)
    return "recipe" if (network.image_shape, network.n_classes) == shape else "own"


def find_classes(path: Path, loaded: Recipe | None) -> tuple[str, ...]:
    """Return the names of a network's classes by label; empty where no file has them."""
    facts = describe(find_weights(path))
    description = description_of(path) or facts["trained"]
    names = facts["classes"] or description.get("classes") or ()
    if names or description.get("data") is not None or "recipe" not in description:
        return tuple(names)
    return find(_recipe(str(description["recipe"]), loaded).dataset).classes


def check_held_out(path: Path, own_folder: Path) -> None:
    """Refuse a folder that is not the one a run held images out of.

    Its every tenth image may be one that the network was trained on.
    """
    before = description_of(path).get("files_sha256")
    if before is None or "validation" in own_parts(own_folder):
        return
    if before != describe_own(own_folder).get("files_sha256"):
        raise UsageError(
            f"{own_folder} has images of other names or sizes than {path} was trained on, so its "
            "held-out images are unknown: restore them, or give test images with --data"
        )
