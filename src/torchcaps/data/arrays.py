"""The user's own images as arrays: a ``.npz`` archive, or ``.npy`` files in a folder."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps.data.dataset import ImageSet, Reading
from torchcaps.data.readers.npy import ArrayFile, member_names, open_array
from torchcaps.data.readers.pixels import Layout, find_layout, read_pixels
from torchcaps.errors import FileFormatError, InputError, MissingFileError

PREFIXES = {
    "": "train",
    "train_": "train",
    "validation_": "validation",
    "val_": "validation",
    "test_": "test",
}
"""Prefix of the arrays ``images`` and ``labels`` -> split."""

EXTRAS: tuple[str, ...] = ("classes", "split", "layout")
SPLITS = ("train", "validation", "test")
MAX_CLASSES = 100_000


@dataclass(frozen=True)
class _Arrays:
    """The headers of a user's arrays by their role.

    Attributes:
        path: the file or folder.
        parts: images and labels by split, training first.
        extras: ``classes``, ``split`` and ``layout`` where they are there.
    """

    path: Path
    parts: dict[str, tuple[ArrayFile, ArrayFile]]
    extras: dict[str, ArrayFile]


def is_arrays(path: Path) -> bool:
    """Return whether a path is a ``.npz`` or ``.npy`` file, or a folder of ``.npy`` files."""
    if path.suffix.lower() in (".npz", ".npy") and not path.is_dir():
        return True
    return any((path / f"{prefix}images.npy").is_file() for prefix in PREFIXES)


def load_arrays(
    path: Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
) -> ImageSet:
    """Read images and labels that NumPy has saved.

    A ``.npz`` archive holds ``images`` and ``labels``, and perhaps ``test_images`` and
    ``test_labels``, ``validation_images`` and ``validation_labels``, or an array ``split`` of the
    words train, validation and test. In a folder these are ``.npy`` files. One ``.npy`` file whose
    name ends in ``images.npy`` is read with the file of labels beside it. Splits that are not there
    are made as by :func:`load_folder`. ``classes`` names the labels 0, 1 and so on; without it
    the sorted labels of the training images are the classes.

    Images are uint8, or floats from 0 to 1, which are rounded to 256 levels. With four axes, the
    second or the last are the channels: the one of 64 or less, or if both are, the smaller one. It
    must then be at most half of the other, and the other more than half of the third axis. Anything
    else is ambiguous and needs an array ``layout`` with the word nchw or nhwc.

    Args:
        path: the file or folder.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result; by default that of the training images.
        channels: channels of the result; by default those of the training images.
    """
    arrays = _open(path)
    parts = _split_names(arrays)
    part, share = _choose(path, parts, split)
    labels, classes = _labels(arrays, part)
    rows = _split_rows(arrays, part)
    chosen = rows[_share(labels[rows], share)]
    if not len(chosen):
        raise MissingFileError(f"{path} has no images in its {split} split")
    first, layout, file = _layout(arrays, "train"), _layout(arrays, part), _part(arrays, part)[0]
    if layout.channels != first.channels:
        raise InputError(
            f"{file} has {layout.channels} channels; training images have {first.channels}"
        )
    shape = first.channels if channels is None else channels, *(size or first.size)
    return ImageSet(
        read_pixels(file, layout, chosen, shape),
        torch.from_numpy(labels[chosen]),
        classes,
        name=str(path),
        split=split,
        indices=torch.from_numpy(chosen),
        reading=Reading({layout.size: len(chosen)}),
    )


def array_parts(path: Path) -> list[str]:
    """Return the splits that arrays hold, train first; none if there is nothing but train."""
    return _split_names(_open(path))


def describe_arrays(path: Path) -> dict[str, Any]:
    """Return class names, number of images and a hash of the files; nothing for no file."""
    if not path.exists():
        return {}
    arrays = _open(path)
    files = [file for part in arrays.parts.values() for file in part] + [*arrays.extras.values()]
    digest = hashlib.sha256()
    for name in sorted({file.path for file in files}):
        with name.open("rb") as content:
            digest.update(hashlib.file_digest(content, "sha256").digest())
    return {
        "classes": list(_labels(arrays, "train")[1]),
        "images": sum(images.shape[0] for images, _ in arrays.parts.values()),
        "files_sha256": digest.hexdigest(),
    }


def _open(path: Path) -> _Arrays:
    """Read the headers of all arrays, and refuse those that do not fit each other."""
    if not path.exists():
        raise MissingFileError(f"there is no file {path}")
    sources = _sources(path)
    extras = {name: sources[name] for name in EXTRAS if name in sources}
    parts: dict[str, tuple[ArrayFile, ArrayFile]] = {}
    for prefix, split in PREFIXES.items():
        names = f"{prefix}images", f"{prefix}labels"
        present = [name for name in names if name in sources]
        if len(present) == 1:
            missing = next(name for name in names if name not in sources)
            raise InputError(f"{path} has {present[0]} without {missing}: add it")
        if present and split in parts:
            raise InputError(f"{path} has two arrays of {split} images: keep one")
        if present:
            parts[split] = sources[names[0]], sources[names[1]]
    if "train" not in parts:
        raise InputError(f"{path} has no arrays images and labels: save them by these names")
    if "split" in extras and len(parts) > 1:
        raise InputError(f"{path} has split and also images of {[*parts][-1]}: keep one of them")
    for images, labels in parts.values():
        count = images.shape[:1]
        if not images.shape or labels.shape not in (count, (*count, 1)) or not count[0]:
            raise InputError(
                f"{images} is {list(images.shape)} and its labels are {list(labels.shape)}: give "
                "one label for each image, and one image or more"
            )
    return _Arrays(path, parts, extras)


def _sources(path: Path) -> dict[str, ArrayFile]:
    """Return the arrays of known names in an archive, in a folder, or of a file and beside it."""
    known = [f"{prefix}{name}" for prefix in PREFIXES for name in ("images", "labels")]
    known += EXTRAS
    if path.is_dir():
        files = {name: path / f"{name}.npy" for name in known}
        return {name: open_array(file) for name, file in files.items() if file.is_file()}
    if path.suffix.lower() == ".npz":
        members = member_names(path)
        return {name: open_array(path, name) for name in known if name in members}
    if not path.name.endswith("images.npy"):
        raise InputError(f"{path} must end in images.npy, its labels in labels.npy: rename them")
    prefix = path.name.removesuffix("images.npy")
    beside = {"images": path, "labels": path.with_name(f"{prefix}labels.npy")}
    beside |= {n: path.with_name(f"{n}.npy") for n in EXTRAS if not (prefix and n == "split")}
    return {name: open_array(file) for name, file in beside.items() if file.is_file()}


def _split_names(arrays: _Arrays) -> list[str]:
    """Return the splits of arrays; none if there is nothing but train."""
    names = [*arrays.parts]
    if "split" in arrays.extras:
        words = set(_split_words(arrays).tolist())
        names = [name for name in SPLITS if name in words]
    return names if len(names) > 1 else []


def _split_words(arrays: _Arrays) -> NDArray[Any]:
    """Return the split of each image by name."""
    file = arrays.extras["split"]
    words = _words(file)
    words = np.where(words == "val", "validation", words)
    unknown = sorted(set(words.tolist()) - set(SPLITS))
    if unknown or "train" not in words or file.shape != arrays.parts["train"][0].shape[:1]:
        raise InputError(f"{file} must have the word train, validation or test for each image")
    return words


def _part(arrays: _Arrays, part: str) -> tuple[ArrayFile, ArrayFile]:
    return arrays.parts["train" if "split" in arrays.extras else part]


def _split_rows(arrays: _Arrays, part: str) -> NDArray[np.int64]:
    """Return the rows of a part in its arrays."""
    if "split" in arrays.extras:
        return np.flatnonzero(_split_words(arrays) == part)
    return np.arange(arrays.parts[part][0].shape[0])


def _choose(path: Path, parts: Sequence[str], split: str) -> tuple[str, str]:
    """Return the part of a split, and which share of it to take: all, fit or validation."""
    if split in parts or (not parts and split == "train"):
        return split, "all"
    if split in ("fit", "validation") and "validation" not in parts:
        return "train", split
    known = ", ".join(parts) or "train, fit and validation"
    raise InputError(f"{path} has no split {split!r}; it has {known}")


def _share(labels: NDArray[np.int64], share: str) -> NDArray[np.bool_]:
    """Return which images to take: of each class every tenth, the others, or all."""
    held_out = np.zeros(len(labels), bool)
    for label in np.unique(labels):
        held_out[np.flatnonzero(labels == label)[9::10]] = True
    return {"all": np.ones_like(held_out), "fit": ~held_out, "validation": held_out}[share]


def _labels(arrays: _Arrays, part: str) -> tuple[NDArray[np.int64], tuple[str, ...]]:
    """Return the labels of all rows of a part's arrays as 0, 1 and so on, and the class names."""
    train = _label_values(arrays.parts["train"][1])
    file = _part(arrays, part)[1]
    values = train if part == "train" else _label_values(file)
    if values.dtype.kind != train.dtype.kind:
        raise InputError(f"{file} and the training labels must both be numbers or both be words")
    if "classes" in arrays.extras:
        names = _words(arrays.extras["classes"]).tolist()
        known = np.arange(len(names)) if values.dtype.kind == "i" else np.array(names)
        if len(set(names)) != len(names) or "" in names:
            raise InputError(f"{arrays.extras['classes']} must name each class differently")
    else:
        rows = _split_rows(arrays, "train")
        known = np.unique(train[rows])
        names = [str(value) for value in known.tolist()]
    if len(names) > MAX_CLASSES:
        raise InputError(f"{arrays.path} has {len(names):,} classes: the most are {MAX_CLASSES:,}")
    order = np.argsort(known)
    found = np.searchsorted(known, values, sorter=order).clip(max=len(known) - 1)
    labels = order[found] if len(known) else found
    unknown = ~np.isin(values, known)
    if unknown.any():
        where = "classes" if "classes" in arrays.extras else "training images"
        raise InputError(
            f"{file} has the label {values[unknown][0].item()!r}, which is not among the {where}"
        )
    return labels.astype(np.int64), tuple(names)


