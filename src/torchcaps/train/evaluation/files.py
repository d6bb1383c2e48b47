"""Scores of trained networks, from their files."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import Source, describe_folder, find, folder_parts
from torchcaps.data.generated import FromDigits
from torchcaps.errors import InputError, MissingFileError, UsageError
from torchcaps.models import ZOO, Ensemble, Network, load
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import find_shipped
from torchcaps.recipes import RECIPES, Recipe, get
from torchcaps.train.evaluation.score import score
from torchcaps.train.images import Sources, TrainedOn, load_sources
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.process import Process, choose_device

__all__ = ["check_held_out", "evaluate_files", "find_place", "find_recipe", "find_weights"]


def find_place(path: Path) -> Path:
    """A path as it is; for the name of a recipe its shipped weights, or the run that is here."""
    name = path.as_posix()
    if path.exists() or (name not in RECIPES and name not in ZOO):
        return path
    try:
        return find_shipped(name, prefer_recipe=True)
    except InputError as error:
        here = sorted(Path("runs", name).glob("seed*/weights.safetensors"))
        if here:
            return here[0].parent
        raise MissingFileError(
            f"{error}; it was not trained here either: torchcaps train {name}"
        ) from None


def find_weights(path: Path) -> Path:
    """The weight file of a run folder, or the file itself."""
    if path.is_dir():
        run = RunFolder(path)
        if not run.weights.is_file():
            raise InputError(_without_weights(run))
        return run.weights
    if not path.is_file():
        said = f"there is no run folder or weight file {path}"
        try:
            get(path.as_posix())
        except UsageError as error:
            raise MissingFileError(f"{said}, and {error}") from None
        raise MissingFileError(said)
    return path


def _without_weights(run: RunFolder) -> str:
    if run.result() is not None:
        return (
            f"{run.path} is finished and its {run.weights.name} is gone: put it back, or train it "
            "again with --fresh"
        )
    seeds = sorted(place.parent for place in run.path.glob(f"seed*/{run.weights.name}"))
    if seeds:
        return f"{run.path} holds runs and is none itself: name them, such as {seeds[0]}"
    return f"{run.path} holds no finished run: {run.weights.name} is not there yet"


def find_recipe(path: Path, network: Network, loaded: Recipe | None = None) -> Recipe:
    """Return the recipe of a run folder or of shipped weights, or the first for this network.

    A run that held no images out has none to be scored on but those it was trained on.

    Args:
        path: the run folder or the weight file.
        network: its network.
        loaded: a recipe that is not in the package; the run may be one of it.
    """
    if described := _described(path):
        found = _recipe(str(described.get("recipe")), loaded)
        settings = {**found.settings(), **(described.get("settings") or {})}
        kept = {key: settings[key] for key in ("hold_out", "resize", "test_draws")}
        kept = {key: value for key, value in kept.items() if value != getattr(found, key)}
        # of a user's images a tenth is held out unless that was asked not to be
        if described.get("hold_out") is False:
            kept["hold_out"] = False
        return found.override(**kept)
    if path.is_file() and (trained := describe(path)["trained"]):
        found = get(str(trained.get("recipe")))
        # not asked for: of a user's own images a tenth may still be held out
        return replace(found, hold_out=found.hold_out and trained.get("validation") is not None)
    for recipe in RECIPES.values():
        if recipe.network == network.name:
            return recipe
    raise UsageError(f"no recipe trains {network.name}: say which data to use with --recipe")


def _recipe(name: str, loaded: Recipe | None) -> Recipe:
    """Return the recipe that a run names: the loaded one, or one of the package."""
    return loaded if loaded is not None and loaded.name == name else get(name)


def _check_recipes(places: Sequence[Path]) -> None:
    """Refuse runs of a recipe that is not in the package."""
    for place in places:
        name = _described(place).get("recipe")
        if name is not None and str(name) not in RECIPES:
            raise UsageError(
                f"{place} was trained with the recipe {name!r}, which is not in the package: give "
                "its file, such as --recipe my_recipe.py:recipe"
            )


def _described(path: Path) -> dict[str, Any]:
    """What was asked of the run of a folder, or of the run beside whose files a weight file is."""
    if not path.is_dir() and path.name != RunFolder(path.parent).weights.name:
        return {}
    return RunFolder(path if path.is_dir() else path.parent).description() or {}


def _trained_on(path: Path, network: Network, own: Path) -> TrainedOn:
    """Whose images the network of a run or a file knows, which shall be shown a user's own."""
    if described := _described(path):
        if (data := described.get("data")) is None:
            return "recipe"
        return "own" if Path(data) == own.expanduser().resolve() else Path(data)
    # a file alone does not say; a network of another shape than published saw a user's images
    usual = ZOO[str(network.name)]
    same = (network.image_shape, network.n_classes) == (usual.image_shape, usual.n_classes)
    return "recipe" if same else "own"


