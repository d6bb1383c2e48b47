"""Files that appear completely or not at all, and logs that survive a torn last line."""

import contextlib
import errno
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from torchcaps.errors import TorchcapsError

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_TAIL_BYTES = 1 << 16


class WriteError(TorchcapsError, OSError):
    """A file could not be written: path, cause and remedy in one sentence."""


def write_bytes(path: str | Path, data: bytes) -> None:
    """Write a file so that even a power cut leaves the old or the new content.

    The content is written under a temporary name, flushed to the disk and renamed. A failure leaves
    nothing behind and raises :class:`WriteError`.
    """
    path = Path(path)
    partial = temporary(path)
    with explained(path, len(data)):
        try:
            write_new(partial, data)
            partial.replace(path)
            sync_folder(path.parent)
        finally:
            with contextlib.suppress(OSError):
                partial.unlink(missing_ok=True)


def write_text(path: str | Path, text: str) -> None:
    """Write UTF-8 text as :func:`write_bytes` does."""
    write_bytes(path, text.encode())


def append_line(path: str | Path, line: str) -> None:
    """Add a line to a log, after removing a torn last line that an earlier process left.

    On a full disk the log stays unchanged, and :class:`WriteError` is raised.
    """
    if "\n" in line:
        raise ValueError("a line of a log holds no line break; write one line at a time")
    path, data = Path(path), line.encode() + b"\n"
    with explained(path, len(data)), _opened(path) as handle:
        end = _end_of_whole_lines(handle)
        os.ftruncate(handle, end)
        os.lseek(handle, end, os.SEEK_SET)
        try:
            rest = memoryview(data)
            while rest:
                rest = rest[os.write(handle, rest) :]
        except OSError:
            os.ftruncate(handle, end)
            raise


def read_lines(path: str | Path) -> list[str]:
    """Return the complete lines of a log, oldest first; none if there is no file."""
    try:
        data = Path(path).read_bytes()
    except FileNotFoundError:
        return []
    return data.decode(errors="replace").split("\n")[:-1]


def sync_folder(folder: Path) -> None:
    """Flush the names in a folder to the disk, where the system can."""
    if os.name == "nt":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(handle)


def temporary(path: Path) -> Path:
    """Return a name beside a path that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}.tmp")


def write_new(path: Path, data: bytes) -> None:
    """Write a file that must not exist yet, and flush it to the disk."""
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def explained(path: Path, needed: int) -> Iterator[None]:
    """Turn errors of the system into :class:`WriteError` with one sentence about a path."""
    try:
        yield
    except OSError as error:
        raise WriteError(reason(path, needed, error)) from error


def reason(path: Path, needed: int, error: OSError) -> str:
    """Return the cause of a failed write and the remedy."""
    if error.errno in FULL:
        return (
            f"{path} cannot be written: it needs {needed} bytes and {_free(path.parent)} are free "
            f"({error.strerror}); make room or choose another folder"
        )
    if not path.parent.is_dir():
        return f"{path} cannot be written: {path.parent} is no folder; make it first"
    cause = error.strerror or type(error).__name__
    return f"{path} cannot be written ({cause}); make it writable or choose another folder"


def _free(folder: Path) -> int:
    try:
        return shutil.disk_usage(folder).free
    except OSError:
        return 0


@contextmanager
def _opened(path: Path) -> Iterator[int]:
    flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0)
    handle = os.open(path, flags, 0o666)
    try:
        yield handle
    finally:
        os.close(handle)


def _end_of_whole_lines(handle: int) -> int:
    """Return the end of the last complete line of a file."""
    end = os.lseek(handle, 0, os.SEEK_END)
    while end:
        start = max(0, end - _TAIL_BYTES)
        os.lseek(handle, start, os.SEEK_SET)
        block = os.read(handle, end - start)
        index = block.rfind(b"\n")
        if index >= 0:
            return start + index + 1
        end = start
    return 0
