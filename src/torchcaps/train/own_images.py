"""A user's own images: their training, validation and test part, labels and transforms."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Literal

import torch

from torchcaps.data import (
    CenterCrop,
    Channels,
    ImageSet,
    Normalize,
    Transform,
    find,
    load_own,
    own_parts,
)
from torchcaps.errors import InputError, UsageError
from torchcaps.models.network import ImageShape
from torchcaps.preprocessing import Preprocessing
from torchcaps.recipes import Recipe

TrainedOn = Path | Literal["own", "recipe"]
"""Images a network was trained on: a user's folder, those at hand, or those of the recipe."""

Parts = tuple[ImageSet, ImageSet | None, ImageSet | None]
"""Training, validation and test images."""


Transforms = tuple[tuple[Transform, ...], tuple[Transform, ...]]
"""Transforms of training images, and of the others."""

MAX_LISTED = 5


def load_own_images(
    recipe: Recipe,
    folder: Path,
    *,
    trained_on: TrainedOn,
    image_shape: ImageShape | None,
    classes: Sequence[str],
    skip_bad: bool = False,
    like: Preprocessing | None = None,
) -> tuple[Parts, Transforms]:
    """Load a user's folder, and fit the recipe's transforms; see `load_sources` for arguments."""
    size, channels = _requested_size(recipe), None
    if like is not None:
        size, channels = size or like.size, like.channels
    elif image_shape is not None:
        size, channels = _fitting_size(recipe, image_shape, trained_on), image_shape[0]
    read = partial(load_own, size=size, channels=channels, skip_bad=skip_bad)
    labeled = partial(_read_with_classes, classes, read) if classes else read
    parts = _read_parts(recipe, folder, unseen=trained_on != "own", read=labeled)
    train_transforms, test_transforms = normalize_like(recipe, like)
    normalize = None
    if like is None:
        normalize = _training_normalization(recipe, parts[0], trained_on, read)
    return parts, (
        _fit_transforms(train_transforms, parts[0], normalize),
        _fit_transforms(test_transforms, parts[0], normalize),
    )


def describe_reading(folder: Path, parts: Sequence[object]) -> tuple[str, ...]:
    """Return sentences about images that were scaled or skipped; none if all were as they are."""
    sets = {id(part): part for part in parts if isinstance(part, ImageSet) and part.reading}
    sizes: Counter[tuple[int, int]] = Counter()
    skipped: list[str] = []
    for part in sets.values():
        if part.reading is not None:
            sizes.update(part.reading.sizes)
            skipped += part.reading.skipped
    notes = []
    height, width = next(iter(sets.values())).images.shape[2:] if sets else (0, 0)
    if any(size != (height, width) for size in sizes):
        notes.append(
            f"{folder}: {sizes.total():,} images of height x width {_list_sizes(sizes)}; each is "
            f"scaled until it covers {height}x{width}, and its center is cut out"
        )
    if skipped:
        notes.append(
            f"{folder}: skipped {len(skipped)} files that are no images: " + _list(skipped)
        )
    return tuple(notes)


def _list_sizes(sizes: Counter[tuple[int, int]]) -> str:
    """Return the most common sizes with their counts, and how many others there are."""
    common = sizes.most_common(MAX_LISTED)
    listed = ", ".join(f"{height}x{width} ({count:,})" for (height, width), count in common)
    others = len(sizes) - len(common)
    return listed + f" and {others:,} other sizes" * bool(others)


def _list(names: Sequence[str]) -> str:
    """Return the first names, and how many others there are."""
    others = len(names) - MAX_LISTED
    return ", ".join(names[:MAX_LISTED]) + (f" and {others} more" if others > 0 else "")


def normalize_like(recipe: Recipe, like: Preprocessing | None) -> Transforms:
    """Return the recipe's transforms with the mean and standard deviation of a trained network."""
    transforms = recipe.train_transforms, recipe.test_transforms
    if like is None:
        return transforms
    kinds = [type(t).__name__ for t in recipe.test_transforms if not isinstance(t, Channels)]
    known = [type(step).__name__ for step in like.steps if not isinstance(step, Channels)]
    if kinds != known:
        raise UsageError(
            f"the trained network sees images after {_join(known)}, and {recipe.name} trains on "
            f"images after {_join(kinds)}: choose a recipe with the same steps"
        )
    normalize = next((step for step in like.steps if isinstance(step, Normalize)), None)
    train, test = (
        tuple(normalize if normalize and isinstance(t, Normalize) else t for t in part)
        for part in transforms
    )
    return train, test


def _join(names: Sequence[str]) -> str:
    return ", ".join(names) or "no step"


def _requested_size(recipe: Recipe) -> tuple[int, int] | None:
    """Return the size that a user asked for; a recipe's own size is for its own images."""
    return (
        (recipe.resize, recipe.resize) if recipe.resize and "resize" in recipe.overridden else None
    )


def _fitting_size(
    recipe: Recipe, image_shape: ImageShape, trained_on: TrainedOn
) -> tuple[int, int] | None:
    """Return the size that fits images to a network; None leaves them as they are."""
    _, height, width = image_shape
    size: tuple[int, int] | None = (height, width)
    if any(isinstance(transform, CenterCrop) for transform in recipe.test_transforms):
        shape = find(recipe.dataset).shape
        size = _requested_size(recipe)
        if trained_on == "recipe":
            size = (recipe.resize, recipe.resize) if recipe.resize else (shape[1], shape[2])
    return size


