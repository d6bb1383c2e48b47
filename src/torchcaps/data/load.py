"""Loading of a data set by its name, or of the user's own images by path."""

from pathlib import Path

from torchcaps.data.dataset import ImageSet
from torchcaps.data.description import Description
from torchcaps.data.files import DataFolder
from torchcaps.data.generated import Generated
from torchcaps.data.image_folder import load_folder
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
    """Return whether a name is meant as the path of a folder."""
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
        mine = load("./flowers")                       # a folder per class, see `load_folder`

    ``SETS`` and ``torchcaps data list`` show every name, `find` returns the facts of one set.

    ``"train"`` and ``"test"`` are the published splits. ``"fit"`` and ``"validation"`` divide
    ``"train"``: validation is its last tenth, as in Choi et al. 2019. Train on ``"fit"`` if you
    choose on ``"validation"``: they never overlap, but ``"train"`` contains both. affNIST and
    strokes have validation images of their own; there ``"fit"`` is all of ``"train"``. SVHN also
    has ``"extra"``. Sets made from MNIST use the digits of the same split.

    Args:
        name: name of a set, or the path of a folder with one folder of images per class.
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
        return load_folder(name, split)
    description = find(name)
    if split not in description.counts:
        known = ", ".join(description.counts)
        raise InputError(f"{description.name} has no split {split!r}; it has {known}")
    return description.read(description, split, _open_folder(root, download=download))


def missing_files(name: str, root: str | Path | None = None) -> list[str]:
    """Return the files of a set's train and test splits that are not in the data folder."""
    files, folder = find(name).files, _open_folder(root)
    required = [*files.get("train", ()), *files.get("test", ())]
    return [file.paths[0] for file in required if folder.find(file) is None]


def _open_folder(root: str | Path | None, *, download: bool = True) -> DataFolder:
    known = {file for one in SETS.values() for files in one.files.values() for file in files}
    return DataFolder(root, known=known, download=download)