def _classes(path: Path, loaded: Recipe | None) -> tuple[str, ...]:
    """Return the names of a network's classes by label; none where no file says them."""
    said = describe(find_weights(path))
    described = _described(path) or said["trained"]
    named = said["classes"] or described.get("classes") or ()
    if named or described.get("data") is not None or "recipe" not in described:
        return tuple(named)
    return find(_recipe(str(described["recipe"]), loaded).dataset).classes


def check_held_out(place: Path, own: Path) -> None:
    """Refuse images that are not those of a run: every tenth may be one it was trained on."""
    before = _described(place).get("files_sha256")
    if before is None or "validation" in folder_parts(own):
        return
    if before != describe_folder(own).get("files_sha256"):
        raise UsageError(
            f"{own} has images of other names or sizes than {place} was trained on, so that those "
            "it held out are not known: put them back, or give test images with --data"
        )


def _chosen(
    paths: Sequence[Path], networks: Sequence[Network], loaded: Recipe | None
) -> tuple[Recipe, Path | None]:
    """Return the recipe and the user's own images of runs, which must have seen images alike.

    What one of them was trained on is no validation image of any.
    """
    first = find_recipe(paths[0], networks[0], loaded)
    recipes = [first]
    own = _described(paths[0]).get("data")
    for path, network in zip(paths[1:], networks[1:], strict=True):
        other = find_recipe(path, network, loaded)
        recipes.append(other)
        same = all(
            getattr(other, key) == getattr(first, key)
            for key in ("dataset", "test_dataset", "test_transforms", "measure")
        )
        # a weight file does not say what it was trained on
        if not same or (_described(path) and _described(path).get("data") != own):
            raise UsageError(
                f"{paths[0]} and {path} were trained on images of different kinds: score them one "
                "by one, or say with --recipe whose images to use"
            )
    chosen = min(recipes, key=lambda one: (one.hold_out, "hold_out" not in one.asked))
    return chosen, None if own is None else Path(own)


def _sources(
    paths: Sequence[Path],
    places: Sequence[Path],
    networks: Sequence[Network],
    chosen: Recipe,
    own: Path | None,
    data_dir: Path | None,
) -> Sources:
    """The images that all of these networks can be shown, by what each was trained on."""
    known: set[TrainedOn] = {"own"}
    named: set[tuple[str, ...]] = set()
    if own is not None:
        pairs = zip(places, networks, strict=True)
        known = {_trained_on(place, network, own) for place, network in pairs}
        named = {_classes(place, chosen) for place in places} - {()}
    if len(known) > 1 or len(named) > 1:
        names = " and ".join(map(str, paths))
        raise UsageError(f"{names} were trained on different images: score them one by one")
    sources = load_sources(
        chosen,
        root=data_dir,
        own=own,
        device=next(networks[0].parameters()).device,
        trained_on=known.pop(),
        image_shape=networks[0].image_shape,
        classes=named.pop() if named else (),
    )
    here = "name another --recipe, or the folder of your own images with --data"
    remedy = here if own is None else "give a folder that has them"
    for path, network in zip(paths, networks, strict=True):
        if network.image_shape != sources.image_shape or network.n_classes != sources.n_classes:
            raise UsageError(
                f"{path} takes images {network.image_shape} of {network.n_classes} classes; the "
                f"data have {sources.image_shape} of {sources.n_classes}: {remedy}"
            )
    return sources