def _label_values(file: ArrayFile) -> NDArray[Any]:
    """Return labels as whole numbers of 0 or more, or as words."""
    if file.dtype.kind in "SU":
        return _words(file)
    if file.dtype.kind not in "iu":
        raise InputError(f"{file} has labels of {file.dtype}: give whole numbers or words")
    values = file.read().reshape(-1)
    if values.min() < 0 or values.max() > np.iinfo(np.int64).max:
        raise InputError(f"{file} has the label {values.min()}: count classes from 0")
    return values.astype(np.int64)


def _words(file: ArrayFile) -> NDArray[Any]:
    """Return an array of words as text."""
    if file.dtype.kind not in "SU":
        raise InputError(f"{file} must hold words, not {file.dtype}")
    words = file.read().reshape(-1)
    try:
        return np.char.decode(words, "utf-8") if words.dtype.kind == "S" else words
    except UnicodeError:
        raise FileFormatError(f"{file} holds words that are not UTF-8") from None


def _layout(arrays: _Arrays, part: str) -> Layout:
    """Return the layout of the images of a part."""
    file = arrays.extras.get("layout")
    if file is None:
        return find_layout(_part(arrays, part)[0], None)
    words = _words(file).tolist()
    return find_layout(_part(arrays, part)[0], words[0] if len(words) == 1 else "")
