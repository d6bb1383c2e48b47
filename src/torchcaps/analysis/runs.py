"""Training curves from run folders, and costs from the rows of the benchmark."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import InputError, MissingFileError
from torchcaps.results import CurvePoint, SpeedRow
from torchcaps.train.outputs.folder import RunFolder


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
    """Read the epochs of a run's ``metrics.jsonl``; damaged lines are left out."""
    path = Path(run)
    folder = RunFolder(path if path.is_dir() else path.parent)
    path = folder.metrics
    if not path.is_file():
        raise MissingFileError(f"there is no {path}: give the folder of a run that has trained")
    points = folder.curve()
    if not points:
        raise InputError(f"{path} has no epochs yet: wait for the first one to end")
    columns = {
        key: tuple(getattr(point, key) for point in points)
        for key in CurvePoint.columns()
        if key not in ("epoch", "step")
    }
    values = {key: numbers for key, numbers in columns.items() if None not in numbers}
    epochs = tuple(point.epoch for point in points)
    return TrainingCurve(name or path.parent.name, epochs, values)


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
        tuple(math.nan if row.peak_mib is None else row.peak_mib for row in rows),
    )