def _part(sources: Sources, split: str, whose: str) -> Source:
    """The test or the validation images."""
    source, other, there = sources.test, "validation", sources.validation
    if split == "validation":
        source, other, there = sources.validation, "test", sources.test
    if source is None:
        hint = "" if there is None else f"; it has {other} images: --split {other}"
        raise UsageError(f"there are no {split} images: {whose} has none{hint}")
    return source


def evaluate_files(
    paths: Sequence[Path],
    *,
    recipe: str | Recipe | None = None,
    data_dir: Path | None = None,
    own_data: Path | None = None,
    split: str = "test",
    draws: int | None = None,
    device: str = "auto",
    progress: Callable[[str, int, int], None] = lambda name, of, images: None,
) -> dict[str, dict[str, Any]]:
    """Percent of images right, by path; of several networks also ``"ensemble"``.

    Of shipped weights ``"weights"`` names their recipe, perhaps another than the one asked for.

    Args:
        paths: run folders, weight files, or names of recipes whose weights are shipped; all are
            scored in float32.
        recipe: whose data and transforms to use; None for the run's own. Runs of a recipe that is
            not in the package need the recipe itself.
        data_dir: the data folder.
        own_data: a folder with one folder of images per class, instead; None for the run's own.
            They are resized and normalized as the network's training images were, and all of them
            count if the folder has no test part and the network was not trained on it. The class
            folders have the names of the network's classes, or their numbers.
        split: "test" or "validation".
        draws: how often a set made of digits is drawn, such as MultiMNIST's pairs; None for test
            images as often as the recipe has them drawn, and once for others.
        device: "auto", "cpu", "cuda" or "cuda:N".
        progress: told a network's name, how many images it shall see, and how many more it has.
    """
    if split not in ("test", "validation"):
        raise UsageError(f"split must be test or validation, not {split!r}")
    if draws is not None and draws < 1:
        raise UsageError(f"images must be drawn at least once, not {draws} times")
    process = Process(choose_device(device))
    places = [find_place(path) for path in paths]
    if recipe is None:
        _check_recipes(places)
    networks = [load(find_weights(place), device=process.device) for place in places]
    loaded = recipe if isinstance(recipe, Recipe) else None
    its_own = loaded and all(_described(place).get("recipe") == loaded.name for place in places)
    if recipe is not None and not its_own:
        chosen = loaded or get(str(recipe))
    else:
        chosen, mine = _chosen(places, networks, loaded)
        own_data = own_data or mine
    sources = _sources(paths, places, networks, chosen, own_data, data_dir)
    source = _part(sources, split, str(own_data or chosen.name))
    if draws is None:
        draws = sources.test_draws if split == "test" else 1
    if draws > 1 and not isinstance(source, FromDigits):
        raise UsageError(f"{source!r} is the same whenever it is drawn: leave out --draws")
    if own_data is not None and split == "validation":
        for place in places:
            check_held_out(place, own_data.expanduser())
    contestants: dict[str, torch.nn.Module] = dict(zip(map(str, paths), networks, strict=True))
    if len(networks) > 1:
        contestants["ensemble"] = Ensemble(networks)
    scores = {}
    for name, contestant in contestants.items():
        found = score(
            contestant,
            source,
            measure=chosen.measure,
            n_classes=sources.n_classes,
            process=process,
            transforms=sources.test_transforms,
            precision="float32",
            draws=draws,
            on_batch=partial(progress, name, draws * len(source)),
        )
        scores[name] = {"percent": found.percent, "right": found.right, "images": found.images}
    for path, place in zip(paths, places, strict=True):
        if place.is_file() and (trained := describe(place)["trained"]):
            scores[str(path)]["weights"] = trained.get("recipe")
    return scores
