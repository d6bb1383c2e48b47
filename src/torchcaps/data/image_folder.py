"""The user's own images: one folder per class."""

import hashlib
import os
import stat
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps.checks import check_whole
from torchcaps.data.dataset import ImageSet
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.errors import InputError, MissingFileError
from torchcaps.preprocessing.picture import decode_image, measure_image

SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pbm", ".tif", ".tiff")
)
SPLITS = ("train", "validation", "test")

_ALL, _FIT, _VALIDATION = range(10), range(9), (9,)

T = TypeVar("T")


def load_folder(
    path: str | Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    color: bool | None = None,
) -> ImageSet:
    """Read a folder that has one subfolder of images per class.

    The class names are the subfolders' names in sorted order. A subfolder without images is an
    error; one whose name begins with a dot is ignored. If the folder holds ``train`` and ``test``
    (and perhaps ``validation``) with the classes inside them, these are the splits. Otherwise
    ``"train"`` is everything, ``"validation"`` every tenth image of each class in sorted order and
    ``"fit"`` the others. Classes, size and color are those of ``train`` in every split.

    Images are rotated upright by their EXIF data, transparent images get a black background, and
    the first frame of an animation counts.

    Args:
        path: the folder; ``~`` is the home folder.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result; by default the most common size in ``train``.
            Images of another size are resized (bilinear, without keeping the aspect ratio).
        color: True for three channels, False for one; by default color if any image in ``train``
            has color. A palette of grays is not color.
    """
    path = Path(path).expanduser()
    _check_size(size)
    train, classes, files = _list_split(path, split)
    if size is None or color is None:
        common, colored = _survey([file for file, _ in _images(train, classes, _ALL)])
        size = common if size is None else size
        color = colored if color is None else color
    images = np.empty((len(files), 3 if color else 1, *size), np.uint8)
    for number, (file, _) in enumerate(files):
        images[number] = _fit(_read(file, decode_image), size, color)
    return ImageSet(
        images=torch.from_numpy(images),
        labels=torch.tensor([label for _, label in files]),
        classes=classes,
        name=str(path),
        split=split,
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
    bases = [path / part for part in folder_parts(path)] or [path]
    classes = _classes(bases[0])
    files = [file for base in bases for file, _ in _images(base, classes, _ALL)]
    listed = "".join(f"{f.relative_to(path).as_posix()}\0{_size(f)}\0" for f in files)
    digest = hashlib.sha256(os.fsencode(listed)).hexdigest()
    if not files:
        return {}
    return {"classes": list(classes), "images": len(files), "files_sha256": digest}


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


def _survey(files: Sequence[Path]) -> tuple[tuple[int, int], bool]:
    """Return the most common size and whether any image has color."""
    measured = [_read(file, measure_image) for file in files]
    size = Counter(size for size, _ in measured).most_common(1)[0][0]
    return size, any(color for _, color in measured)


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
    with _usable(path):
        return path.stat().st_size


def _read(path: Path, parse: Callable[[IO[bytes]], T]) -> T:
    with _usable(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError("it is not a regular file")
        with path.open("rb") as file:
            return parse(file)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Add the path and the remedy to an error of a file."""
    try:
        yield
    except (FileFormatError, OSError) as error:
        cause = error.strerror if isinstance(error, OSError) else error
        raise FileFormatError(
            f"{path} cannot be used: {cause}; convert it to a usual 8-bit image or remove it"
        ) from None


def _fit(array: NDArray[np.uint8], size: tuple[int, int], color: bool) -> NDArray[np.uint8]:
    """Return one image as ``[c h w]`` of the common size and number of channels."""
    from PIL import Image

    image = Image.fromarray(array).convert("RGB" if color else "L")
    if array.shape[:2] != tuple(size):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if color else pixels[None]
