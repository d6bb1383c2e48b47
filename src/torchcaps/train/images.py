"""The images a recipe trains on, chooses by and is scored on."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from torchcaps.data import (
    Batch,
    Batches,
    CenterCrop,
    Channels,
    Draws,
    ImageSet,
    Normalize,
    Source,
    Transform,
    find,
    folder_parts,
    load,
    load_folder,
)
from torchcaps.data.generated import FromDigits, Generated
from torchcaps.errors import InputError, UsageError
from torchcaps.models.network import ImageShape
from torchcaps.recipes import Recipe

__all__ = ["First", "Sources", "TrainedOn", "load_sources"]

TrainedOn = Path | Literal["own", "recipe"]
"""A user's folder, the images in question, or those the recipe names."""

_Set = ImageSet | Generated
_Sets = tuple[_Set, _Set | None, _Set | None]


class First:
    """The first samples of a set."""

    def __init__(self, source: Source, count: int) -> None:
        self.source = source
        self.count = min(count, len(source))

    def __len__(self) -> int:
        return self.count

    @property
    def device(self) -> torch.device:
        """Where the samples are."""
        return self.source.device

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """The samples of these indices."""
        return self.source.draw(samples, draws)


@dataclass(frozen=True)
class Sources:
    """The sets of a run on its device; validation and test are None where there is none.

    Attributes:
        train: what the weights learn from.
        validation: what the epoch is chosen by.
        test: what is scored once, at the end.
        classes: name of each label.
        image_shape: of the images the network sees.
        train_transforms: what training images go through.
        test_transforms: what the others go through.
        test_draws: how often the test images are drawn: once where they are always the same.
    """

    train: Source
    validation: Source | None
    test: Source | None
    classes: tuple[str, ...]
    image_shape: ImageShape
    train_transforms: tuple[Transform, ...]
    test_transforms: tuple[Transform, ...]
    test_draws: int

    @property
    def n_classes(self) -> int:
        """How many there are."""
        return len(self.classes)


def load_sources(
    recipe: Recipe,
    *,
    root: Path | None,
    own: Path | None,
    device: torch.device,
    trained_on: TrainedOn = "own",
    image_shape: ImageShape | None = None,
    classes: Sequence[str] = (),
) -> Sources:
    """Load what a recipe names, or a folder of the user's own.

    Args:
        recipe: says which, and what the images go through.
        root: the data folder; None for the usual one.
        own: a folder with one folder of images per class, instead of the recipe's data set.
        device: where the sets shall be.
        trained_on: whose mean and deviation the network knows, where it is shown ``own``: of these
            images, of the recipe's, or of another folder. A folder without a test part that it was
            not trained on is all test images.
        image_shape: what the network takes; images of ``own`` are resized and colored to suit.
            None leaves them as they are.
        classes: names of the network's classes; folders of ``own`` called so, or by number, get
            its labels, others are refused; named ones may be some of them. With none they are
            labeled in sorted order.
    """
    train_transforms, test_transforms = recipe.train_transforms, recipe.test_transforms
    sets: _Sets
    if own is not None:
        read: Callable[..., ImageSet] = partial(load_folder, size=_asked_size(recipe))
        if image_shape is not None:
            size, color = _suiting(recipe, image_shape, trained_on)
            read = partial(load_folder, size=size, color=color)
        labeled = partial(_known_as, classes, read) if classes else read
        mine = _own(recipe, own, unseen=trained_on != "own", read=labeled)
        known = _known(recipe, mine[0], trained_on, read)
        train_transforms = _fitted(train_transforms, mine[0], known)
        test_transforms = _fitted(test_transforms, mine[0], known)
        sets = mine
    else:
        name = recipe.dataset
        sets = (
            _named(recipe, name, "fit" if recipe.hold_out else "train", root),
            _named(recipe, name, "validation", root) if recipe.hold_out else None,
            _named(recipe, recipe.test_dataset or name, "test", root),
        )
    train, validation, test = (None if found is None else found.to(device) for found in sets)
    assert train is not None
    first = torch.zeros(1, dtype=torch.long, device=device)
    sample = Batches(train, 1, transforms=test_transforms).batch(first)
    channels, height, width = sample.images.shape[1:]
    draws = recipe.test_draws if isinstance(test, FromDigits) else 1
    if draws < recipe.test_draws and "test_draws" in recipe.asked and trained_on == "own":
        raise UsageError("test images that never change are drawn once: leave out test_draws")
    return Sources(
        _first(train, recipe.limit),
        None if validation is None else _first(validation, recipe.test_limit),
        None if test is None else _first(test, recipe.test_limit),
        train.classes,
        (channels, height, width),
        train_transforms,
        test_transforms,
        draws,
    )


def _first(source: Source, count: int) -> Source:
    return First(source, count) if count else source


def _named(recipe: Recipe, name: str, split: str, root: Path | None) -> ImageSet | Generated:
    found = load(name, split, root=root)
    if isinstance(found, ImageSet):
        return found.resize(recipe.resize, recipe.resize) if recipe.resize else found
    if recipe.resize:
        raise UsageError(f"resize is for image files, and {name} is drawn at its own size")
    return found


def _asked_size(recipe: Recipe) -> tuple[int, int] | None:
    """What a user wants images resized to; a recipe's own size is for its own images."""
    return (recipe.resize, recipe.resize) if recipe.resize and "resize" in recipe.asked else None


