"""The canonical sets: from files that are there, or are fetched, to tensors."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from math import prod
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from torchcaps.data.dataset import ImageSet
from torchcaps.data.readers.bytes import FileFormatError, gunzip, matches, naming, read_file
from torchcaps.data.readers.cifar import read_cifar_binary, read_cifar_pickle
from torchcaps.data.readers.idx import read_idx
from torchcaps.data.readers.mat import MatValue, read_mat
from torchcaps.data.readers.norb import read_norb
from torchcaps.data.sets.canonical import SPECS, DataFile, Spec
from torchcaps.errors import InputError, MissingFileError

_OVERHEAD = 1 << 24
_UNPACKED = 1 << 26

Columns = dict[str, Tensor]


def data_folder(root: str | Path | None = None) -> Path:
    """Where data files lie: ``root``, else ``TORCHCAPS_DATA``, else the platform's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if named := os.environ.get("TORCHCAPS_DATA"):
        return Path(named).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torchcaps"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "torchcaps" / "Cache"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "torchcaps"


def load_files(
    spec: Spec, split: str, *, root: str | Path | None = None, download: bool = True
) -> ImageSet:
    """Read one split of a canonical set; see `torchcaps.data.load`."""
    stored = split if split in spec.counts or split not in ("fit", "validation") else "train"
    if stored not in spec.counts:
        known = dict.fromkeys((*spec.counts, "fit", "validation"))
        raise InputError(f"{spec.name} has no split {split!r}; it has {', '.join(known)}")
    folder = data_folder(root)
    columns = _read_split(spec, stored, folder, download)
    whole = ImageSet(
        images=columns.pop("images"),
        labels=columns.pop("labels"),
        classes=spec.classes,
        name=spec.name,
        split=stored,
        annotations=columns,
    )
    if split == stored or "validation" in spec.counts:
        return whole
    positions = torch.arange(len(whole))
    first = len(whole) - len(whole) // 10
    return whole.take(positions[:first] if split == "fit" else positions[first:], split=split)


def _read_split(spec: Spec, split: str, folder: Path, download: bool) -> Columns:
    files = spec.files[split]
    paths = [_locate(spec, file, folder, download) for file in files]
    parts = _READERS[spec.reader](spec, split, files, paths, folder)
    columns = {
        name: torch.cat([part[name] for part in parts]) if len(parts) > 1 else parts[0][name]
        for name in parts[0]
    }
    images, labels = columns["images"], columns["labels"]
    expected = (spec.counts[split], *spec.shape)
    if tuple(images.shape) != expected or len(labels) != len(images):
        raise FileFormatError(
            f"{paths[0].parent} cannot be used: {spec.name}'s {split} split should be images of "
            f"shape {list(expected)} but is {list(images.shape)} with {len(labels)} labels; put "
            "the original files there"
        )
    if len(labels) and not 0 <= int(labels.min()) <= int(labels.max()) < len(spec.classes):
        raise FileFormatError(
            f"{paths[0].parent} cannot be used: {spec.name} has labels outside 0.."
            f"{len(spec.classes) - 1}; put the original files there"
        )
    return columns


def find_file(spec: Spec, file: DataFile, folder: Path) -> Path | None:
    """Where the file lies; one of the same name that is another set's is passed over."""
    for path in file.paths:
        if (folder / path).is_file() and not _is_foreign(spec, path, folder):
            return folder / path
    return None


def _is_foreign(spec: Spec, path: str, folder: Path) -> bool:
    """Whether a file that several sets may have in this place is another set's."""
    others = [
        dict(zip(file.paths, file.hashes, strict=True))
        for other in SPECS.values()
        if other.name != spec.name
        for files in other.files.values()
        for file in files
        if path in file.paths
    ]
    if not others or (folder / path).stat().st_size > _UNPACKED:
        return False
    data = (folder / path).read_bytes()
    return any(_genuine(data, path, known, limit=_UNPACKED) is not None for known in others)


def _genuine(data: bytes, path: str, known: Mapping[str, str], *, limit: int) -> bytes | None:
    """The data, or what they unpack to, if their hash is known for this place; else None."""
    if known[path] and matches(data, known[path]):
        return data
    plain = known.get(path.removesuffix(".gz"), "")
    if not path.endswith(".gz") or not plain:
        return None
    try:
        unpacked = gunzip(data, limit=limit)
    except FileFormatError:
        return None
    return unpacked if matches(unpacked, plain) else None


def _locate(spec: Spec, file: DataFile, folder: Path, download: bool) -> Path:
    if found := find_file(spec, file, folder):
        return found
    if file.download is None:
        raise MissingFileError(
            f"{file.paths[0]} of {spec.title} is not in {folder}; get it from {spec.homepage} and "
            "put it there"
        )
    from torchcaps.data.download import fetch

    fetch(file.download, folder, needs=file.paths[0], limit=_limit(spec), offline=not download)
    return folder / file.paths[0]


def _limit(spec: Spec) -> int:
    """The most bytes one archive of the set can unpack to."""
    return 2 * max(spec.counts.values()) * (prod(spec.shape) + 64) + _OVERHEAD


def _bytes(file: DataFile, path: Path, folder: Path, *, limit: int) -> bytes:
    data = read_file(path, limit=limit + _OVERHEAD)
    known = dict(zip(file.paths, file.hashes, strict=True))
    place = path.relative_to(folder).as_posix()
    if not known[place]:
        return data
    genuine = _genuine(data, place, known, limit=limit + _OVERHEAD)
    if genuine is None:
        algorithm = known[place].partition(":")[0]
        raise FileFormatError(f"its {algorithm} differs from the published file's")
    return genuine


