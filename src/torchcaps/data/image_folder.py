"""The user's own images: one folder per class."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Container, Sequence
from contextlib import suppress
from math import prod
from pathlib import Path
from typing import IO, Any, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.checks import check_whole
from torchcaps.data.dataset import ImageSet, Reading
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.readers.npy import fits_in_memory
from torchcaps.errors import InputError, MissingFileError
from torchcaps.preprocessing.images import channels_first, cover_and_crop, with_channels
from torchcaps.preprocessing.picture import decode_image, measure_image

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pbm", ".tif", ".tiff")
)
SPLITS = ("train", "validation", "test")

_ALL, _FIT, _VALIDATION = range(10), range(9), (9,)

T = TypeVar("T")

Files: TypeAlias = Sequence[tuple[Path, int]]
"""Image files with their labels."""

MAX_LISTED = 20


def load_folder(
    path: str | Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    color: bool | None = None,
    skip_bad: bool = False,
) -> ImageSet:
    """Read a folder that has one subfolder of images per class.

    The class names are the subfolders' names in sorted order. A subfolder without images is an
    error; one whose name begins with a dot is ignored. If the folder holds ``train`` and ``test``
    (and perhaps ``validation``) with the classes inside them, these are the splits. Otherwise
    ``"train"`` is everything, ``"validation"`` every tenth image of each class in sorted order and
    ``"fit"`` the others. Classes, size and color are those of ``train`` in every split.

    Images are rotated upright by their EXIF data, transparent images get a black background, and
    the first frame of an animation counts. An image of another size keeps its aspect ratio: it is
    scaled until it covers the common size, and its center is cut out. ``reading`` of the result
    has the sizes of the files.

    Args:
        path: the folder; ``~`` is the home folder.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result; by default the most common size in ``train``.
        color: True for three channels, False for one; by default color if any image in ``train``
            has color. A palette of grays is not color.
        skip_bad: leave out files that are no images. By default one error lists all of them.
    """
    path = Path(path).expanduser()
    _check_size(size)
    train, classes, files = _list_split(path, split)
    if size is None or color is None:
        common, colored = _survey(path, _images(train, classes, _ALL))
        size = common if size is None else size
        color = colored if color is None else color
    images, labels, reading = _decode(path, files, size, 3 if color else 1, skip_bad)
    used = set(labels.tolist())
    for label in dict.fromkeys(label for _, label in files):
        if label not in used:
            raise InputError(f"{path} has no usable image of the class {classes[label]!r}: add one")
    return ImageSet(images, labels, classes, name=str(path), split=split, reading=reading)


def _decode(
    path: Path, files: Files, size: tuple[int, int], channels: int, skip_bad: bool
) -> tuple[Tensor, Tensor, Reading]:
    """Return the images of one size, their labels, and how they were read."""
    shape = (len(files), channels, *size)
    check_memory(shape, 1, path)
    images = np.empty(shape, np.uint8)
    labels: list[int] = []
    sizes: Counter[tuple[int, int]] = Counter()
    skipped = []
    for file, label in files:
        try:
            original, images[len(labels)] = _fit(file, channels, size)
        except FileFormatError:
            if not skip_bad:
                raise _bad_files(path) from None
            skipped.append(str(file))
            continue
        sizes[original] += 1
        labels.append(label)
    reading = Reading(dict(sizes.most_common()), tuple(skipped))
    return torch.from_numpy(images[: len(labels)]), torch.tensor(labels), reading


def _fit(
    file: Path, channels: int, size: tuple[int, int]
) -> tuple[tuple[int, int], NDArray[np.uint8]]:
    """Return an image's own size, and the image as ``[c h w]`` of this size."""
    pixels = channels_first(_read(file, decode_image))[None]
    fitted = cover_and_crop(with_channels(pixels, channels), size)[0]
    return (pixels.shape[2], pixels.shape[3]), fitted.numpy()


def check_memory(shape: Sequence[int], item_bytes: int, path: Path) -> None:
    """Refuse images that would take more than three quarters of the machine's memory."""
    needed = prod(shape) * item_bytes
    if not fits_in_memory(needed):
        raise InputError(
            f"{path} has {shape[0]:,} images, which take {needed / 2**30:.0f} GiB of memory at "
            f"{'x'.join(map(str, shape[1:]))}: make them smaller, such as --set resize=64"
        )


def _bad_files(path: Path) -> FileFormatError:
    """Return one error that lists every file of a folder that is no image."""
    bad = []
    for file in _all_files(path):
        try:
            _read(file, decode_image)
        except FileFormatError as error:
            bad.append(f"{file} cannot be used: {error}")
    listed = ", ".join(bad[:MAX_LISTED])
    if len(bad) > MAX_LISTED:
        listed += f" and {len(bad) - MAX_LISTED} more"
    return FileFormatError(
        f"{listed}; convert to usual 8-bit images, remove them, or go on without them: --skip-bad"
    )


