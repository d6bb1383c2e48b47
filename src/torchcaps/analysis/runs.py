"""Training curves from run folders, and costs from the rows of the benchmark."""

import csv
import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import InputError, MissingFileError

__all__ = [
    "CostCurve",
    "SpeedRow",
    "TrainingCurve",
    "comparable",
    "cost_by_iterations",
    "read_speed",
    "training_curve",
]

SHAPES = ("classes", "side", "pose")
"""Columns of the sizes that a plan may vary."""


@dataclass(frozen=True)
class TrainingCurve:
    """Metrics of a run, one number per epoch.

    ``values`` has "loss", "train", "validation", "test" (of a run that watched it), "lr", "seconds"
    and "images_per_s", as far as the run wrote them.
    """

    name: str
    epochs: tuple[float, ...]
    values: dict[str, tuple[float, ...]]


@dataclass(frozen=True)
class SpeedRow:
    """One row of ``results/speed.csv``; ``shape`` lists sizes that differ from the network's."""

    case: str
    mode: str
    implementation: str
    batch: int
    dtype: str
    iterations: int | None
    images_per_s: float
    peak_mib: float
    gpu: str
    shape: str = ""

    @property
    def batch_ms(self) -> float:
        """Milliseconds of one batch (Zhao 2020, Table 1)."""
        return 1000 * self.batch / self.images_per_s

    @property
    def seconds_per_100_steps(self) -> float:
        """Seconds of 100 training steps (Yang 2021, Fig. 4)."""
        return 100 * self.batch / self.images_per_s


@dataclass(frozen=True)
class CostCurve:
    """Time and memory of one case against its routing iterations (Tsai 2020, Fig. 4)."""

    case: str
    mode: str
    implementation: str
    batch: int
    iterations: tuple[int, ...]
    batch_ms: tuple[float, ...]
    peak_mib: tuple[float, ...]


def training_curve(run: str | Path, *, name: str | None = None) -> TrainingCurve:
    """Read the epochs of ``metrics.jsonl``; skip lines that are incomplete or of another kind."""
    path = Path(run)
    path = path / "metrics.jsonl" if path.is_dir() else path
    if not path.is_file():
        raise MissingFileError(f"there is no {path}: give the folder of a run that has trained")
    by_epoch: dict[float, dict[str, float]] = {}
    for line in path.read_text(errors="replace").splitlines():
        row = _epoch(line)
        if row is not None:
            by_epoch[row["epoch"]] = row  # a resumed run may write an epoch again
    rows = [by_epoch[epoch] for epoch in sorted(by_epoch)]
    if not rows:
        raise InputError(f"{path} has no epochs yet: wait for the first one to end")
    keys = [key for key in rows[0] if key != "epoch" and all(key in row for row in rows)]
    values = {key: tuple(row[key] for row in rows) for key in keys}
    return TrainingCurve(name or path.parent.name, tuple(sorted(by_epoch)), values)


def _epoch(line: str) -> dict[str, float] | None:
    try:
        row = json.loads(line)
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("kind") != "epoch":
        return None
    numbers = {
        key: float(value)
        for key, value in row.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return numbers if "epoch" in numbers else None


def read_speed(path: str | Path) -> tuple[SpeedRow, ...]:
    """Read the rows of ``speed.csv`` that have a speed."""
    path = Path(path)
    if not path.is_file():
        raise MissingFileError(f"there is no {path}: fill it with torchcaps bench")
    needed = ("case", "mode", "implementation", "batch", "images_per_s", "peak_mib")
    with path.open(newline="") as file:
        reader = csv.DictReader(file)
        missing = [name for name in needed if name not in (reader.fieldnames or ())]
        if missing:
            raise InputError(f"{path} has no column {missing[0]!r}: it is not the benchmark's")
        try:
            return tuple(_speed_row(row) for row in reader if row["images_per_s"])
        except (ValueError, TypeError) as error:
            raise InputError(f"{path} has a row that cannot be read: {error}") from None


def _speed_row(row: dict[str, str]) -> SpeedRow:
    speed = float(row["images_per_s"])
    if speed <= 0:
        raise ValueError(f"images_per_s must be above 0, not {speed}")
    iterations = (row.get("iterations") or "").strip()
    return SpeedRow(
        case=row["case"],
        mode=row["mode"],
        implementation=row["implementation"],
        batch=int(row["batch"]),
        dtype=row.get("dtype") or "",
        iterations=int(iterations) if iterations.isdigit() else None,
        images_per_s=speed,
        peak_mib=float(row["peak_mib"] or "nan"),
        gpu=row.get("gpu") or "",
        shape=" ".join(f"{key}={row[key]}" for key in SHAPES if row.get(key)),
    )


_Setting = tuple[int, str, str, str]


def _setting(row: SpeedRow) -> _Setting:
    """Return what two rows must share for their times to be comparable."""
    return row.batch, row.dtype, row.gpu, row.shape


def comparable(rows: Iterable[SpeedRow], *, mode: str) -> tuple[SpeedRow, ...]:
    """Return the last row of each case and implementation, all of one setting.

    A setting is a batch size, dtype, device and shape; the one with most cases and implementations
    is taken. Of the iteration counts of a case, the one with most implementations is taken.
    """
    rows = [row for row in rows if row.mode == mode]
    if not rows:
        return ()
    measured = Counter(key[0] for key in {(_setting(r), r.case, r.implementation) for r in rows})
    most = max(map(_setting, rows), key=measured.__getitem__)
    alike = [row for row in rows if _setting(row) == most]
    latest: dict[tuple[str, str], SpeedRow] = {}
    for case in dict.fromkeys(row.case for row in alike):
        of_case = [row for row in alike if row.case == case]
        pairs = {(r.iterations, r.implementation) for r in of_case if r.iterations is not None}
        counts = Counter(iterations for iterations, _ in sorted(pairs))
        usual = counts.most_common(1)[0][0] if counts else None
        # a floor does not route and matches any iteration count
        latest |= {
            (case, row.implementation): row for row in of_case if row.iterations in (usual, None)
        }
    return tuple(latest.values())


def cost_by_iterations(
    rows: Iterable[SpeedRow], *, mode: str = "inference"
) -> tuple[CostCurve, ...]:
    """Return cases measured at two or more iteration counts and otherwise equal settings."""
    groups: dict[tuple[str, str, _Setting], list[SpeedRow]] = {}
    for row in rows:
        if row.mode == mode and row.iterations is not None:
            groups.setdefault((row.case, row.implementation, _setting(row)), []).append(row)
    curves = []
    for (case, implementation, _), group in groups.items():
        latest = {row.iterations or 0: row for row in group}
        if len(latest) > 1:
            curves.append(_cost(case, mode, implementation, [latest[n] for n in sorted(latest)]))
    return tuple(curves)


def _cost(case: str, mode: str, implementation: str, rows: Sequence[SpeedRow]) -> CostCurve:
    return CostCurve(
        case,
        mode,
        implementation,
        rows[0].batch,
        tuple(row.iterations or 0 for row in rows),
        tuple(row.batch_ms for row in rows),
        tuple(row.peak_mib for row in rows),
    )
