"""Tools of all readers: the error, a bounds-checked cursor, capped files and capped gzip."""

import hashlib
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.errors import FileFormatError as FileFormatError


class Cursor:
    """A position in bytes that never passes their end."""

    def __init__(self, data: bytes | memoryview) -> None:
        self.data = memoryview(data)
        self.position = 0

    @property
    def remaining(self) -> int:
        """Number of bytes left."""
        return len(self.data) - self.position

    def take(self, count: int) -> memoryview:
        """Return the next ``count`` bytes."""
        if count < 0 or count > self.remaining:
            raise FileFormatError(
                f"the file ends at byte {len(self.data)} where {count} more bytes from byte "
                f"{self.position} were announced"
            )
        self.position += count
        return self.data[self.position - count : self.position]

    def integer(self, size: int, *, big: bool = False, signed: bool = False) -> int:
        """Return the next ``size`` bytes as an integer."""
        return int.from_bytes(self.take(size), "big" if big else "little", signed=signed)

    def end(self) -> None:
        """Refuse bytes that are left over."""
        if self.remaining:
            raise FileFormatError(f"{self.remaining} bytes follow the end of the data")


def gunzip(data: bytes | memoryview, *, limit: int) -> bytes:
    """Decompress one gzip member of at most ``limit`` bytes."""
    return _inflate(data, wbits=31, limit=limit, kind="gzip")


def inflate(data: bytes | memoryview, *, limit: int) -> bytes:
    """Decompress one zlib stream of at most ``limit`` bytes."""
    return _inflate(data, wbits=15, limit=limit, kind="zlib")


def _inflate(data: bytes | memoryview, *, wbits: int, limit: int, kind: str) -> bytes:
    stream = zlib.decompressobj(wbits)
    try:
        content = stream.decompress(data, limit + 1)
    except zlib.error as error:
        raise FileFormatError(f"the {kind} data are corrupt ({error})") from None
    if len(content) > limit:
        raise FileFormatError(f"the {kind} data unpack to more than the {limit} bytes expected")
    if not stream.eof:
        raise FileFormatError(f"the {kind} data are truncated")
    if stream.unused_data.strip(b"\0"):
        raise FileFormatError(f"{len(stream.unused_data)} bytes follow the {kind} data")
    return content


def read_file(path: Path, *, limit: int) -> bytes:
    """Return the bytes of a regular file of at most ``limit`` bytes."""
    with path.open("rb") as file:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise FileFormatError("it is not a regular file")
        if status.st_size > limit:
            raise FileFormatError(
                f"it has {status.st_size} bytes where at most {limit} are expected"
            )
        return file.read(limit + 1)


def matches(data: bytes, expected: str) -> bool:
    """Return whether the data have the hash ``"sha256:..."`` or ``"md5:..."``."""
    algorithm, _, digest = expected.partition(":")
    return hashlib.new(algorithm, data, usedforsecurity=False).hexdigest() == digest


def check_file_hash(path: Path, expected: str) -> None:
    """Refuse a file that has another hash, without reading it into memory."""
    algorithm, _, digest = expected.partition(":")
    with path.open("rb") as file:
        actual = hashlib.file_digest(file, algorithm).hexdigest()
    if actual != digest:
        raise FileFormatError(f"its {algorithm} differs from the published file's")


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Add the path and the remedy to a reader's error."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(
            f"{path} cannot be used: {error}; delete it and load again, or put the original there"
        ) from None
