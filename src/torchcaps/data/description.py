"""Descriptions of the data sets that load by name, and the reader of sets that consist of files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, TypeAlias

import torch

from torchcaps.data.dataset import ImageSet
from torchcaps.data.files import Columns, DataFile, DataFolder
from torchcaps.data.generated import Generated
from torchcaps.data.readers.bytes import FileFormatError

DIGITS = tuple("0123456789")

Reader: TypeAlias = "Callable[[Description, str, DataFolder], ImageSet | Generated]"
"""Loader of one split of a described set."""


def read_files(description: "Description", split: str, folder: DataFolder) -> ImageSet:
    """Read one split of a set that consists of files."""
    stored = split if split in description.files else "train"
    columns = _read_columns(description, stored, folder)
    whole = ImageSet(
        images=columns.pop("images"),
        labels=columns.pop("labels"),
        classes=description.classes,
        name=description.name,
        split=stored,
        annotations=columns,
    )
    if split == stored or "validation" in description.files:
        return whole
    first = len(whole) - len(whole) // 10
    positions = torch.arange(len(whole))
    return whole.take(positions[:first] if split == "fit" else positions[first:], split=split)


def _read_columns(description: "Description", split: str, folder: DataFolder) -> Columns:
    parts: dict[str, list[torch.Tensor]] = {}
    for file in description.files[split]:
        columns = folder.read(file, image_bytes=prod(description.shape))
        for name, column in columns.items():
            parts.setdefault(name, []).append(column)
    whole = {
        name: torch.cat(columns) if len(columns) > 1 else columns[0]
        for name, columns in parts.items()
    }
    images, labels = whole["images"], whole["labels"]
    expected = (description.counts[split], *description.shape)
    problem = f"{folder.path} cannot be used: {description.name}'s {split} split"
    if tuple(images.shape) != expected or any(len(c) != len(images) for c in whole.values()):
        raise FileFormatError(
            f"{problem} should be images of shape {list(expected)} but is {list(images.shape)} "
            f"with {len(labels)} labels; put the original files there"
        )
    n_classes = len(description.classes)
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < n_classes:
        raise FileFormatError(
            f"{problem} has labels outside 0..{n_classes - 1}; put the original files there"
        )
    return whole


@dataclass(frozen=True)
class Description:
    """A data set that loads by name.

    Attributes:
        name: name that `torchcaps.data.load` takes.
        about: one line.
        source: ``"files"``, ``"built in"``, or "made from" another set.
        counts: number of images in each split.
        shape: ``(c, h, w)``.
        mean: mean of each channel of the training images in 0..1; empty where none is published.
        std: standard deviation of each channel, likewise.
        homepage: web page of the set.
        classes: name of each label.
        files: files of each stored split; empty for built-in sets.
        read: loader of a split.
    """

    name: str
    about: str
    source: str
    counts: Mapping[str, int]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    homepage: str = ""
    classes: tuple[str, ...] = DIGITS
    files: Mapping[str, tuple[DataFile, ...]] = field(default_factory=dict)
    read: Reader = read_files

    def facts(self) -> dict[str, Any]:
        """Return what `json` can store: every field but the files and their reader."""
        return {key: value for key, value in vars(self).items() if key not in ("files", "read")}


def split_counts(*, train: int, test: int, **others: int) -> dict[str, int]:
    """Return the counts of all splits, where validation is the last tenth of train."""
    held_out = train // 10
    counts = {"train": train, "fit": train - held_out, "validation": held_out, "test": test}
    return counts | others
