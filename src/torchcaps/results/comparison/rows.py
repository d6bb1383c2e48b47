"""Comparisons of heads: one row per trained network of a study, and what the rows allow to say."""

import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, NamedTuple

from torchcaps.results import csv_file
from torchcaps.results.typed_row import Setting, TypedRow

VIEWPOINTS = ("rotation", "translation", "scale", "shear")
CORRUPTIONS = ("occlusion", "overlap", "noise")
UNCHANGED = {"scale": "1"}
"""The level that leaves an image as it is, where it is not 0."""

STANDARD_ERRORS = 2.0
"""A difference counts from this many standard errors on."""


@dataclass(frozen=True, kw_only=True)
class ComparisonRow(TypedRow):
    """One trained network of a study, measured.

    Accuracies are in percent. A dictionary maps each level to the accuracy at it.

    Attributes:
        study: name of the study.
        dataset: name of the data set within the study.
        head: name of the head.
        seed: seed of the run.
        parameters: number of learned values without a decoder's.
        images: training images per epoch.
        epochs: epochs trained.
        batch_size: images per training step.
        test: test accuracy.
        affine: accuracy on test images under random affine maps; None for other data sets.
        rotation: by degrees.
        translation: by pixels.
        scale: by factor.
        shear: by x per y.
        occlusion: by the covered share of the side.
        overlap: by the brightness of a second image.
        noise: by the standard deviation.
        fgsm: under one gradient step, by the largest change of a pixel.
        pgd: under projected gradient descent, by the largest change of a pixel.
        masked: percentage of images whose gradient is zero.
        equivariance: R^2 of pose changes predicted from capsule changes; None without digits.
        iou: intersection over union of two drawn objects and the true ones; None without a decoder.
        entropy: entropy of the couplings relative to uniform ones; None where nothing competes.
        changed: percentage of predictions that uniform couplings change; None where none can be.
        train_images_per_s: training throughput of the fastest tenth of the steps; of one CPU
            thread per second of processor time.
        peak_mib: peak memory of a training step in MiB; None on a CPU.
        latency_ms: time to classify one image, of the fastest tenth of the repeats; on one CPU
            thread its processor time. These three are None where speed was not measured: the
            first seed of a study has it.
        commit: commit of the code that trained.
        measured_commit: commit of the code that measured.
        dirty: whether either code differed from its commit.
        gpu: name of the GPU, or of the processor.
        torch: version of PyTorch.
        date: end of the measurement, in UTC.
    """

    TITLE: ClassVar[str] = "comparisons"

    study: str
    dataset: str
    head: str
    seed: int
    parameters: int
    images: int
    epochs: int
    batch_size: int
    test: float
    affine: float | None
    rotation: dict[str, Setting]
    translation: dict[str, Setting]
    scale: dict[str, Setting]
    shear: dict[str, Setting]
    occlusion: dict[str, Setting]
    overlap: dict[str, Setting]
    noise: dict[str, Setting]
    fgsm: dict[str, Setting]
    pgd: dict[str, Setting]
    masked: float
    equivariance: float | None
    iou: float | None
    entropy: float | None
    changed: float | None
    train_images_per_s: float | None
    peak_mib: float | None
    latency_ms: float | None
    commit: str
    measured_commit: str
    dirty: bool
    gpu: str
    torch: str
    date: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        """The study, data set, head and seed, which identify the network of a row."""
        return self.study, self.dataset, self.head, self.seed

    @property
    def has_speed(self) -> bool:
        """Return whether the row has training and inference times."""
        return self.latency_ms is not None

    def mean_accuracy(self, names: Iterable[str]) -> float:
        """Return the mean accuracy over curves and over all levels that change an image."""
        return statistics.fmean(
            float(value)
            for name in names
            for level, value in getattr(self, name).items()
            if level != UNCHANGED.get(name, "0")
        )


class Measure(NamedTuple):
    """A column of a comparison.

    Attributes:
        name: its heading.
        of: returns the number of a row; None where it was not measured.
        digits: decimal places.
        better: 1 if more is better, -1 if less is, 0 if neither.
        some: whether a cell may leave out runs that lack the measure.
    """

    name: str
    of: Callable[[ComparisonRow], float | None]
    digits: int = 1
    better: int = 1
    some: bool = False


ACCURACY = Measure("accuracy %", lambda row: row.test)
AFFINE = Measure("affine %", lambda row: row.affine)
VIEWPOINT = Measure("viewpoint %", lambda row: row.mean_accuracy(VIEWPOINTS))
CORRUPTED = Measure("corrupted %", lambda row: row.mean_accuracy(CORRUPTIONS))
PGD = Measure("PGD %", lambda row: row.mean_accuracy(("pgd",)))
EQUIVARIANCE = Measure("equivariance R²", lambda row: row.equivariance, 2)
IOU = Measure("overlap IoU", lambda row: row.iou, 2)
ENTROPY = Measure("entropy", lambda row: row.entropy, 2, 0)
CHANGED = Measure("changed %", lambda row: row.changed, 1, 0)
THROUGHPUT = Measure("training images/s", lambda row: row.train_images_per_s, 0, 1, True)
MEMORY = Measure("MiB", lambda row: row.peak_mib, 0, -1, True)
LATENCY = Measure("latency ms", lambda row: row.latency_ms, 2, -1, True)

