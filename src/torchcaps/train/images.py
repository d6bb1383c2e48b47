"""The training, validation and test images of a recipe."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.data import (
    Batch,
    Batches,
    Draws,
    ExpandedMNIST,
    ImageSet,
    MultiMNIST,
    Source,
    Transform,
    load,
)
from torchcaps.data.generated import FromDigits, Generated
from torchcaps.errors import UsageError
from torchcaps.models.network import ImageShape
from torchcaps.preprocessing import Preprocessing
from torchcaps.preprocessing.description import are_steps
from torchcaps.preprocessing.images import border_brightness
from torchcaps.recipes import Recipe
from torchcaps.train.own_images import (
    TrainedOn,
    describe_reading,
    load_own_images,
    normalize_like,
)

_Set = ImageSet | Generated
_Parts = tuple[_Set, _Set | None, _Set | None]


class First:
    """The first samples of a set."""

    def __init__(self, source: Source, count: int) -> None:
        self.source = source
        self.count = min(count, len(source))

    def __len__(self) -> int:
        return self.count

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self.source.device

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices."""
        return self.source.draw(samples, draws)


class Annotated:
    """A data set whose labels are the numbers of an annotation, as floats ``[b n]``.

    Args:
        source: a set with this annotation: one number or a row of numbers for each image.
        annotation: name of the annotation.
    """

    def __init__(self, source: _Set, annotation: str) -> None:
        first = torch.zeros(1, dtype=torch.long, device=source.device)
        notes = Batches(source, 1).batch(first).annotations
        numbers = {name: value for name, value in notes.items() if value.dim() <= 2}
        if annotation not in numbers:
            raise UsageError(
                f"{source.name} has no annotation {annotation!r} of numbers that could be "
                f"predicted: it has {', '.join(numbers) or 'none'}"
            )
        width = numbers[annotation].flatten().numel()
        names = tuple(f"{annotation} {n + 1}" for n in range(width))
        self.source = source
        self.annotation = annotation
        self.names = source.annotation_names.get(annotation, names if width > 1 else (annotation,))

    def __len__(self) -> int:
        return len(self.source)

    @property
    def device(self) -> torch.device:
        """The device of the samples."""
        return self.source.device

    def draw(self, samples: Tensor, draws: Draws) -> Batch:
        """Return the samples of these indices."""
        batch = self.source.draw(samples, draws)
        numbers = batch.annotations[self.annotation].float()
        return batch._replace(labels=numbers.reshape(len(samples), -1))


@dataclass(frozen=True)
class Sources:
    """The sets of a run on its device; validation and test are None where there is none.

    Attributes:
        train: images to train on.
        validation: held-out images that choose the epoch.
        test: images that are scored once, at the end.
        classes: name of each label, or of each number that is predicted.
        image_shape: shape of the images as the network sees them.
        train_transforms: transforms of training images.
        test_transforms: transforms of the others.
        test_draws: draws from the test set; 1 where it never changes.
        notes: sentences about a user's images that were scaled or skipped.
    """

    train: Source
    validation: Source | None
    test: Source | None
    classes: tuple[str, ...]
    image_shape: ImageShape
    train_transforms: tuple[Transform, ...]
    test_transforms: tuple[Transform, ...]
    test_draws: int
    notes: tuple[str, ...] = ()

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.classes)


