"""CSV files of typed rows that many processes may add to."""

import csv
import errno
import io
import os
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from torchcaps.errors import InputError
from torchcaps.results.typed_row import TypedRow
from torchcaps.storage import WriteError, temporary, write_bytes

LOCK_TIMEOUT_S = 60.0
"""Seconds to wait for another process that adds a row."""

Row = TypeVar("Row", bound=TypedRow)


def read(
    path: str | Path,
    row_type: type[Row],
    *,
    skip: Callable[[dict[str, str]], bool] = lambda cells: False,
) -> list[Row]:
    """Return the rows of a file, oldest first, but for those whose cells are to be skipped."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(
            f"cannot read {path}: {error.strerror}; the first run or measurement writes it"
        ) from None
    head, _, body = content.partition(b"\n")
    columns = _header(path, row_type, head)
    try:
        lines = list(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a table of {row_type.TITLE}: {error}") from None
    rows = []
    for number, cells in enumerate(lines, start=2):
        if not cells:
            continue
        if len(cells) != len(columns):
            raise InputError(
                f"{path}, row {number} has {len(cells)} of {len(columns)} fields; remove it"
            )
        named = dict(zip(columns, cells, strict=True))
        if skip(named):
            continue
        try:
            rows.append(row_type.from_cells(named))
        except ValueError as error:
            raise InputError(f"{path}, row {number}: {error}") from None
    return rows


def append(
    path: str | Path,
    row_type: type[Row],
    rows: Sequence[Row],
    *,
    accept: Callable[[Row, list[Row]], bool] | None = None,
) -> int:
    """Add rows to a file, or begin the file; return how many were added.

    A row is written completely or not at all, and concurrent processes wait for each other. A file
    of an earlier version is converted first.

    Args:
        path: the file; its folder is made.
        row_type: type of the rows.
        rows: the rows; without any, only the header is written to an empty file.
        accept: decides for a row and the rows that are there whether the row is added.
    """
    path = Path(path)
    with _locked(path):
        header = _line(row_type.columns())
        with path.open("rb") as file:
            first = file.readline()
        if first and _header(path, row_type, first) != list(row_type.columns()):
            lines = [_line(row.to_cells()) for row in read(path, row_type)]
            write_bytes(path, b"".join([header, *lines]))
        if accept is not None:
            known = read(path, row_type) if first else []
            rows = [row for row in rows if accept(row, known)]
        data = b"".join(_line(row.to_cells()) for row in rows)
        if data or not first:
            _append_bytes(path, data if first else header + data)
    return len(rows)


def check_writable(path: str | Path, row_type: type[TypedRow]) -> None:
    """Refuse a file that rows cannot be added to."""
    path = Path(path)
    if path.exists():
        read(path, row_type)
        if not _lock_file(path).exists():
            _check_folder(path, path.absolute().parent)
        with _locked(path):
            return
    _check_folder(path, next(folder for folder in path.absolute().parents if folder.exists()))


def _check_folder(path: Path, folder: Path) -> None:
    """Refuse a folder that takes no files, by making one: permissions do not tell everything."""
    probe = temporary(folder / path.name)
    try:
        probe.open("xb").close()
        probe.unlink()
    except OSError:
        raise InputError(
            f"{path} cannot be written ({folder} is not a writable folder); name another file "
            "with --results"
        ) from None


def _lock_file(path: Path) -> Path:
    return path.with_name(f".{path.name}.lock")


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold the lock of a file, which is made if it is not there."""
    from filelock import FileLock

    lock = FileLock(_lock_file(path))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=LOCK_TIMEOUT_S)
        path.open("ab").close()
    except OSError as error:
        raise WriteError(
            f"{path} cannot be added to ({error.strerror or error}); make it and its folder "
            "writable, or name another file with --results"
        ) from error
    try:
        yield
    finally:
        lock.release()


def _append_bytes(path: Path, data: bytes) -> None:
    """Write lines at the end of a file; after an error the file is as before."""
    with path.open("ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(max(0, end - 1))
        # a line that another program left unfinished must not swallow the first row
        data = (b"" if file.read(1) in (b"", b"\n") else b"\n") + data
        try:
            if file.write(data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(end)
            free = shutil.disk_usage(path.parent).free
            raise WriteError(
                f"the row could not be added to {path} ({error.strerror}): it needs {len(data)} "
                f"bytes and {free} are free; the file is unchanged"
            ) from error


def _header(path: Path, row_type: type[TypedRow], line: bytes) -> list[str]:
    """Return the columns of a file, or refuse one of other columns."""
    names = line.decode(errors="replace").strip().split(",")
    columns = row_type.columns()
    required = {name for name, column in columns.items() if column.required}
    for earlier, replacements in row_type.EARLIER.items():
        if earlier in names:
            required -= set(replacements)
    known = {*columns, *row_type.EARLIER}
    if not required <= set(names) <= known or len(set(names)) != len(names):
        raise InputError(
            f"{path} is not a table of {row_type.TITLE}: it must begin with the known columns"
        )
    return names


def _line(cells: Iterable[str]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(cells)
    return buffer.getvalue().encode(errors="replace")