def _read_parts(
    recipe: Recipe,
    folder: Path,
    *,
    unseen: bool = False,
    read: Callable[..., ImageSet] = load_own,
) -> Parts:
    """Read training, validation and test images; all are test images if they are unseen.

    A folder without test images is scored on a held-out tenth, whatever the recipe does with its
    own images, unless the user asked for none or there are too few.
    """
    if recipe.targets:
        raise UsageError(
            f"{recipe.name} predicts numbers ({recipe.targets}) and a folder of images names "
            "classes: choose a recipe that predicts classes"
        )
    if recipe.measure == "top2":
        raise UsageError(
            f"{recipe.name} looks for two objects in an image and a folder names one: "
            "choose a recipe of another data set"
        )
    folder = folder.expanduser()
    parts = own_parts(folder)
    unscored = "test" not in parts and "hold_out" not in recipe.overridden
    hold_out = (recipe.hold_out or unscored) and not (unseen and "validation" not in parts)
    try:
        separate = not hold_out or "validation" in parts
        train = read(folder, "train" if separate else "fit")
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
            validation = _interleave(read(folder, "validation"))
        except FileNotFoundError as error:
            if not recipe.hold_out:
                return _interleave(read(folder)), None, None
            raise InputError(
                f"{error}: every tenth image of a class is held out; give 10 images or more of a "
                "class, or hold none out with --set hold_out=false"
            ) from None
    return _interleave(train), validation, None if test is None else _interleave(test)


def _read_with_classes(
    classes: Sequence[str], read: Callable[..., ImageSet], folder: Path, split: str = "train"
) -> ImageSet:
    """Read images with the labels that a network has for classes of these names or numbers."""
    images = read(folder, split)
    labels = _match_labels(images.classes, classes)
    if labels is None:
        raise UsageError(
            f"{folder} has the classes {', '.join(images.classes)}, and the network was trained on "
            f"{', '.join(classes)}: name yours so, or 0 to {len(classes) - 1} in this order"
        )
    return replace(images, labels=torch.tensor(labels)[images.labels], classes=tuple(classes))


def _match_labels(names: Sequence[str], classes: Sequence[str]) -> list[int] | None:
    """Return the label of each name; None if one is no class, or two are the same.

    Some classes may be missing if the names are words. Numbers must be complete.
    """
    for convert in (str, _normalized):
        label_of = {convert(name): label for label, name in enumerate(classes)}
        labels = [label_of.get(convert(name), -1) for name in names]
        if min(labels) >= 0 and len(set(labels)) == len(labels):
            return labels
    if all(name.isdecimal() for name in names):
        labels = [int(name) for name in names]
        return labels if sorted(labels) == [*range(len(classes))] else None
    return None


def _normalized(name: str) -> str:
    """Return a name in lower case with blanks for all but letters and digits."""
    return re.sub(r"[\W_]", " ", name.lower())


def _interleave(images: ImageSet) -> ImageSet:
    """Order images by class in turn, so that the first few are of all classes."""
    rank = torch.empty_like(images.labels)
    for label in images.labels.unique():
        mask = images.labels == label
        rank[mask] = torch.arange(int(mask.sum()))
    return images.take(rank.argsort(stable=True))


def _layout(folder: Path) -> str:
    """Describe the expected layout of a folder, and the actual one."""
    expected = (
        "Expected: FOLDER/CLASS/IMAGE.png, or FOLDER/train/CLASS/IMAGE.png and "
        "FOLDER/test/CLASS/IMAGE.png, perhaps with FOLDER/validation/CLASS/IMAGE.png; or FILE.npz "
        "with the arrays images and labels"
    )
    if not folder.is_dir():
        return expected
    names = sorted(entry.name + "/" * entry.is_dir() for entry in folder.iterdir())
    actual = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return f"{expected}. Found: {actual or 'nothing'}"


def _training_normalization(
    recipe: Recipe, images: ImageSet, trained_on: TrainedOn, read: Callable[..., ImageSet]
) -> Normalize | None:
    """Return the normalization of a network's training images; None for the recipe's own."""
    if trained_on == "recipe" or not any(isinstance(t, Normalize) for t in recipe.test_transforms):
        return None
    if isinstance(trained_on, Path):
        if not trained_on.exists():
            raise InputError(
                f"the network was trained on {trained_on}, which is not there: other images are "
                "normalized by its mean and standard deviation, so put it back"
            )
        # resized as in training: smaller images have a smaller standard deviation
        images = _read_parts(recipe, trained_on, read=read)[0]
    mean, std = images.statistics()
    return Normalize(mean.tolist(), std.clamp_min(1e-3).tolist())


def _fit_transforms(
    transforms: Sequence[Transform], images: ImageSet, normalize: Normalize | None
) -> tuple[Transform, ...]:
    """Return the recipe's transforms with another normalization, and for these channels."""
    fitted: list[Transform] = []
    for transform in transforms:
        if isinstance(transform, Normalize):
            fitted.append(normalize or transform)
        elif not (isinstance(transform, Channels) and images.images.shape[1] > 1):
            fitted.append(transform)
    return tuple(fitted)
