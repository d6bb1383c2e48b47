"""The user's own images: one folder per class."""

import hashlib
import os
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray

from torchcaps.checks import check_whole
from torchcaps.data.dataset import ImageSet
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.errors import InputError, MissingFileError

if TYPE_CHECKING:
    from PIL import Image

FORMATS = ("PNG", "JPEG", "BMP", "GIF", "WEBP", "PPM", "TIFF")
SUFFIXES = frozenset(
    (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".webp", ".pgm", ".ppm", ".pbm", ".tif", ".tiff")
)
SPLITS = ("train", "validation", "test")
MAX_PIXELS = 100_000_000

T = TypeVar("T")


def load_folder(
    path: str | Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    color: bool | None = None,
) -> ImageSet:
    """Read a folder that has one subfolder of images per class.

    The class names are the subfolders' names in sorted order; one without images is refused, and
    one whose name begins with a dot is passed over. If the folder holds ``train`` and
    ``test`` (and perhaps ``validation``) with the classes inside them, these are the splits.
    Otherwise ``"train"`` is everything, ``"validation"`` every tenth image of each class in sorted
    order and ``"fit"`` the others. Classes, size and color are those of ``train`` in every split.

    Images are turned upright as their EXIF data say, transparent ones lie on black, and of an
    animation the first frame counts. One image at a time is in memory beside the result.

    Args:
        path: the folder; ``~`` is the home folder.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result. Images of another size are resized (bilinear, not
            keeping their proportions). By default the most common size among train's images.
        color: True for three channels, False for one; by default color if any of train's images
            has it. A palette of grays is not color.
    """
    path = Path(path).expanduser()
    if not path.is_dir():
        raise MissingFileError(f"{path} is not a folder; give a folder with one folder per class")
    _check_size(size)
    train, base, keep = _choose(path, split)
    classes = _classes(train)
    if not classes:
        raise MissingFileError(
            f"{train} has no folders with images; give a folder with one folder per class"
        )
    if foreign := [name for name in _classes(base) if name not in classes]:
        raise InputError(f"{base} has the class {foreign[0]!r}, which {train} lacks; add it there")
    files = _images(base, classes, keep)
    if not files:
        raise MissingFileError(f"{base} has no images in its {split} split")
    if size is None or color is None:
        common, colored = _survey([file for file, _ in _images(train, classes, _everything)])
        size = common if size is None else size
        color = colored if color is None else color
    images = np.empty((len(files), 3 if color else 1, *size), np.uint8)
    for number, (file, _) in enumerate(files):
        images[number] = _fit(_opened(file, decode_image), size, color)
    return ImageSet(
        images=torch.from_numpy(images),
        labels=torch.tensor([label for _, label in files]),
        classes=classes,
        name=str(path),
        split=split,
    )


def folder_parts(path: Path) -> list[str]:
    """The splits a folder holds as folders, train first; none if its folders are classes."""
    inside = [name for name in SPLITS if (path / name).is_dir()]
    parts = "train" in inside and len(inside) > 1 and not any(map(_is_image, path.iterdir()))
    return inside if parts else []


def describe_folder(path: Path) -> dict[str, Any]:
    """Class names, number of images, and a hash of their names and sizes; empty without images.

    No image is opened.
    """
    bases = [path / part for part in folder_parts(path)] or [path]
    classes = _classes(bases[0])
    files = [file for base in bases for file, _ in _images(base, classes, _everything)]
    listed = "".join(f"{f.relative_to(path).as_posix()}\0{_size(f)}\0" for f in files)
    digest = hashlib.sha256(os.fsencode(listed)).hexdigest()
    found = {"classes": list(classes), "images": len(files), "files_sha256": digest}
    return found if files else {}


def decode_image(file: IO[bytes]) -> NDArray[np.uint8]:
    """Decode one image, upright and on black, to ``[h w]`` (gray) or ``[h w 3]`` (color)."""
    from PIL import Image

    with _image(file) as image:
        mode, turn = "L" if _is_gray(image) else "RGB", _turn(image)
        if image.has_transparency_data:
            shown = image.convert("RGBA")
            image = Image.alpha_composite(Image.new("RGBA", shown.size, (0, 0, 0, 255)), shown)
        image = image.convert(mode)
        return np.array(image if turn is None else image.transpose(turn))


def measure_image(file: IO[bytes]) -> tuple[tuple[int, int], bool]:
    """Height and width of the upright image and whether it has color, from its header."""
    with _image(file) as image:
        sideways = _turn(image) in _SIDEWAYS
        height, width = image.size if sideways else image.size[::-1]
        return (height, width), not _is_gray(image)


