"""Training curves: one point per epoch, kept as small files beside the record of results."""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

from torchcaps.results import csv_file
from torchcaps.results.accuracy import AccuracyRow, add_row, read_rows
from torchcaps.results.routing_curve import RoutingPoint
from torchcaps.results.typed_row import TypedRow
from torchcaps.storage import write_bytes, write_text

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
"""Columns of a curve and the format of their numbers; ``test`` only where a run watched it."""

MAX_POINTS = 200
MAX_NAME_BYTES = 80
"""Limit of the part of a file name that names changes; file systems count bytes."""


@dataclass(frozen=True, kw_only=True)
class CurvePoint(TypedRow):
    """The numbers of one epoch.

    Attributes:
        epoch: number of the epoch, from 1.
        step: steps taken so far.
        loss: mean training loss.
        train: training accuracy in percent.
        validation: accuracy on held-out images in percent.
        test: test accuracy in percent, where the run watches it.
        lr: learning rate at the last step.
        seconds: seconds of the run so far.
        images_per_s: training throughput so far.
        peak_mib: peak memory in MiB.
    """

    TITLE: ClassVar[str] = "a training curve"

    epoch: int
    step: int
    loss: float | None = None
    train: float | None = None
    validation: float | None = None
    test: float | None = None
    lr: float | None = None
    seconds: float | None = None
    images_per_s: float | None = None
    peak_mib: float | None = None

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Build a point from plain data; an optional value of another type is left out."""
        return super().from_dict(
            {
                name: value
                for name, value in values.items()
                if isinstance(value, int | float) and math.isfinite(value)
            }
        )

    def to_line(self, routing: RoutingPoint | None = None) -> str:
        """Return the point as a line of ``metrics.jsonl``, with the routing of its epoch."""
        more = {} if routing is None else {"routing": routing.to_dict()}
        return json.dumps({"kind": "epoch", **self.to_dict(), **more})

    @classmethod
    def from_line(cls, line: str) -> Self | None:
        """Parse a line of ``metrics.jsonl``; None if it does not hold an epoch."""
        try:
            values = json.loads(line)
            return cls.from_dict(values) if values.get("kind") == "epoch" else None
        except (ValueError, AttributeError, RecursionError):
            return None


def curve_path(record: str | Path, row: AccuracyRow) -> Path:
    """Return the path of a run's curve: in ``curves/`` beside the record, by recipe and seed."""
    changes = re.sub(r"[^\w.]+", "-", row.modified).strip("-")
    name = changes.encode()
    if len(name) > MAX_NAME_BYTES:
        start = name[:MAX_NAME_BYTES].decode(errors="ignore")
        changes = f"{start}-{sha256(name).hexdigest()[:8]}"
    words = [row.recipe.replace("/", "-"), f"seed{row.seed}", *([changes] if changes else [])]
    return Path(record).parent / "curves" / f"{'-'.join(words)}.csv"


def read_curve(path: str | Path) -> list[CurvePoint]:
    """Return the points of a curve."""
    return csv_file.read(path, CurvePoint)


def find_curve(record: str | Path, row: AccuracyRow) -> list[CurvePoint]:
    """Return the curve of a row beside its record; no points where there is none."""
    path = curve_path(record, row)
    return read_curve(path) if path.is_file() else []


def write_curve(path: Path, points: Sequence[CurvePoint]) -> None:
    """Write a curve, thinned out evenly to 200 points.

    The first and the last point stay, and those of the best validation and test accuracy.
    """
    formats = dict(FORMATS)
    if all(point.test is None for point in points):
        del formats["test"]
    lines = [",".join(formats)]
    for index in _chosen_points(points):
        values = [(getattr(points[index], column), kind) for column, kind in formats.items()]
        lines.append(",".join("" if v is None else format(v, kind) for v, kind in values))
    path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "\n".join(lines) + "\n")


def keep_curve(record: str | Path, row: AccuracyRow, points: Sequence[CurvePoint]) -> None:
    """Write a run's curve beside a record, unless a later run has a curve of the same name."""
    if points and _is_latest(row, read_rows(record)):
        write_curve(curve_path(record, row), points)


def merge(record: str | Path, other: str | Path) -> int:
    """Add the rows of another record that are new, with their curves; return how many."""
    added = 0
    theirs = read_rows(other)
    for row in theirs:
        added += add_row(record, row)
    ours = read_rows(record) if theirs else []
    for row in theirs:
        source, target = curve_path(other, row), curve_path(record, row)
        if not source.is_file() or (target.exists() and target.samefile(source)):
            continue
        if _is_latest(row, theirs) and _is_latest(row, ours):
            target.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(target, source.read_bytes())
    return added


def _is_latest(row: AccuracyRow, rows: Sequence[AccuracyRow]) -> bool:
    """Return whether no later run has a curve of the same name."""
    path = curve_path("", row)
    return all(other.date <= row.date for other in rows if curve_path("", other) == path)


def _chosen_points(points: Sequence[CurvePoint]) -> list[int]:
    """Return the indices of the points to write."""
    count = len(points)
    if count <= MAX_POINTS:
        return list(range(count))
    even = {round(n * (count - 1) / (MAX_POINTS - 3)) for n in range(MAX_POINTS - 2)}
    best = {
        max(range(count), key=lambda index: getattr(points[index], column) or 0)
        for column in ("validation", "test")
    }
    return sorted(even | best)
