"""Training curves, kept beside the record as small files."""

import re
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from torchcaps.results.record import Row, add_row, read_rows
from torchcaps.storage import write_bytes, write_text

__all__ = ["curve_path", "keep_curve", "merge", "write_curve"]

FORMATS = {
    "epoch": "d",
    "step": "d",
    "lr": ".4g",
    "loss": ".5g",
    "train": ".3f",
    "validation": ".3f",
    "seconds": ".1f",
    "test": ".3f",
}
"""Column -> how its numbers are written; the last is there only where a run watched it."""

MOST_LINES = 200
MOST_BYTES = 80
"""Of a name's part that says what was changed; a file system counts bytes, not letters."""


def curve_path(record: str | Path, row: Row) -> Path:
    """Where the curve of a run is kept: ``curves/`` beside the record, by recipe and seed."""
    changes = re.sub(r"[^\w.]+", "-", row.modified).strip("-")
    said = changes.encode()
    if len(said) > MOST_BYTES:
        changes = f"{said[:MOST_BYTES].decode(errors='ignore')}-{sha256(said).hexdigest()[:8]}"
    words = [row.recipe.replace("/", "-"), f"seed{row.seed}", *([changes] if changes else [])]
    return Path(record).parent / "curves" / f"{'-'.join(words)}.csv"


def write_curve(path: Path, epochs: Sequence[Mapping[str, Any]]) -> None:
    """Write what a run logged, one line an epoch, evenly thinned out to 200 epochs.

    Args:
        path: of the file; its folder is made.
        epochs: numbers by column; what is missing or None is left empty. The first, the last and
            those with the best validation and test scores are kept whatever happens.
    """
    formats = dict(FORMATS)
    if all(epoch.get("test") is None for epoch in epochs):
        del formats["test"]
    lines = [",".join(formats)]
    for number in _kept(epochs):
        values = [(epochs[number].get(column), kind) for column, kind in formats.items()]
        lines.append(",".join("" if v is None else format(v, kind) for v, kind in values))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(lines) + "\n")


def keep_curve(record: str | Path, row: Row, epochs: Sequence[Mapping[str, Any]]) -> None:
    """:func:`write_curve` beside a record, unless that of a later run with its name is there."""
    if epochs and _is_latest(row, read_rows(record)):
        write_curve(curve_path(record, row), epochs)


def merge(record: str | Path, other: str | Path) -> int:
    """Add the rows of another record that are not in this one, with their curves; how many."""
    added = 0
    theirs = read_rows(other)
    for row in theirs:
        added += add_row(record, row)
    ours = read_rows(record) if theirs else []
    for row in theirs:
        curve, mine = curve_path(other, row), curve_path(record, row)
        if not curve.is_file() or (mine.exists() and mine.samefile(curve)):
            continue
        if _is_latest(row, theirs) and _is_latest(row, ours):
            mine.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(mine, curve.read_bytes())
    return added


def _is_latest(row: Row, rows: Sequence[Row]) -> bool:
    """Whether no later run has a curve of the same name."""
    place = curve_path("", row)
    return all(one.date <= row.date for one in rows if curve_path("", one) == place)


def _kept(epochs: Sequence[Mapping[str, Any]]) -> list[int]:
    count = len(epochs)
    if count <= MOST_LINES:
        return list(range(count))
    even = {round(n * (count - 1) / (MOST_LINES - 3)) for n in range(MOST_LINES - 2)}
    best = {
        max(range(count), key=lambda number: epochs[number].get(column) or 0)
        for column in ("validation", "test")
    }
    return sorted(even | best)