@contextmanager
def _image(file: IO[bytes]) -> "Iterator[Image.Image]":
    from PIL import Image

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            image = Image.open(file, formats=FORMATS)
            if image.width * image.height > MAX_PIXELS:
                raise FileFormatError(f"it has more than {MAX_PIXELS} pixels")
            if image.mode in ("I", "F") or image.mode.startswith("I;16"):
                raise FileFormatError("it has more than 8 bits per channel")
            yield image
    except FileFormatError:
        raise
    except Exception as error:  # a decoder may raise anything on a hostile file
        raise FileFormatError(f"it is not a whole image ({type(error).__name__})") from None


def _is_gray(image: "Image.Image") -> bool:
    if image.palette is None or image.mode not in ("P", "PA"):
        return image.mode in ("1", "L", "LA", "La")
    order, data = image.palette.getdata()
    if order.endswith(";L"):
        third = len(data) // 3
        red, green, blue = (bytes(data[i * third : (i + 1) * third]) for i in range(3))
    else:
        red, green, blue = (bytes(data[i :: len(order)]) for i in range(3))
    return red == green == blue


# Pillow's numbers for what undoes each orientation of the EXIF standard
_TURNS = {2: 0, 3: 3, 4: 1, 5: 5, 6: 4, 7: 6, 8: 2}
_SIDEWAYS = (5, 4, 6, 2)
_ORIENTATION = 0x0112


def _turn(image: "Image.Image") -> "Image.Transpose | None":
    """What makes the image upright, from its header; damaged EXIF data count as none."""
    from PIL import Image

    if image.format == "TIFF":  # Pillow turns these itself
        return None
    try:
        # the PNG reader's own method would decode the image
        orientation = Image.Image.getexif(image).get(_ORIENTATION)
    except Exception:
        return None
    return Image.Transpose(_TURNS[orientation]) if orientation in _TURNS else None


def _check_size(size: object) -> None:
    if size is None:
        return
    if not isinstance(size, tuple | list) or len(size) != 2:
        raise ValueError(f"size must be (height, width), not {size!r}")
    check_whole("the height in size", size[0], least=1)
    check_whole("the width in size", size[1], least=1)


def _classes(base: Path) -> tuple[str, ...]:
    """Names of the class folders; none if no folder has images, refused if only some have."""
    folders = [f for f in sorted(base.iterdir()) if f.is_dir() and not f.name.startswith(".")]
    empty = [folder for folder in folders if not any(map(_is_image, folder.iterdir()))]
    if empty and len(empty) < len(folders):
        kinds = ", ".join(sorted(SUFFIXES))
        raise InputError(f"{empty[0]} has no images ({kinds}); add some or take the folder away")
    return () if empty else tuple(sorted(folder.name for folder in folders))


def _images(base: Path, classes: Sequence[str], keep: "_Keep") -> list[tuple[Path, int]]:
    """The images of these classes with their labels."""
    files = []
    for label, name in enumerate(classes):
        if (base / name).is_dir():
            entries = sorted(file for file in (base / name).iterdir() if _is_image(file))
            files += [(file, label) for rank, file in enumerate(entries) if keep(rank)]
    return files


def _survey(files: Sequence[Path]) -> tuple[tuple[int, int], bool]:
    """The most common size and whether any image has color."""
    found = [_opened(file, measure_image) for file in files]
    size = Counter(size for size, _ in found).most_common(1)[0][0]
    return size, any(color for _, color in found)


def _choose(path: Path, split: str) -> "tuple[Path, Path, _Keep]":
    """The folder that decides classes, size and color, the split's own, and which files."""
    if inside := folder_parts(path):
        if split in inside:
            return path / "train", path / split, _everything
        if "validation" in inside or split not in ("fit", "validation"):
            raise InputError(f"{path} has no split {split!r}; it has {', '.join(inside)}")
        path = path / "train"
    match split:
        case "train":
            return path, path, _everything
        case "fit":
            return path, path, _not_every_tenth
        case "validation":
            return path, path, _every_tenth
    raise InputError(
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


def _size(path: Path) -> int:
    with _usable(path):
        return path.stat().st_size


def _opened(path: Path, read: Callable[[IO[bytes]], T]) -> T:
    with _usable(path):
        if not stat.S_ISREG(path.stat().st_mode):
            raise FileFormatError("it is not a regular file")
        with path.open("rb") as file:
            return read(file)


@contextmanager
def _usable(path: Path) -> Iterator[None]:
    """Name the file that cannot be read."""
    try:
        yield
    except (FileFormatError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise FileFormatError(
            f"{path} cannot be used: {why}; convert it to a usual 8-bit image or remove it"
        ) from None


def _fit(array: NDArray[np.uint8], size: tuple[int, int], color: bool) -> NDArray[np.uint8]:
    """One image as ``[c h w]`` of the common size and number of channels."""
    from PIL import Image

    image = Image.fromarray(array).convert("RGB" if color else "L")
    if array.shape[:2] != tuple(size):
        image = image.resize((size[1], size[0]), Image.Resampling.BILINEAR)
    pixels = np.asarray(image)
    return pixels.transpose(2, 0, 1) if color else pixels[None]