def _list_split(path: Path, split: str) -> tuple[Path, tuple[str, ...], list[tuple[Path, int]]]:
    """Return the folder of train, its classes, and the images of a split with their labels."""
    if not path.is_dir():
        raise MissingFileError(f"{path} is not a folder; give a folder with one folder per class")
    train, base, remainders = _choose(path, split)
    classes = _classes(train)
    if not classes:
        raise MissingFileError(
            f"{train} has no folders with images; give a folder with one folder per class"
        )
    if foreign := [name for name in _classes(base) if name not in classes]:
        raise InputError(f"{base} has the class {foreign[0]!r}, which {train} lacks; add it there")
    files = _images(base, classes, remainders)
    if not files:
        raise MissingFileError(f"{base} has no images in its {split} split")
    return train, classes, files


def folder_parts(path: Path) -> list[str]:
    """Return the splits that a folder holds as folders, train first; none if they are classes."""
    inside = [name for name in SPLITS if (path / name).is_dir()]
    parts = "train" in inside and len(inside) > 1 and not any(map(_is_image, path.iterdir()))
    return inside if parts else []


def describe_folder(path: Path) -> dict[str, Any]:
    """Return class names, number of images and a hash of file names and sizes, or an empty dict."""
    files = _all_files(path)
    listed = "".join(f"{f.relative_to(path).as_posix()}\0{_size(f)}\0" for f in files)
    digest = hashlib.sha256(os.fsencode(listed)).hexdigest()
    if not files:
        return {}
    classes = _classes(_bases(path)[0])
    return {"classes": list(classes), "images": len(files), "files_sha256": digest}


def _bases(path: Path) -> list[Path]:
    """Return the folders that hold the class folders, that of train first."""
    return [path / part for part in folder_parts(path)] or [path]


def _all_files(path: Path) -> list[Path]:
    """Return the image files of every split."""
    bases = _bases(path)
    classes = _classes(bases[0])
    return [file for base in bases for file, _ in _images(base, classes, _ALL)]


def _check_size(size: object) -> None:
    if size is None:
        return
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise ValueError(f"size must be (height, width), not {size!r}")
    check_whole("the height in size", size[0], least=1)
    check_whole("the width in size", size[1], least=1)


def _classes(base: Path) -> tuple[str, ...]:
    """Return the names of the class folders, none if no folder has images; refuse a mixture."""
    folders = [f for f in sorted(base.iterdir()) if f.is_dir() and not f.name.startswith(".")]
    empty = [folder for folder in folders if not any(map(_is_image, folder.iterdir()))]
    if empty and len(empty) < len(folders):
        kinds = ", ".join(sorted(SUFFIXES))
        raise InputError(f"{empty[0]} has no images ({kinds}); add some or remove the folder")
    return () if empty else tuple(sorted(folder.name for folder in folders))


def _images(
    base: Path, classes: Sequence[str], remainders: Container[int]
) -> list[tuple[Path, int]]:
    """Return images and labels; ``remainders`` selects by rank modulo 10 within a class."""
    files = []
    for label, name in enumerate(classes):
        if (base / name).is_dir():
            entries = sorted(file for file in (base / name).iterdir() if _is_image(file))
            files += [(file, label) for rank, file in enumerate(entries) if rank % 10 in remainders]
    return files


def _survey(path: Path, files: Files) -> tuple[tuple[int, int], bool]:
    """Return the most common size and whether any image has color, from the headers."""
    sizes: Counter[tuple[int, int]] = Counter()
    colored = False
    for file, _ in files:
        with suppress(FileFormatError):  # the decoder lists all of them
            size, color = _read(file, measure_image)
            sizes[size] += 1
            colored |= color
    if not sizes:
        raise _bad_files(path)
    return sizes.most_common(1)[0][0], colored


def _choose(path: Path, split: str) -> tuple[Path, Path, Container[int]]:
    """Return the folder of train, the folder of the split, and which files of it to take."""
    if inside := folder_parts(path):
        if split in inside:
            return path / "train", path / split, _ALL
        if "validation" in inside or split not in ("fit", "validation"):
            raise InputError(f"{path} has no split {split!r}; it has {', '.join(inside)}")
        path = path / "train"
    match split:
        case "train":
            return path, path, _ALL
        case "fit":
            return path, path, _FIT
        case "validation":
            return path, path, _VALIDATION
    raise InputError(
        f"{path} has no split {split!r}; it has train, fit and validation, and test if it holds "
        "the folders train and test with the classes inside them"
    )


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _size(path: Path) -> int:
    """Return the size of a file in bytes; -1 if it cannot be opened."""
    try:
        return path.stat().st_size
    except OSError:
        return -1


def _read(path: Path, parse: Callable[[IO[bytes]], T]) -> T:
    """Parse a file; raise FileFormatError with the cause alone if it cannot be used."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError("it is not a regular file")
        with path.open("rb") as file:
            return parse(file)
    except OSError as error:
        raise FileFormatError(str(error.strerror)) from None