QUALITY = (ACCURACY, AFFINE, VIEWPOINT, CORRUPTED, PGD, EQUIVARIANCE, IOU)
COST = (ENTROPY, CHANGED, THROUGHPUT, MEMORY, LATENCY)
MEASURES = (*QUALITY, *COST)


@dataclass(frozen=True)
class Cell:
    """Mean, standard deviation and number of runs; the deviation of one run is None."""

    mean: float
    std: float | None
    n: int

    def text(self, digits: int) -> str:
        """Return mean and spread, such as ``81.0 ± 0.6``."""
        spread = "" if self.std is None else f" ± {self.std:.{digits}f}"
        return f"{self.mean:,.{digits}f}{spread}"


Table = Mapping[str, Mapping[str, Cell]]
"""Head -> name of a measure -> cell."""


def read_comparison(path: str | Path) -> list[ComparisonRow]:
    """Return the newest row of each network, in the order in which networks were added."""
    return list({row.key: row for row in csv_file.read(path, ComparisonRow)}.values())


def append_comparison(path: str | Path, rows: Sequence[ComparisonRow]) -> int:
    """Add rows of new networks, and of those whose rows lack a speed; return how many."""

    def is_new(row: ComparisonRow, known: list[ComparisonRow]) -> bool:
        others = [other for other in known if other.key == row.key]
        return not any(other.has_speed or not row.has_speed for other in others)

    return csv_file.append(path, ComparisonRow, rows, accept=is_new)


def check_comparison(path: str | Path) -> None:
    """Refuse a file that rows cannot be added to."""
    csv_file.check_writable(path, ComparisonRow)


def datasets_of(rows: Iterable[ComparisonRow]) -> list[str]:
    """Return the data sets of rows, in the order in which they appear."""
    return list(dict.fromkeys(row.dataset for row in rows))


def table_of(rows: Iterable[ComparisonRow], dataset: str) -> Table:
    """Return the cells of one data set over the seeds; a measure that no run has is left out."""
    heads: dict[str, list[ComparisonRow]] = {}
    for row in rows:
        if row.dataset == dataset:
            heads.setdefault(row.head, []).append(row)
    return {
        head: {one.name: cell for one in MEASURES if (cell := cell_of(runs, one)) is not None}
        for head, runs in heads.items()
    }


def cell_of(rows: Iterable[ComparisonRow], measure: Measure) -> Cell | None:
    """Return the cell of one measure; None where a run lacks it that may not be left out."""
    values = [measure.of(row) for row in rows]
    known = [value for value in values if value is not None and math.isfinite(value)]
    if not known or (len(known) < len(values) and not measure.some):
        return None
    spread = statistics.stdev(known) if len(known) > 1 else None
    return Cell(statistics.fmean(known), spread, len(known))


def differs(one: Cell, other: Cell) -> bool:
    """Return whether two means differ by more than two standard errors of their difference.

    One run alone has no standard error, and differs from nothing.
    """
    if one.std is None or other.std is None:
        return False
    error = math.sqrt(one.std**2 / one.n + other.std**2 / other.n)
    return abs(one.mean - other.mean) > STANDARD_ERRORS * error


@dataclass(frozen=True)
class Finding:
    """The best head of a measure, and how it stands to the others.

    Attributes:
        dataset: the data set.
        measure: the measure.
        best: the head with the best mean.
        cell: its cell.
        beaten: heads whose means are worse by more than two standard errors.
        level: heads whose means are not.
    """

    dataset: str
    measure: Measure
    best: str
    cell: Cell
    beaten: tuple[str, ...]
    level: tuple[str, ...]


def findings(rows: Sequence[ComparisonRow]) -> list[Finding]:
    """Return what the rows of a study allow to say; nothing where the best head beats none."""
    found = []
    for dataset in datasets_of(rows):
        table = table_of(rows, dataset)
        for measure in MEASURES:
            cells = {
                head: cells[measure.name] for head, cells in table.items() if measure.name in cells
            }
            if not measure.better or not cells:
                continue
            best = max(cells, key=lambda head: measure.better * cells[head].mean)
            others = [head for head in cells if head != best]
            beaten = tuple(head for head in others if differs(cells[best], cells[head]))
            level = tuple(head for head in others if head not in beaten)
            if beaten:
                found.append(Finding(dataset, measure, best, cells[best], beaten, level))
    return found
