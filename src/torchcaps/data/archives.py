"""Safe unpacking of archives: plain files only, and only inside one folder.

Refused are absolute paths, ``..``, drive letters, links, devices, encrypted members, more than
`MAX_MEMBERS` members and more bytes than the data set has. Refused are also zip members that are
neither stored nor deflated, because reading them cannot be capped. Members are written to a
temporary folder and moved once all are complete and none would leave the folder through a link.
"""

import gzip
import shutil
import stat
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, TypeVar, cast

from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.errors import TorchcapsError

MAX_MEMBERS = 1000
_CHUNK_BYTES = 1 << 20

T = TypeVar("T")


class PathTakenError(TorchcapsError, FileExistsError):
    """A file or link is in the way of a file of an archive."""


def extract(archive: Path, folder: Path, *, limit: int) -> list[Path]:
    """Unpack a .tar.gz or .zip into ``folder``.

    Args:
        archive: the archive; check its hash first.
        folder: the destination, made if missing.
        limit: the most bytes of all members together.

    Returns:
        The files written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    temporary = Path(tempfile.mkdtemp(prefix=".unpack-", dir=folder))
    try:
        names = _unpack(archive, temporary, limit)
        for name in names:
            _check_destination(archive, folder, name)
        for name in names:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (temporary / name).replace(folder / name)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return [folder / name for name in names]


def _check_destination(archive: Path, folder: Path, name: PurePosixPath) -> None:
    """Refuse to leave the folder through a link in it, or to replace a folder."""
    problem = f"{archive} cannot be unpacked: {folder / name}"
    if not (folder / name).parent.resolve().is_relative_to(folder.resolve()):
        raise PathTakenError(f"{problem} would lie outside {folder}; remove the link on its path")
    for parent in name.parents:
        if (folder / parent).exists() and not (folder / parent).is_dir():
            raise PathTakenError(f"{problem} needs a folder where {folder / parent} is a file")
    if (folder / name).is_dir() and not (folder / name).is_symlink():
        raise PathTakenError(f"{problem} is a folder; remove it")


def _unpack(archive: Path, temporary: Path, limit: int) -> list[PurePosixPath]:
    names: list[PurePosixPath] = []
    folders: set[PurePosixPath] = set()
    left = limit
    with archive.open("rb") as file:
        members = _members(file, limit)
        while (member := _guarded(archive, partial(next, members, None))) is not None:
            name, content = safe_name(member[0]), member[1]
            if name in names:
                raise FileFormatError(f"{archive} holds {member[0]!r} twice")
            if len(names) == MAX_MEMBERS:
                raise FileFormatError(f"{archive} holds more than {MAX_MEMBERS} files")
            names.append(name)
            folders.update(name.parents)
            if not folders.isdisjoint(names):
                raise FileFormatError(f"{archive} holds {member[0]!r} inside a file")
            (temporary / name).parent.mkdir(parents=True, exist_ok=True)
            with (temporary / name).open("xb") as target:
                while chunk := _guarded(archive, partial(content.read, _CHUNK_BYTES)):
                    left -= len(chunk)
                    if left < 0:
                        raise FileFormatError(f"{archive} unpacks to more than {limit} bytes")
                    target.write(chunk)
    if not names:
        raise FileFormatError(f"{archive} holds no files")
    return names


def _guarded(archive: Path, step: Callable[[], T]) -> T:
    """Call the standard library's parser, which may raise any error on a corrupt file."""
    try:
        return step()
    except FileFormatError:
        raise
    except Exception as error:
        raise FileFormatError(
            f"{archive} is not a whole archive ({type(error).__name__})"
        ) from None


def safe_name(member: str) -> PurePosixPath:
    """Return the member's path if it stays inside the destination."""
    name = PurePosixPath(member)
    if (
        name.is_absolute()
        or not name.parts
        or ".." in name.parts
        or any(character in member for character in "\\:")
        or not (member.isascii() and member.isprintable())
        or len(member) > 200
    ):
        raise FileFormatError(f"the archive member {member[:80]!r} would leave its folder")
    return name


def _members(archive: IO[bytes], limit: int) -> Iterator[tuple[str, IO[bytes]]]:
    if zipfile.is_zipfile(archive):
        yield from _zip_members(archive)
    else:
        archive.seek(0)
        yield from _tar_members(archive, limit)


def _zip_members(archive: IO[bytes]) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            kind = stat.S_IFMT(info.external_attr >> 16)
            if info.flag_bits & 1 or kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise FileFormatError(f"the archive member {info.filename[:80]!r} is not a file")
            if info.is_dir():
                safe_name(info.filename)
                continue
            if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise FileFormatError(
                    f"the archive member {info.filename[:80]!r} is neither stored nor deflated"
                )
            with file.open(info) as content:
                yield info.filename, content


def _tar_members(archive: IO[bytes], limit: int) -> Iterator[tuple[str, IO[bytes]]]:
    allowance = limit + 2048 * MAX_MEMBERS
    with gzip.GzipFile(fileobj=archive) as stream:
        capped = cast("IO[bytes]", _Capped(stream, allowance))
        with tarfile.open(fileobj=capped, mode="r|") as file:
            for info in file:
                if info.isdir():
                    safe_name(info.name)
                    continue
                content = file.extractfile(info) if info.type in tarfile.REGULAR_TYPES else None
                if content is None or info.issparse():
                    raise FileFormatError(f"the archive member {info.name[:80]!r} is not a file")
                yield info.name, content


class _Capped:
    """A stream that raises an error after ``limit`` bytes."""

    def __init__(self, stream: gzip.GzipFile, limit: int) -> None:
        self.stream = stream
        self.limit = limit

    def read(self, size: int) -> bytes:
        """Return at most the bytes that are still allowed."""
        data = self.stream.read(max(0, min(size, self.limit + 1)))
        self.limit -= len(data)
        if self.limit < 0:
            raise FileFormatError("the archive unpacks to far more than its data set has")
        return data
