"""Subjects of analysis: a trained network with its test images."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, final

import torch
from torch import Tensor

from torchcaps.capsules import Output
from torchcaps.data import (
    Batch,
    Batches,
    Draws,
    Generated,
    ImageSet,
    Transform,
    load,
    stream_key,
)
from torchcaps.errors import InputError, UsageError
from torchcaps.models import Network, load as load_network
from torchcaps.preprocessing import Preprocessing
from torchcaps.recipes import Measure, Recipe, get
from torchcaps.results import AccuracyRow
from torchcaps.train.evaluation.trained import (
    check_held_out,
    find_recipe,
    find_trained,
    find_weights,
)
from torchcaps.train.images import load_sources
from torchcaps.train.outputs.folder import RunFolder
from torchcaps.train.own_images import normalize_like


@final
class Prepared(Network):
    """A network behind the transforms of its test images; takes images in 0..1.

    Args:
        network: the network that takes transformed images.
        transforms: transforms without randomness, such as CenterCrop and Normalize.
        image_shape: shape of the images before the transforms.
    """

    def __init__(
        self,
        network: Network,
        transforms: Sequence[Transform],
        image_shape: tuple[int, int, int],
    ) -> None:
        super().__init__(image_shape, network.n_classes)
        self.network = network
        self.transforms = tuple(transforms)
        self.name = network.name

    def prepare(self, images: Tensor) -> Tensor:
        """Return the images as the network sees them."""
        draws = Draws(stream_key(0), torch.arange(len(images), device=images.device))
        for transform in self.transforms:
            images = transform(images, draws)
        return images

    def forward(
        self, images: Tensor, targets: Tensor | None = None, *, couplings: bool = False
    ) -> Output:
        """Classify images after the transforms."""
        prepared = self.prepare(self.checked(images))
        output: Output = self.network(prepared, targets, couplings=couplings)
        return output


@dataclass(frozen=True, eq=False)
class Subject:
    """A trained network with its test images.

    Attributes:
        name: name in figures.
        network: takes images in 0..1 as ``source`` has them.
        source: test images, or held-out ones if there are no others.
        dataset: name of the source.
        measure: when an image counts as right; None lets the labels decide.
        run: the run folder, if there is one.
        result: row of the run, if it is finished.
        split: kind of the images; held-out ones may have chosen the epoch.
    """

    name: str
    network: Network
    source: ImageSet | Generated
    dataset: str = ""
    measure: Measure | None = None
    run: Path | None = None
    result: AccuracyRow | None = None
    split: Literal["test", "held-out"] = "test"

    def batch(self, count: int) -> Batch:
        """Return the first ``count`` test images of an order that is the same for every network."""
        order = Batches(self.source, 1, seed=0).order(0)[:count]
        return Batches(self.source, max(1, count), seed=0).batch(order)


def _load_classifier(weights: Path, device: str | torch.device) -> Network:
    network = load_network(weights, device=device)
    if network.predicts == "numbers":
        raise UsageError(f"{weights} predicts numbers, and figures are drawn of classes only")
    return network


def _checked_path(path: object) -> Path:
    if not isinstance(path, str | Path):
        raise UsageError(f"path must be a run folder, a weight file or a name, not {path!r}")
    return Path(path)


def open_subject(
    path: str | Path,
    *,
    data_dir: str | Path | None = None,
    recipe: str | Recipe | None = None,
    device: str | torch.device = "cpu",
) -> Subject:
    """Open a run folder, a weight file, or the shipped weights of a recipe's name.

    Args:
        path: run folder, weight file, or name of a recipe with shipped weights.
        data_dir: the data folder; see :func:`torchcaps.data.load`.
        recipe: recipe of the test images and transforms, or its name; None takes the run's.
        device: device of network and images.
    """
    weights = find_weights(find_trained(_checked_path(path)))
    network = _load_classifier(weights, device)
    is_run = (weights.parent / "run.json").is_file()
    folder = weights.parent if is_run else weights
    chosen = (get(recipe) if isinstance(recipe, str) else recipe) or find_recipe(folder, network)
    described = (RunFolder(folder).description() if is_run else None) or {}
    own_folder = None if recipe is not None else described.get("data")
    classes, skip_bad = described.get("classes") or (), bool(described.get("skip_bad"))
    like = network.preprocessing if recipe is None and described.get("from") else None
    source, transforms, split = _images(
        chosen, own_folder, classes, data_dir, torch.device(device), skip_bad, like
    )
    if own_folder is not None and split == "held-out":
        check_held_out(folder, Path(own_folder))
    first = torch.zeros(1, dtype=torch.long, device=device)
    channels, height, width = Batches(source, 1).batch(first).images.shape[1:]
    seen = Batches(source, 1, transforms=transforms).batch(first).images.shape[1:]
    if seen != network.image_shape or len(source.classes) != network.n_classes:
        raise InputError(
            f"{path} takes images {network.image_shape} of {network.n_classes} classes and the "
            f"data have {tuple(seen)} of {len(source.classes)}: name another recipe"
        )
    prepared = Prepared(network, transforms, (channels, height, width)) if transforms else network
    return Subject(
        name=f"{chosen.name} {weights.parent.name}" if is_run else weights.stem,
        network=prepared.eval(),
        source=source,
        dataset=own_folder or chosen.test_dataset or chosen.dataset,
        measure=chosen.measure,
        run=folder if is_run else None,
        result=RunFolder(folder).row() if is_run else None,
        split=split,
    )


def _images(
    recipe: Recipe,
    own_folder: str | None,
    classes: Sequence[str],
    data_dir: str | Path | None,
    device: torch.device,
    skip_bad: bool,
    like: Preprocessing | None,
) -> tuple[ImageSet | Generated, tuple[Transform, ...], Literal["test", "held-out"]]:
    """Return the test images of a recipe, or of the user's folder that a run was trained on."""
    if own_folder is not None:
        sources = load_sources(
            recipe,
            root=None,
            own_folder=Path(own_folder),
            device=device,
            classes=classes,
            skip_bad=skip_bad,
            like=like,
        )
        source = sources.validation if sources.test is None else sources.test
        if not isinstance(source, ImageSet | Generated):
            raise InputError(f"{own_folder} has neither test nor validation images to look at")
        return source, sources.test_transforms, "held-out" if sources.test is None else "test"
    source = load(recipe.test_dataset or recipe.dataset, "test", root=data_dir)
    if recipe.resize and isinstance(source, ImageSet):
        source = source.resize(recipe.resize, recipe.resize)
    return source.to(device), normalize_like(recipe, like)[1], "test"
