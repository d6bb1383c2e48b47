"""The accuracy of trained networks, from their files."""

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from torchcaps.data import Source
from torchcaps.data.generated import FromDigits
from torchcaps.errors import UsageError
from torchcaps.models import Ensemble, Network
from torchcaps.models.weights.files import describe
from torchcaps.preprocessing import looks_inverted
from torchcaps.recipes import Recipe, get
from torchcaps.train.building import check_targets
from torchcaps.train.evaluation.metrics import Tally
from torchcaps.train.evaluation.score import score
from torchcaps.train.evaluation.trained import (
    check_held_out,
    check_recipe_known,
    description_of,
    find_classes,
    find_recipe,
    find_trained,
    find_training_images,
    load_trained,
)
from torchcaps.train.images import Sources, first_pixels, load_sources
from torchcaps.train.own_images import TrainedOn
from torchcaps.train.process import Process, choose_device


def evaluate_files(
    paths: Sequence[Path],
    *,
    recipe: str | Recipe | None = None,
    data_dir: Path | None = None,
    own_data: Path | None = None,
    split: str = "test",
    draws: int | None = None,
    device: str = "auto",
    skip_bad: bool = False,
    progress: Callable[[str, int, int], None] = lambda name, of, images: None,
    notify: Callable[[str], None] = lambda note: None,
) -> dict[str, dict[str, Any]]:
    """Return the accuracy of each network by path, and of several together as ``"ensemble"``.

    Networks are scored in float32. :class:`Metrics` are added for images of one object, ``"r2"``
    for numbers, ``"weights"`` for shipped weights, ``"looks_inverted"`` for images like negatives.

    Args:
        paths: run folders, weight files, or names of recipes with shipped weights.
        recipe: the recipe of data and transforms; None for the run's, if it is in the package.
        data_dir: the data folder.
        own_data: a folder of images in place of the recipe's or the run's; see `load_sources`.
        split: "test" or "validation".
        draws: draws from a set made of digits, such as MultiMNIST's pairs; None for the recipe's.
        device: see `TrainOptions`.
        skip_bad: leave out files of ``own_data`` that are no images.
        progress: called with a network's name, its images, and those just scored.
        notify: called with sentences about a user's images that were scaled or skipped.
    """
    _check_request(split, draws)
    process, files = Process(choose_device(device)), [find_trained(path) for path in paths]
    for file in files if recipe is None else []:
        check_recipe_known(file)
    networks = [load_trained(file, device=process.device) for file in files]
    chosen, own_data = _recipe_and_images(recipe, own_data, files, networks)
    sources = _sources(paths, files, networks, chosen, own_data, data_dir, skip_bad, notify)
    source = _split(sources, split, str(own_data or chosen.name))
    draws = _check_draws(draws or (sources.test_draws if split == "test" else 1), source)
    if own_data is not None and split == "validation":
        for file in files:
            check_held_out(file, own_data.expanduser())
    scores = {}
    for name, network in _contestants(paths, networks).items():
        on_batch = partial(progress, name, draws * len(source))
        scores[name] = _score(network, source, sources, chosen, process, draws, on_batch)
    for path, file, member in zip(paths, files, networks, strict=True):
        scores[str(path)] |= _remarks(file, member, None if own_data is None else source)
    return scores


def _contestants(paths: Sequence[Path], networks: Sequence[Network]) -> dict[str, torch.nn.Module]:
    """Return the networks by path, and the ensemble of several."""
    named: dict[str, torch.nn.Module] = dict(zip(map(str, paths), networks, strict=True))
    return {**named, "ensemble": Ensemble(networks)} if len(networks) > 1 else named


def _remarks(file: Path, network: Network, images: Source | None) -> dict[str, Any]:
    """Return the recipe of shipped weights, and whether a user's images look inverted."""
    remarks: dict[str, Any] = {}
    if file.is_file() and (facts := describe(file)["trained"]):
        remarks["weights"] = facts.get("recipe")
    known = network.preprocessing
    if images is not None and known and looks_inverted(first_pixels(images), known.background):
        remarks["looks_inverted"] = True
    return remarks


def _score(
    network: torch.nn.Module,
    source: Source,
    sources: Sources,
    recipe: Recipe,
    process: Process,
    draws: int,
    on_batch: Callable[[int], None],
) -> dict[str, Any]:
    tally = Tally(len(network.networks) if isinstance(network, Ensemble) else 1)

    def count(scores: torch.Tensor, labels: torch.Tensor) -> None:
        tally.add(scores, labels)
        on_batch(len(labels))

    result = score(
        network,
        source,
        measure=recipe.measure,
        n_classes=sources.n_classes,
        process=process,
        transforms=sources.test_transforms,
        draws=draws,
        on_batch=count,
    )
    if result.right is None:
        numbers = dict(zip(sources.classes, result.r2, strict=True))
        return {"percent": result.percent, "images": result.images, "r2": numbers}
    metrics = tally.metrics(sources.classes)
    more = {} if metrics is None else metrics.to_dict()
    counts = {"right": result.right, "images": result.images}
    return {"percent": result.percent, **counts, **more}


