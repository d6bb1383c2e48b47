"""`load`: a data set by name, or the user's own by path."""

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from torchcaps.data.dataset import ImageSet
from torchcaps.data.files import data_folder, find_file, load_files
from torchcaps.data.generated import Generated
from torchcaps.data.image_folder import load_folder
from torchcaps.data.sets.canonical import DIGITS, SPECS
from torchcaps.data.sets.expanded import AffnistStyle, ExpandedMNIST
from torchcaps.data.sets.multimnist import DiverseMultiMNIST, MultiMNIST
from torchcaps.data.sets.strokes import Strokes
from torchcaps.errors import InputError


@dataclass(frozen=True)
class Entry:
    """A name `load` knows.

    Attributes:
        name: as `load` takes it.
        about: one line.
        source: ``"files"``, ``"made from mnist"`` or ``"built in"``.
        counts: images in each split.
        shape: ``(c, h, w)``.
        mean: of each channel of the training images in 0..1; empty where it is not published.
        std: likewise.
        homepage: where the files come from.
        classes: name of each label.
    """

    name: str
    about: str
    source: str
    counts: dict[str, int]
    shape: tuple[int, int, int]
    mean: tuple[float, ...]
    std: tuple[float, ...]
    homepage: str = ""
    classes: tuple[str, ...] = DIGITS


_FROM_MNIST: dict[str, tuple[Callable[[ImageSet], Generated], Entry]] = {
    make.name: (make, Entry(make.name, about, "made from mnist", counts, shape, mean, std))
    for counts in [{"train": 60_000, "fit": 54_000, "validation": 6_000, "test": 10_000}]
    for make, about, shape, mean, std in (
        (
            MultiMNIST,
            "two overlapping digits, 36x36, with both as targets",
            (1, 36, 36),
            (0.1391,),
            (0.3223,),
        ),
        (
            DiverseMultiMNIST,
            "one digit (1 in 6) or two overlapping ones, 36x36",
            (1, 36, 36),
            (0.1292,),
            (0.3121,),
        ),
        (ExpandedMNIST, "a digit anywhere on 40x40", (1, 40, 40), (0.0640,), (0.2253,)),
        (
            AffnistStyle,
            "digits under affNIST's ranges of affine maps, 40x40; not affNIST",
            (1, 40, 40),
            (0.0640,),
            (0.2126,),
        ),
    )
}
_STROKES = {"train": 60_000, "validation": 6_000, "test": 10_000}


def _canonical_entry(name: str) -> Entry:
    spec = SPECS[name]
    train = spec.counts["train"]
    held_out = spec.counts.get("validation", train // 10)
    fit = train if "validation" in spec.counts else train - held_out
    counts = {"train": train, "fit": fit, "validation": held_out, **spec.counts}
    about = f"{spec.title}, {len(spec.classes)} classes"
    facts = (spec.shape, spec.mean, spec.std, spec.homepage, spec.classes)
    return Entry(name, about, "files", counts, *facts)


CATALOGUE: dict[str, Entry] = {
    **{name: _canonical_entry(name) for name in SPECS},
    **{name: entry for name, (_, entry) in _FROM_MNIST.items()},
    "strokes": Entry(
        "strokes",
        "digits drawn from vector strokes, with known poses",
        "built in",
        {**_STROKES, "fit": _STROKES["train"]},
        (1, 28, 28),
        (0.1099,),
        (0.2887,),
    ),
    "strokes_overlapping": Entry(
        "strokes_overlapping",
        "two overlapping strokes digits with known poses and masks",
        "built in",
        {**_STROKES, "fit": _STROKES["train"]},
        (1, 36, 36),
        (0.1848,),
        (0.3688,),
    ),
}


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "")


def find(name: str) -> Entry:
    """The entry of that name; hyphens, underscores and capitals do not matter."""
    if not isinstance(name, str):
        raise ValueError(f"a data set is named by a string such as 'mnist', not {name!r}")
    for key, entry in CATALOGUE.items():
        if _plain(key) == _plain(name):
            return entry
    near = difflib.get_close_matches(name.lower().replace("-", "_"), CATALOGUE, n=1)
    hint = f"did you mean {near[0]!r}" if near else f"there are {', '.join(CATALOGUE)}"
    raise InputError(f"there is no data set {name!r}; {hint}, or give the path of a folder")


