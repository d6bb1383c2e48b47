"""NumPy's ``.npy`` files, alone or in a ``.npz`` archive: the header is checked before the data.

Objects are never unpickled. No memory is taken for data that the file cannot hold.
"""

import os
import stat
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from torchcaps.data.readers.bytes import FileFormatError

MAX_RATIO = 1100
"""Deflate never compresses a byte more often than this."""

MEMORY_SHARE = 0.75


@dataclass(frozen=True)
class ArrayFile:
    """The header of an array on disk.

    Attributes:
        path: the ``.npy`` file or the archive.
        member: the name inside the archive; empty for a ``.npy`` file.
        shape: shape of the array.
        dtype: type of its elements, never of objects.
    """

    path: Path
    member: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]

    def __str__(self) -> str:
        return f"{self.path} ({self.member})" if self.member else str(self.path)

    def read(self) -> NDArray[Any]:
        """Return the array; refuse one that would not leave memory for anything else."""
        needed = prod(self.shape) * self.dtype.itemsize
        if not fits_in_memory(needed):
            raise FileFormatError(
                f"{self} takes {needed / 2**30:.0f} GiB of memory: make it smaller, or save "
                "images as uint8"
            )
        with _explained(self), _opened(self.path, self.member) as (file, _):
            return np.asarray(np.lib.format.read_array(file, allow_pickle=False))


def open_array(path: Path, member: str = "") -> ArrayFile:
    """Read the header of an array; refuse objects, and data that end too early."""
    array = ArrayFile(path, member, (), np.dtype(np.uint8))
    with _explained(array), _opened(path, member) as (file, size):
        version = np.lib.format.read_magic(file)
        if version != (1, 0):
            raise FileFormatError(f"it has version {version[0]}.{version[1]} and not 1.0")
        shape, _, dtype = np.lib.format.read_array_header_1_0(file)
        if dtype.hasobject:
            raise FileFormatError("it holds Python objects")
        needed, left = prod(shape) * dtype.itemsize, size - file.tell()
        if min(shape, default=0) < 0 or needed != left:
            raise FileFormatError(
                f"its header announces {list(shape)} of {dtype}, which do not take {left} bytes"
            )
    return ArrayFile(path, member, shape, dtype)


def member_names(path: Path) -> list[str]:
    """Return the names of the arrays in an archive, without ``.npy``."""
    with _explained(path), _regular(path) as file, zipfile.ZipFile(file) as archive:
        return [name.removesuffix(".npy") for name in archive.namelist() if name.endswith(".npy")]


def fits_in_memory(needed: int) -> bool:
    """Return whether bytes take at most three quarters of the machine's memory."""
    try:
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):  # not on every system
        return True
    return needed <= MEMORY_SHARE * memory


@contextmanager
def _opened(path: Path, member: str) -> Iterator[tuple[IO[bytes], int]]:
    """Open an array, and yield how many bytes it has."""
    with _regular(path) as file:
        if not member:
            yield file, os.fstat(file.fileno()).st_size
            return
        with zipfile.ZipFile(file) as archive:
            info = archive.getinfo(f"{member}.npy")
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FileFormatError("it is compressed by another method than deflate")
            stored = min(info.compress_size, path.stat().st_size)
            if info.file_size > MAX_RATIO * stored:
                raise FileFormatError(
                    f"it announces {info.file_size} bytes, which {stored} bytes cannot hold"
                )
            with archive.open(info) as content:
                yield content, info.file_size


@contextmanager
def _regular(path: Path) -> Iterator[IO[bytes]]:
    if not stat.S_ISREG(path.stat().st_mode):
        raise FileFormatError("it is not a regular file")
    with path.open("rb") as file:
        yield file


@contextmanager
def _explained(source: object) -> Iterator[None]:
    """Raise one kind of error for every damaged file."""
    try:
        yield
    except MemoryError:
        raise
    except FileFormatError as error:
        cause = str(error)
    except OSError as error:
        cause = str(error.strerror or error)
    except Exception as error:  # a damaged archive or header may raise any error
        cause = f"it is damaged or no file of NumPy ({type(error).__name__})"
    else:
        return
    raise FileFormatError(
        f"{source} cannot be used: {cause}; save it again with numpy.save or numpy.savez"
    ) from None