def _check_request(split: str, draws: int | None) -> None:
    """Refuse a split that does not exist, and fewer draws than one."""
    if split not in ("test", "validation"):
        raise UsageError(f"split must be test or validation, not {split!r}")
    if draws is not None and draws < 1:
        raise UsageError(f"images must be drawn at least once, not {draws} times")


def _check_draws(draws: int, source: Source) -> int:
    """Refuse several draws of images that never change."""
    if draws > 1 and not isinstance(source, FromDigits):
        raise UsageError(f"{source!r} is the same whenever it is drawn: leave out --draws")
    return draws


def _recipe_and_images(
    recipe_or_name: str | Recipe | None,
    own_folder: Path | None,
    files: Sequence[Path],
    networks: Sequence[Network],
) -> tuple[Recipe, Path | None]:
    """Return the recipe that is asked for, or that of the runs, and the user's own images."""
    loaded = recipe_or_name if isinstance(recipe_or_name, Recipe) else None
    is_own = loaded and all(description_of(file).get("recipe") == loaded.name for file in files)
    if recipe_or_name is not None and not is_own:
        return loaded or get(str(recipe_or_name)), own_folder
    recipe, trained_on = _common_recipe(files, networks, loaded)
    return recipe, own_folder or trained_on


def _common_recipe(
    files: Sequence[Path], networks: Sequence[Network], loaded: Recipe | None
) -> tuple[Recipe, Path | None]:
    """Return the recipe and the own images of runs, which must have been trained on images alike.

    Training images of one run are not validation images of any other.
    """
    first = find_recipe(files[0], networks[0], loaded)
    recipes = [first]
    own_folder = description_of(files[0]).get("data")
    for file, network in zip(files[1:], networks[1:], strict=True):
        other = find_recipe(file, network, loaded)
        recipes.append(other)
        same = all(
            getattr(other, key) == getattr(first, key)
            for key in ("dataset", "test_dataset", "test_transforms", "measure", "targets")
        )
        # a weight file does not say what it was trained on
        description = description_of(file)
        if not same or (description and description.get("data") != own_folder):
            raise UsageError(
                f"{files[0]} and {file} were trained on images of different kinds: score them one "
                "by one, or say with --recipe whose images to use"
            )
    recipe = min(recipes, key=lambda one: (one.hold_out, "hold_out" not in one.overridden))
    return recipe, None if own_folder is None else Path(own_folder)


def _sources(
    paths: Sequence[Path],
    files: Sequence[Path],
    networks: Sequence[Network],
    recipe: Recipe,
    own_folder: Path | None,
    data_dir: Path | None,
    skip_bad: bool,
    notify: Callable[[str], None],
) -> Sources:
    """Load the images that all of these networks can be scored on."""
    trained_on: set[TrainedOn] = {"own"}
    classes: set[tuple[str, ...]] = set()
    if own_folder is not None:
        pairs = zip(files, networks, strict=True)
        trained_on = {find_training_images(file, network, own_folder) for file, network in pairs}
        classes = {find_classes(file, recipe) for file in files} - {()}
    if len(trained_on) > 1 or len(classes) > 1:
        names = " and ".join(map(str, paths))
        raise UsageError(f"{names} were trained on different images: score them one by one")
    sources = load_sources(
        recipe,
        root=data_dir,
        own_folder=own_folder,
        device=next(networks[0].parameters()).device,
        trained_on=trained_on.pop(),
        image_shape=networks[0].image_shape,
        classes=classes.pop() if classes else (),
        skip_bad=skip_bad or any(description_of(file).get("skip_bad") for file in files),
        like=networks[0].preprocessing if description_of(files[0]).get("from") else None,
    )
    remedy = "name another --recipe, or the folder of your own images with --data"
    if own_folder is not None:
        remedy = "give a folder that has them"
    for path, network in zip(paths, networks, strict=True):
        check_targets(recipe, network)
        if network.image_shape != sources.image_shape or network.n_classes != sources.n_classes:
            raise UsageError(
                f"{path} takes images {network.image_shape} of {network.n_classes} classes; the "
                f"data have {sources.image_shape} of {sources.n_classes}: {remedy}"
            )
    for note in sources.notes:
        notify(note)
    return sources


def _split(sources: Sources, split: str, owner: str) -> Source:
    """Return the test or the validation images."""
    name, other = ("test", "validation")[:: 1 if split == "test" else -1]
    source: Source | None = getattr(sources, name)
    if source is None:
        hint = (
            "" if getattr(sources, other) is None else f"; it has {other} images: --split {other}"
        )
        raise UsageError(f"there are no {split} images: {owner} has none{hint}")
    return source