def load_sources(
    recipe: Recipe,
    *,
    root: Path | None,
    own_folder: Path | None,
    device: torch.device,
    trained_on: TrainedOn = "own",
    image_shape: ImageShape | None = None,
    classes: Sequence[str] = (),
    skip_bad: bool = False,
    like: Preprocessing | None = None,
) -> Sources:
    """Load the data set of a recipe, or a folder of the user's own images.

    Args:
        recipe: the recipe, with its data set and transforms.
        root: the data folder; None for the default.
        own_folder: own images as :func:`torchcaps.data.load_own` reads them, not the recipe's.
        device: the device of the sets.
        trained_on: the images that the network was trained on: those of ``own_folder``, the
            recipe's, or those of another folder. They decide the normalization. In a folder without
            a test part that the network was not trained on, all images are test images.
        image_shape: the network's input, to which images of ``own_folder`` are resized and
            converted. None leaves them as they are.
        classes: names of the network's classes. Class folders with these names or numbers get its
            labels, others are refused. Without names the labels follow the sorted order.
        skip_bad: leave out files of ``own_folder`` that are no images.
        like: the preprocessing of the network that a run starts or started from, to follow.
    """
    parts: _Parts
    notes: tuple[str, ...] = ()
    if own_folder is None:
        parts = _load_parts(recipe, root)
        transforms = normalize_like(recipe, like)
    else:
        parts, transforms = load_own_images(
            recipe,
            own_folder,
            trained_on=trained_on,
            image_shape=image_shape,
            classes=classes,
            skip_bad=skip_bad,
            like=like,
        )
        notes = describe_reading(own_folder, parts)
    sources = _make_sources(recipe, parts, transforms, device)
    draws_requested = "test_draws" in recipe.overridden and trained_on == "own"
    if draws_requested and sources.test_draws < recipe.test_draws:
        raise UsageError("test images that never change are drawn once: leave out test_draws")
    return replace(sources, notes=notes)


def _make_sources(
    recipe: Recipe,
    parts: _Parts,
    transforms: tuple[tuple[Transform, ...], tuple[Transform, ...]],
    device: torch.device,
) -> Sources:
    """Move the images to the device, and measure what a network needs to know of them."""
    whole, held_out, unseen = (None if part is None else part.to(device) for part in parts)
    assert whole is not None
    train, validation, test = (
        None if part is None else _labelled(part, recipe) for part in (whole, held_out, unseen)
    )
    assert train is not None
    first = torch.zeros(1, dtype=torch.long, device=device)
    sample = Batches(train, 1, transforms=transforms[1]).batch(first)
    channels, height, width = sample.images.shape[1:]
    draws = recipe.test_draws if isinstance(unseen, FromDigits) else 1
    return Sources(
        _first(train, recipe.limit),
        None if validation is None else _first(validation, recipe.test_limit),
        None if test is None else _first(test, recipe.test_limit),
        train.names if isinstance(train, Annotated) else whole.classes,
        (channels, height, width),
        *transforms,
        draws,
    )


def describe_preprocessing(sources: Sources) -> Preprocessing | None:
    """Return the preprocessing of test images; None if a transform cannot be recorded."""
    if not are_steps(sources.test_transforms):
        return None
    pixels = first_pixels(sources.train)
    channels, height, width = pixels.shape[1:]
    background = None
    if channels == 1:
        background = round(float(border_brightness(pixels).mean()), 3)
    return Preprocessing(channels, (height, width), sources.test_transforms, background)


def first_pixels(source: Source) -> Tensor:
    """Return the first 100 images before their transforms, as floats in 0..1."""
    samples = torch.arange(min(100, len(source)), device=source.device)
    return Batches(source, 100).batch(samples).images


def _labelled(source: _Set, recipe: Recipe) -> _Set | Annotated:
    """Return a set with the labels that the recipe trains on."""
    return Annotated(source, recipe.targets) if recipe.targets else source


def _first(source: Source, count: int) -> Source:
    return First(source, count) if count else source


def _load_parts(recipe: Recipe, root: Path | None) -> _Parts:
    """Load the training, validation and test images that a recipe names."""
    name, other = recipe.dataset, recipe.validation_dataset
    held_out = None
    if recipe.hold_out:
        held_out = _load(recipe, other or name, "validation", root)
    train = _load(recipe, name, "fit" if recipe.hold_out and not other else "train", root)
    if recipe.shift is not None and not isinstance(train, MultiMNIST | ExpandedMNIST):
        raise UsageError(
            f"shift is for MultiMNIST and expanded MNIST, and {recipe.name} uses {name}"
        )
    return train, held_out, _load(recipe, recipe.test_dataset or name, "test", root)


def _load(recipe: Recipe, name: str, split: str, root: Path | None) -> _Set:
    """Load a data set in the recipe's size."""
    images = load(name, split, root=root)
    if recipe.shift is not None and isinstance(images, MultiMNIST | ExpandedMNIST):
        images = type(images)(images.digits, shift=recipe.shift)
    if isinstance(images, ImageSet):
        return images.resize(recipe.resize, recipe.resize) if recipe.resize else images
    if recipe.resize:
        raise UsageError(f"resize is for image files, and {name} is drawn at its own size")
    return images
