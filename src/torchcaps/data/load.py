"""Loading of a data set by its name, or of the user's own images by path."""

from pathlib import Path
from typing import Any

from torchcaps.data.arrays import array_parts, describe_arrays, is_arrays, load_arrays
from torchcaps.data.dataset import ImageSet
from torchcaps.data.description import Description
from torchcaps.data.files import DataFolder
from torchcaps.data.generated import Generated
from torchcaps.data.image_folder import describe_folder, folder_parts, load_folder
from torchcaps.data.sets import SETS
from torchcaps.errors import InputError, suggest


def find(name: str) -> Description:
    """Return the description of a data set; hyphens, underscores and capitals do not matter."""
    if not isinstance(name, str):
        raise ValueError(f"a data set is named by a string such as 'mnist', not {name!r}")
    for key, description in SETS.items():
        if _normalize(key) == _normalize(name):
            return description
    hint = suggest(name.lower().replace("-", "_"), SETS)
    raise InputError(f"there is no data set {name!r} (write a folder as ./{name}): {hint}")


def _normalize(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def is_path(name: str) -> bool:
    """Return whether a name is meant as the path of a folder or file."""
    return "/" in name or "\\" in name or name.startswith("~")


def load(
    name: str | Path,
    split: str = "train",
    *,
    root: str | Path | None = None,
    download: bool = True,
) -> ImageSet | Generated:
    """Load a data set.

        train = load("cifar10")
        train.images, train.labels, train.classes      # uint8 [n c h w], long [n], names
        mine = load("./flowers")                       # a folder per class, see `load_own`

    ``SETS`` and ``torchcaps data list`` show every name, `find` returns the facts of one set.

    ``"train"`` and ``"test"`` are the published splits. ``"fit"`` and ``"validation"`` divide
    ``"train"``: validation is its last tenth, as in Choi et al. 2019. Train on ``"fit"`` if you
    choose on ``"validation"``: they never overlap, but ``"train"`` contains both. affNIST and
    strokes have validation images of their own; there ``"fit"`` is all of ``"train"``. SVHN also
    has ``"extra"``. Sets made from MNIST use the digits of the same split.

    Args:
        name: name of a set, or the path of your own images; see :func:`load_own`.
        split: the split to load.
        root: the data folder, in torchvision's layout or filled by downloads; by default
            ``TORCHCAPS_DATA``, else the platform's cache folder.
        download: whether to fetch missing files.

    Returns:
        An `ImageSet`, or a `Generated` set that draws its samples on demand.

    Example:
        >>> tc.data.load("strokes", "test")
        Strokes(test: 10000 images of 1x28x28, 10 classes, drawn on cpu)
    """
    if isinstance(name, Path) or (isinstance(name, str) and is_path(name)):
        return load_own(name, split)
    description = find(name)
    if split not in description.counts:
        known = ", ".join(description.counts)
        raise InputError(f"{description.name} has no split {split!r}; it has {known}")
    return description.read(description, split, _open_folder(root, download=download))


def load_own(
    path: str | Path,
    split: str = "train",
    *,
    size: tuple[int, int] | None = None,
    channels: int | None = None,
    skip_bad: bool = False,
) -> ImageSet:
    """Load the user's own images: a folder per class, or arrays that NumPy has saved.

    Args:
        path: a folder as :func:`load_folder` reads it, or arrays as :func:`load_arrays` reads them.
        split: ``"train"``, ``"fit"``, ``"validation"`` or ``"test"``.
        size: ``(height, width)`` of the result; None for that of the training images.
        channels: channels of the result; None for those of the training images. A folder has
            gray images or images in color.
        skip_bad: leave out files of a folder that are no images.
    """
    path = Path(path).expanduser()
    if is_arrays(path):
        return load_arrays(path, split, size=size, channels=channels)
    color = None if channels is None else {1: False, 3: True}.get(channels)
    return load_folder(path, split, size=size, color=color, skip_bad=skip_bad)


def own_parts(path: Path) -> list[str]:
    """Return the splits that own images have, train first; none if there is one part."""
    return array_parts(path) if is_arrays(path) else folder_parts(path)


def describe_own(path: Path) -> dict[str, Any]:
    """Return class names, number of images and a hash of own images; nothing where none are."""
    if is_arrays(path):
        return describe_arrays(path)
    return describe_folder(path) if path.is_dir() else {}


def missing_files(name: str, root: str | Path | None = None) -> list[str]:
    """Return the files of a set's train and test splits that are not in the data folder."""
    files, folder = find(name).files, _open_folder(root)
    required = [*files.get("train", ()), *files.get("test", ())]
    return [file.paths[0] for file in required if folder.find(file) is None]


def _open_folder(root: str | Path | None, *, download: bool = True) -> DataFolder:
    known = {file for one in SETS.values() for files in one.files.values() for file in files}
    return DataFolder(root, known=known, download=download)