def _suiting(
    recipe: Recipe, image_shape: ImageShape, trained_on: TrainedOn
) -> tuple[tuple[int, int] | None, bool | None]:
    """Size and color of files that become what a network takes; None where they must be so."""
    channels, height, width = image_shape
    size: tuple[int, int] | None = (height, width)
    if any(isinstance(transform, CenterCrop) for transform in recipe.test_transforms):
        shape = find(recipe.dataset).shape
        size = _asked_size(recipe)
        if trained_on == "recipe":
            size = (recipe.resize, recipe.resize) if recipe.resize else (shape[1], shape[2])
    return size, {1: False, 3: True}.get(channels)


def _own(
    recipe: Recipe,
    folder: Path,
    *,
    unseen: bool = False,
    read: Callable[..., ImageSet] = load_folder,
) -> tuple[ImageSet, ImageSet | None, ImageSet | None]:
    """Training, validation and test images of a user's folder; all are test if it is unseen.

    A folder without test images is scored on a held-out tenth, whatever the recipe does with its
    own images, unless it was told to hold none out or there are too few.
    """
    if recipe.measure == "top2":
        raise UsageError(
            f"{recipe.name} looks for two objects in an image and a folder names one: "
            "choose a recipe of another data set"
        )
    folder = folder.expanduser()
    parts = folder_parts(folder)
    unscored = "test" not in parts and "hold_out" not in recipe.asked
    hold_out = (recipe.hold_out or unscored) and not (unseen and "validation" not in parts)
    try:
        apart = not hold_out or "validation" in parts
        train = read(folder, "train" if apart else "fit")
        test = read(folder, "test") if "test" in parts else None
    except FileNotFoundError as error:
        raise InputError(f"{error}. {_layout(folder)}") from None
    if len(train.classes) < 2:
        raise InputError(f"{folder} has one class, {train.classes[0]!r}: give it two or more")
    if unseen and not parts:
        test = train
    validation = None
    if hold_out:
        try:
            validation = _mixed(read(folder, "validation"))
        except FileNotFoundError as error:
            if not recipe.hold_out:
                return _mixed(read(folder)), None, None
            raise InputError(
                f"{error}: every tenth image of a class is held out; give 10 images or more of a "
                "class, or hold none out with --set hold_out=false"
            ) from None
    return _mixed(train), validation, None if test is None else _mixed(test)


def _known_as(
    classes: Sequence[str], read: Callable[..., ImageSet], folder: Path, split: str = "train"
) -> ImageSet:
    """Images with the labels a network has for classes of these names, or of these numbers."""
    images = read(folder, split)
    labels = _labels(images.classes, classes)
    if labels is None:
        raise UsageError(
            f"{folder} has the classes {', '.join(images.classes)}, and the network was trained on "
            f"{', '.join(classes)}: name the folders so, or 0 to {len(classes) - 1} in this order"
        )
    return replace(images, labels=torch.tensor(labels)[images.labels], classes=tuple(classes))


def _labels(names: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """The place of each name among the classes; None if one is no class, or two are the same.

    Of classes called by name some may be missing; numbers say which they mean only all together.
    """
    for spelt in (str, _plain):
        places = {spelt(name): label for label, name in enumerate(classes)}
        found = [places.get(spelt(name), -1) for name in names]
        if min(found) >= 0 and len(set(found)) == len(found):
            return found
    if all(name.isdecimal() for name in names):
        found = [int(name) for name in names]
        return found if sorted(found) == [*range(len(classes))] else None
    return None


def _plain(name: str) -> str:
    """A name in small letters; what is neither letter nor digit is a blank."""
    return re.sub(r"[\W_]", " ", name.lower())


def _mixed(images: ImageSet) -> ImageSet:
    """The first image of every class, the second, and so on: the first few are of all classes."""
    rank = torch.empty_like(images.labels)
    for label in images.labels.unique():
        here = images.labels == label
        rank[here] = torch.arange(int(here.sum()))
    return images.take(rank.argsort(stable=True))


def _layout(folder: Path) -> str:
    expected = (
        "Expected: FOLDER/CLASS/IMAGE.png, or FOLDER/train/CLASS/IMAGE.png and "
        "FOLDER/test/CLASS/IMAGE.png, perhaps with FOLDER/validation/CLASS/IMAGE.png"
    )
    if not folder.is_dir():
        return expected
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    found = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{expected}. Found: {found or 'nothing'}"


def _known(
    recipe: Recipe, mine: ImageSet, trained_on: TrainedOn, read: Callable[..., ImageSet]
) -> Normalize | None:
    """What a network that was trained on some images normalizes by; None is as the recipe says."""
    if trained_on == "recipe" or not any(isinstance(t, Normalize) for t in recipe.test_transforms):
        return None
    if isinstance(trained_on, Path):
        if not trained_on.is_dir():
            raise InputError(
                f"the network was trained on {trained_on}, which is not there: other images are "
                "normalized by its mean and deviation, so put it back"
            )
        # resized as they were in training: smaller images deviate less from their mean
        mine = _own(recipe, trained_on, read=read)[0]
    mean, std = mine.statistics()
    return Normalize(mean.tolist(), std.clamp_min(1e-3).tolist())


def _fitted(
    transforms: Sequence[Transform], images: ImageSet, known: Normalize | None
) -> tuple[Transform, ...]:
    """The recipe's transforms with what is known of other images, and for their channels."""
    fitted: list[Transform] = []
    for transform in transforms:
        if isinstance(transform, Normalize):
            fitted.append(known or transform)
        elif not (isinstance(transform, Channels) and images.images.shape[1] > 1):
            fitted.append(transform)
    return tuple(fitted)
