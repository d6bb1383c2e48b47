"""Files of the data folder: their possible paths, their hashes and their readers."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.data.download import Download, fetch
from torchcaps.data.readers.bytes import FileFormatError, gunzip, matches, naming, read_file
from torchcaps.errors import MissingFileError

OVERHEAD_BYTES = 1 << 24
_MAX_COMPARED_BYTES = 1 << 26

Columns = dict[str, Tensor]
"""Tensors by name, one row per image: ``images``, ``labels`` and annotations."""


def to_tensor(array: NDArray[Any]) -> Tensor:
    """Return an array as a contiguous tensor, copied if it cannot be written to."""
    array = np.ascontiguousarray(array)
    return torch.from_numpy(array if array.flags.writeable else array.copy())


@dataclass(frozen=True)
class DataFile:
    """One file of a data set.

    Attributes:
        paths: possible paths under the data folder.
        hashes: published hash at each path, ``"sha256:..."`` or ``"md5:..."``; empty if unknown.
        count: number of images that the file describes.
        read: parser of the file: its bytes and ``count`` to columns.
        download: the file or archive to fetch; None if it must be put there by hand.
    """

    paths: tuple[str, ...]
    hashes: tuple[str, ...]
    count: int
    read: Callable[[bytes, int], Columns]
    download: Download | None


def data_folder(root: str | Path | None = None) -> Path:
    """Return ``root``, else ``TORCHCAPS_DATA``, else the platform's cache folder."""
    if root is not None:
        return Path(root).expanduser()
    if variable := os.environ.get("TORCHCAPS_DATA"):
        return Path(variable).expanduser()
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "torchcaps"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        base = Path(local) if local else Path.home() / "AppData" / "Local"
        return base / "torchcaps" / "Cache"
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "torchcaps"


class DataFolder:
    """The folder of the data files.

    Args:
        root: the folder; see `data_folder` for the default.
        known: the files of all data sets. Some sets use the same file names, and hashes tell their
            files apart.
        download: whether to fetch missing files.
    """

    def __init__(
        self,
        root: str | Path | None = None,
        *,
        known: Iterable[DataFile] = (),
        download: bool = True,
    ) -> None:
        self.root = root
        self.known = tuple(known)
        self.download = download

    @cached_property
    def path(self) -> Path:
        """Path of the folder."""
        return data_folder(self.root)

    def find(self, file: DataFile) -> Path | None:
        """Return the path of the file, ignoring files of that name from another set."""
        for name in file.paths:
            if (self.path / name).is_file() and not self._is_foreign(file, name):
                return self.path / name
        return None

    def read(self, file: DataFile, *, image_bytes: int) -> Columns:
        """Find or fetch a file, check its hash and parse it."""
        path = self.find(file) or self._fetch(file)
        max_bytes = file.count * (image_bytes + 1024) + OVERHEAD_BYTES
        with naming(path):
            data = read_file(path, limit=max_bytes)
            name, known = path.relative_to(self.path).as_posix(), _hashes(file)
            if known[name]:
                genuine = _genuine(data, name, known, limit=max_bytes)
                if genuine is None:
                    algorithm = known[name].partition(":")[0]
                    raise FileFormatError(f"its {algorithm} differs from the published file's")
                data = genuine
            return file.read(data, file.count)

    def _is_foreign(self, file: DataFile, name: str) -> bool:
        """Return whether the file at a path that several sets use belongs to another set."""
        others = [other for other in self.known if name in other.paths and other != file]
        if not others or (self.path / name).stat().st_size > _MAX_COMPARED_BYTES:
            return False
        data = (self.path / name).read_bytes()
        return any(
            _genuine(data, name, _hashes(other), limit=_MAX_COMPARED_BYTES) is not None
            for other in others
        )

    def _fetch(self, file: DataFile) -> Path:
        name = file.paths[0]
        if file.download is None:
            raise MissingFileError(f"{name} is not in {self.path}; put it there")
        fetch(file.download, self.path, needs=name, offline=not self.download)
        return self.path / name


def _hashes(file: DataFile) -> dict[str, str]:
    return dict(zip(file.paths, file.hashes, strict=True))


def _genuine(data: bytes, name: str, known: Mapping[str, str], *, limit: int) -> bytes | None:
    """Return the data, or their unpacked content, if the hash is known for this path."""
    if known[name] and matches(data, known[name]):
        return data
    unpacked_hash = known.get(name.removesuffix(".gz"), "")
    if not name.endswith(".gz") or not unpacked_hash:
        return None
    try:
        content = gunzip(data, limit=limit)
    except FileFormatError:
        return None
    return content if matches(content, unpacked_hash) else None
