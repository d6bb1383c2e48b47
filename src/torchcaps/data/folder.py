"""The user's own images: one folder per class."""

import stat
import warnings
from collections import Counter
from pathlib import Path
from typing import IO

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps.data.dataset import ImageSet
from torchcaps.data.readers.bytes import FileFormatError

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pbm", ".tif", ".tiff")
)
SPLITS = ("train", "validation", "test")
MAX_PIXELS = 100_000_000


def load_folder(
    path: str | Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    colour: bool | None = None,
) -> ImageSet:
    """Read a folder that has one subfolder of images per class.

    The class names are the subfolders' names in sorted order. If the folder holds ``train`` and
    ``test`` (and perhaps ``validation``) with the classes inside them, these are the splits.
    Otherwise ``"train"`` is everything, ``"validation"`` every tenth image of each class in sorted
    order and ``"fit"`` the others.

    Args:
        path: the folder.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result. Images of another size are resized (bilinear, not
            keeping their proportions). By default the most common size among the images.
        colour: True for three channels, False for one; by default colour if any image has it.
    """
    path = Path(path)
    if not path.is_dir():
        raise FileNotFoundError(f"{path} is not a folder; give a folder with one folder per class")
    base, keep = _choose(path, split)
    classes = tuple(sorted(entry.name for entry in base.iterdir() if _is_class(entry)))
    if not classes:
        raise FileNotFoundError(
            f"{base} has no folders with images; give a folder with one folder per class"
        )
    files = []
    for label, name in enumerate(classes):
        entries = sorted(file for file in (base / name).iterdir() if _is_image(file))
        files += [(file, label) for rank, file in enumerate(entries) if keep(rank)]
    if not files:
        raise FileNotFoundError(f"{base} has no images in its {split} split")
    arrays = [_read(file) for file, _ in files]
    if colour is None:
        colour = any(array.ndim == 3 for array in arrays)
    if size is None:
        size = Counter(array.shape[:2] for array in arrays).most_common(1)[0][0]
    images = np.stack([_fit(array, size, colour) for array in arrays])
    return ImageSet(
        images=torch.from_numpy(images),
        labels=torch.tensor([label for _, label in files]),
        classes=classes,
        name=str(path),
        split=split,
    )


def decode_image(file: IO[bytes]) -> NDArray[np.uint8]:
    """Decode one image to ``[h w]`` (grey) or ``[h w 3]`` (colour)."""
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise FileFormatError(f"it has more than {MAX_PIXELS} pixels")
            grey = image.mode in ("1", "L", "LA", "I", "I;16", "F")
            if image.mode in ("I", "I;16", "F"):
                raise FileFormatError("it has more than 8 bits per pixel; convert it first")
            return np.asarray(image.convert("L" if grey else "RGB")).copy()
    except FileFormatError:
        raise
    except Exception as error:  # a decoder may raise anything on a hostile file
        raise FileFormatError(f"it is not a whole image ({type(error).__name__})") from None


def _choose(path: Path, split: str) -> "tuple[Path, _Keep]":
    inside = [name for name in SPLITS if (path / name).is_dir()]
    if "train" in inside and len(inside) > 1 and not any(map(_is_image, path.iterdir())):
        if split in inside:
            return path / split, _everything
        if "validation" in inside or split not in ("fit", "validation"):
            raise ValueError(f"{path} has no split {split!r}; it has {', '.join(inside)}")
        path = path / "train"
    match split:
        case "train":
            return path, _everything
        case "fit":
            return path, _not_every_tenth
        case "validation":
            return path, _every_tenth
    raise ValueError(
        f"{path} has no split {split!r}; it has train, fit and validation, and test if it holds "
        "the folders train and test with the classes inside them"
    )


class _Keep:
    def __init__(self, remainders: frozenset[int]) -> None:
        self.remainders = remainders

    def __call__(self, rank: int) -> bool:
        return rank % 10 in self.remainders


_everything = _Keep(frozenset(range(10)))
_every_tenth = _Keep(frozenset((9,)))
_not_every_tenth = _Keep(frozenset(range(9)))


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in SUFFIXES and not path.name.startswith(".")


def _is_class(path: Path) -> bool:
    return path.is_dir() and not path.name.startswith(".") and any(map(_is_image, path.iterdir()))


def _read(path: Path) -> NDArray[np.uint8]:
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError("it is not a regular file")
        with path.open("rb") as file:
            return decode_image(file)
    except FileFormatError as error:
        raise FileFormatError(f"{path} cannot be used: {error}; remove it from its class") from None


def _fit(array: NDArray[np.uint8], size: tuple[int, int], colour: bool) -> NDArray[np.uint8]:
    """One image as ``[c h w]`` of the common size and number of channels."""
    from PIL import Image

    image = Image.fromarray(array).convert("RGB" if colour else "L")
    if array.shape[:2] != tuple(size):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1).copy() if colour else pixels[None].copy()
