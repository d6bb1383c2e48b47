"""The record of finished runs: a CSV that only ever grows."""

import csv
import errno
import io
import math
import os
import shutil
import types
import typing
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import InputError
from torchcaps.storage import WriteError

__all__ = [
    "ACCURACY",
    "COLUMNS",
    "Row",
    "add_row",
    "append_row",
    "check_record",
    "misfits",
    "read_rows",
]

ACCURACY = Path("results/accuracy.csv")
"""Where the rows are kept, from the current folder."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One finished run; the fields are the columns.

    Attributes:
        recipe: its name.
        seed: what fixed everything drawn.
        test: accuracy on the test set in percent, scored once.
        validation: accuracy on held-out images at the chosen epoch; None if none were held out.
        paper: what the paper prints; None where it prints nothing.
        parameters: how many numbers are learned.
        epochs: trained.
        seconds: of training.
        images_per_s: training images a second.
        peak_mib: most memory of the device in use; None where it is not counted.
        modified: settings that differ from the recipe's, such as ``epochs=60 of 640 lr=0.1``;
            empty for the recipe as it is.
        dirty: whether the code differs from the commit.
        commit: of the code.
        gpu: name of the GPU, or of the processor where there was none.
        torch: its version.
        date: when the run ended.
        weights_sha256: of the saved weights.
        command: what was typed.
    """

    recipe: str
    seed: int
    test: float
    validation: float | None
    paper: float | None
    parameters: int
    epochs: int
    seconds: float
    images_per_s: float
    peak_mib: float | None
    modified: str
    dirty: bool
    commit: str
    gpu: str
    torch: str
    date: str
    weights_sha256: str
    command: str

    def __post_init__(self) -> None:
        if not self.recipe.strip():
            raise ValueError("a row must name its recipe")
        for column in ("test", "validation", "paper"):
            percent = getattr(self, column)
            if percent is not None and not 0 <= percent <= 100:
                raise ValueError(f"{column} must be between 0 and 100 percent, not {percent}")
        for column, kind in KINDS.items():
            value = getattr(self, column)
            if kind in (int, float) and value is not None and not 0 <= value < math.inf:
                raise ValueError(f"{column} must be a number of at least 0, not {value}")


def _kinds() -> dict[str, type]:
    kinds = {}
    for name, hint in typing.get_type_hints(Row).items():
        union = isinstance(hint, types.UnionType)
        kinds[name] = typing.get_args(hint)[0] if union else hint
    return kinds


KINDS: dict[str, type] = _kinds()
"""Column -> type of its values."""

PATIENCE = 60.0
"""Seconds to wait for another process that adds a row, or for a lock that cannot be had."""

COLUMNS = tuple(KINDS)
OPTIONAL = ("validation", "paper", "peak_mib")


def misfits(values: Mapping[str, object]) -> list[str]:
    """Columns, but for the command, whose value is missing or of another type than a row's."""
    wrong = []
    for column, kind in KINDS.items():
        value = values.get(column)
        if value is None:
            fits = column in ("command", "test", *OPTIONAL)
        else:
            fits = isinstance(value, (int, float) if kind is float else kind)
        if not fits:
            wrong.append(column)
    return wrong


def append_row(path: str | Path, row: Row) -> None:
    """Add a row to the file, or make the file; whole or not at all, and one process at a time."""
    with _alone(Path(path)):
        _append(Path(path), row)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Keep other processes from adding to a file, whose folder is made."""
    from filelock import FileLock

    lock = FileLock(path.with_name(f".{path.name}.lock"))
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        lock.acquire(timeout=PATIENCE)
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


def check_record(path: str | Path) -> None:
    """Say before the work whose row it shall hold that a file cannot be added to."""
    path = Path(path)
    if path.exists():
        read_rows(path)
        with _alone(path):
            return
    nearest = next(folder for folder in path.absolute().parents if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK):
        raise InputError(
            f"{path} cannot be written ({nearest} is no folder to write to); name another file "
            "with --results"
        )


def _append(path: Path, row: Row) -> None:
    line = _line([_to_text(getattr(row, column)) for column in COLUMNS])
    with path.open("ab+", buffering=0) as file:
        end = file.seek(0, os.SEEK_END)
        file.seek(0)
        _check_header(path, file.readline() if end else _line(COLUMNS))
        file.seek(max(0, end - 1))
        # a line that another program left unfinished stays a line of its own
        added = (b"" if file.read(1) in (b"", b"\n") else b"\n") + line
        added = added if end else _line(COLUMNS) + added
        try:
            if file.write(added) != len(added):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(file.fileno())
        except OSError as error:
            file.truncate(end)
            free = shutil.disk_usage(path.parent).free
            raise WriteError(
                f"the row could not be added to {path} ({error.strerror}): it needs {len(added)} "
                f"bytes and {free} are free; the file is as it was"
            ) from error


def add_row(path: str | Path, row: Row) -> bool:
    """:func:`append_row`, unless the run is in the file already; whether it was added."""
    path = Path(path)
    with _alone(path):
        known = read_rows(path) if path.stat().st_size else []
        if any((one.weights_sha256, one.date) == (row.weights_sha256, row.date) for one in known):
            return False
        _append(path, row)
    return True


def read_rows(path: str | Path) -> list[Row]:
    """Every row of the file, oldest first."""
    path = Path(path)
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}; finish a run first") from None
    head, _, body = content.partition(b"\n")
    _check_header(path, head)
    try:
        lines = list(csv.reader(io.StringIO(body.decode(), newline=""), strict=True))
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not a table of results: {error}") from None
    rows = []
    for number, fields in enumerate(lines, start=2):
        if not fields:
            continue
        if len(fields) != len(COLUMNS):
            raise InputError(
                f"{path}, row {number} has {len(fields)} of {len(COLUMNS)} fields; remove it"
            )
        try:
            values: dict[str, Any] = {
                column: _from_text(column, field)
                for column, field in zip(COLUMNS, fields, strict=True)
            }
            rows.append(Row(**values))
        except ValueError as error:
            raise InputError(f"{path}, row {number}: {error}") from None
    return rows


def _line(fields: Iterable[str]) -> bytes:
    buffer = io.StringIO(newline="")
    csv.writer(buffer, lineterminator="\n").writerow(fields)
    return buffer.getvalue().encode(errors="replace")


def _check_header(path: Path, line: bytes) -> None:
    if line.strip() != _line(COLUMNS).strip():
        raise InputError(f"{path} is not a table of results: it must begin with the known columns")


def _to_text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{round(value, 4)}"
    return " ".join(str(value).split())


def _from_text(column: str, field: str) -> bool | int | float | str | None:
    kind = KINDS[column]
    if not field and column in OPTIONAL:
        return None
    if kind is str:
        return "" if (column, field) == ("modified", "no") else field
    if kind is bool:
        if field not in ("yes", "no"):
            raise ValueError(f"{column} must be yes or no, not {field!r}")
        return field == "yes"
    try:
        return int(field) if kind is int else float(field)
    except ValueError:
        raise ValueError(f"{column} must be a number, not {field!r}") from None