def _tensor(array: "np.ndarray[tuple[int, ...], np.dtype[np.generic]]") -> Tensor:
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def _idx(
    spec: Spec, split: str, files: Sequence[DataFile], paths: Sequence[Path], folder: Path
) -> list[Columns]:
    count = spec.counts[split]
    limits = (count * prod(spec.shape), count)
    arrays = []
    for file, path, limit, ndim in zip(files, paths, limits, (3, 1), strict=True):
        with naming(path):
            arrays.append(read_idx(_bytes(file, path, folder, limit=limit), ndim=ndim, limit=limit))
    return [{"images": _tensor(arrays[0][:, None]), "labels": _tensor(arrays[1]).long()}]


def _cifar(keys: tuple[str, ...]) -> "_Reader":
    def read(
        spec: Spec, split: str, files: Sequence[DataFile], paths: Sequence[Path], folder: Path
    ) -> list[Columns]:
        parts = []
        count = spec.counts[split] // len(files)
        for file, path in zip(files, paths, strict=True):
            with naming(path):
                data = _bytes(file, path, folder, limit=count * 3200)
                if path.suffix == ".bin":
                    images, raw = read_cifar_binary(data, label_bytes=len(keys), limit=count)
                    labels = _tensor(raw).long()
                else:
                    images, numbers = read_cifar_pickle(data, label_keys=keys, limit=count)
                    labels = _tensor(numbers)
            part = {"images": _tensor(images), "labels": labels[:, -1].contiguous()}
            if len(keys) > 1:
                part["coarse_labels"] = labels[:, 0].contiguous()
            parts.append(part)
        return parts

    return read


def _norb(
    spec: Spec, split: str, files: Sequence[DataFile], paths: Sequence[Path], folder: Path
) -> list[Columns]:
    count = spec.counts[split]
    arrays = []
    for file, path, width, ndim in zip(
        files, paths, (prod(spec.shape), 1, 4), (4, 1, 2), strict=True
    ):
        with naming(path):
            data = _bytes(file, path, folder, limit=4 * count * width)
            arrays.append(read_norb(data, ndim=ndim, limit=count * width))
    images, categories, info = arrays
    if info.shape != (len(categories), 4) or images.dtype != np.uint8:
        raise FileFormatError(f"{paths[2]} does not belong to {paths[0]}; put the originals there")
    names = ("instance", "elevation", "azimuth", "lighting")
    annotations = {name: _tensor(info[:, i]).long() for i, name in enumerate(names)}
    return [{"images": _tensor(images), "labels": _tensor(categories).long(), **annotations}]


def parse_svhn(data: bytes, *, limit: int) -> Columns:
    """Images ``[n 3 32 32]`` and labels 0..9 (the file's 10 is the digit 0)."""
    values = read_mat(data, names=("X", "y"), limit=limit * (3072 + 64) + _OVERHEAD)
    pixels, labels = _array(values, "X"), _array(values, "y").reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[:3] != (32, 32, 3):
        raise FileFormatError(f"its X has shape {pixels.shape}, not bytes of [32 32 3 n]")
    if len(labels) != pixels.shape[3] or not np.isin(labels, np.arange(1, 11)).all():
        raise FileFormatError("its y does not hold one label from 1 to 10 per image")
    return {
        "images": _tensor(pixels.transpose(3, 2, 0, 1)),
        "labels": _tensor(labels.astype(np.int64) % 10),
    }


def parse_affnist(data: bytes, *, limit: int) -> Columns:
    """Images ``[n 1 40 40]`` and labels of one affNIST file."""
    names = ("affNISTdata", "image", "label_int")
    values = read_mat(data, names=names, limit=limit * (1600 + 1024) + _OVERHEAD).get("affNISTdata")
    if not isinstance(values, dict):
        raise FileFormatError("it has no struct affNISTdata")
    pixels, labels = _array(values, "image"), _array(values, "label_int").reshape(-1)
    if pixels.dtype != np.uint8 or pixels.ndim != 2 or pixels.shape[0] != 1600:
        raise FileFormatError(f"its image has shape {pixels.shape}, not bytes of [1600 n]")
    if len(labels) != pixels.shape[1] or not np.isin(labels, np.arange(10)).all():
        raise FileFormatError("its label_int does not hold one label from 0 to 9 per image")
    return {
        "images": _tensor(pixels.T.reshape(-1, 1, 40, 40)),
        "labels": _tensor(labels.astype(np.int64)),
    }


def _array(
    values: dict[str, MatValue], name: str
) -> "np.ndarray[tuple[int, ...], np.dtype[np.generic]]":
    value = values.get(name)
    if not isinstance(value, np.ndarray):
        raise FileFormatError(f"it has no array named {name}")
    return value


def _mat(parse: Callable[..., Columns]) -> "_Reader":
    def read(
        spec: Spec, split: str, files: Sequence[DataFile], paths: Sequence[Path], folder: Path
    ) -> list[Columns]:
        count = spec.counts[split] // len(files)
        parts = []
        for file, path in zip(files, paths, strict=True):
            with naming(path):
                data = _bytes(file, path, folder, limit=count * (prod(spec.shape) + 1024))
                parts.append(parse(data, limit=count))
        return parts

    return read


_Reader = Callable[[Spec, str, Sequence[DataFile], Sequence[Path], Path], list[Columns]]

_READERS: dict[str, _Reader] = {
    "idx": _idx,
    "cifar10": _cifar(("labels",)),
    "cifar100": _cifar(("coarse_labels", "fine_labels")),
    "svhn": _mat(parse_svhn),
    "norb": _norb,
    "affnist": _mat(parse_affnist),
}