def is_path(name: str) -> bool:
    """Whether a name is meant as the path of a folder."""
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

    | name | train | test | image | mean | std |
    |---|---|---|---|---|---|
    | mnist | 60,000 | 10,000 | 1x28x28 | 0.1307 | 0.3081 |
    | fashion_mnist | 60,000 | 10,000 | 1x28x28 | 0.2860 | 0.3530 |
    | cifar10 | 50,000 | 10,000 | 3x32x32 | 0.4914 0.4822 0.4465 | 0.2470 0.2435 0.2616 |
    | cifar100 | 50,000 | 10,000 | 3x32x32 | 0.5071 0.4865 0.4409 | 0.2673 0.2564 0.2762 |
    | svhn | 73,257 | 26,032 | 3x32x32 | 0.4377 0.4438 0.4728 | 0.1980 0.2010 0.1970 |
    | smallnorb | 24,300 | 24,300 | 2x96x96 | - | - |
    | affnist | 1,600,000 | 320,000 | 1x40x40 | - | - |
    | multimnist | 60,000 | 10,000 | 1x36x36 | 0.1391 | 0.3223 |
    | diverse_multimnist | 60,000 | 10,000 | 1x36x36 | 0.1292 | 0.3121 |
    | expanded_mnist | 60,000 | 10,000 | 1x40x40 | 0.0640 | 0.2253 |
    | affnist_style | 60,000 | 10,000 | 1x40x40 | 0.0640 | 0.2126 |
    | strokes | 60,000 | 10,000 | 1x28x28 | 0.1099 | 0.2887 |
    | strokes_overlapping | 60,000 | 10,000 | 1x36x36 | 0.1848 | 0.3688 |

    Mean and standard deviation are of the training images in 0..1.

    Splits. ``"train"`` and ``"test"`` are the published ones, whole. ``"fit"`` and
    ``"validation"`` divide ``"train"``: validation is its last tenth, as Choi et al. 2019 split
    it, fit the rest. Train on ``"fit"`` when you choose on ``"validation"``: the two never
    overlap, but ``"train"`` contains both. affNIST has validation files of its own and strokes
    validation samples of their own; there ``"fit"`` is all of ``"train"``. SVHN also has
    ``"extra"``. Sets made from MNIST use the digits of the split they are asked for.

    Args:
        name: one of the above, or the path of a folder with one folder per class.
        split: see above.
        root: the data folder, in torchvision's layout or downloaded to; by default
            ``TORCHCAPS_DATA``, else the platform's cache folder.
        download: fetch missing files.

    Returns:
        An `ImageSet`, or a `Generated` set that draws its samples when asked.
    """
    if isinstance(name, Path) or (isinstance(name, str) and is_path(name)):
        return load_folder(name, split)
    entry = find(name)
    if split not in entry.counts:
        raise InputError(f"{entry.name} has no split {split!r}; it has {', '.join(entry.counts)}")
    if entry.name in SPECS:
        return load_files(SPECS[entry.name], split, root=root, download=download)
    if entry.name in _FROM_MNIST:
        digits = load_files(SPECS["mnist"], split, root=root, download=download)
        return _FROM_MNIST[entry.name][0](digits)
    overlapping = entry.name == "strokes_overlapping"
    return Strokes(
        entry.counts[split],
        size=entry.shape[1],
        overlapping=overlapping,
        split="train" if split == "fit" else split,
    )


def missing_files(name: str, root: str | Path | None = None) -> list[str]:
    """The files a set needs for its train and test splits that are not in the data folder."""
    entry = find(name)
    if entry.source == "built in":
        return []
    spec = SPECS[entry.name if entry.name in SPECS else "mnist"]
    folder = data_folder(root)
    return [
        file.paths[0]
        for split in ("train", "test")
        for file in spec.files[split]
        if find_file(spec, file, folder) is None
    ]
