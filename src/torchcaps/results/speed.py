"""The speed of training and inference: one row per measurement in ``results/speed.csv``."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from torchcaps.results import csv_file
from torchcaps.results.tables import markdown_table
from torchcaps.results.typed_row import TypedRow

HEADINGS = ("network", "on", "runs", "batch", "precision", "iterations", "images/s", "MiB", "floor")
SIZES = ("classes", "side", "pose")
VARIANTS = {"competition": "competition over the image", "loop": "loop of a user"}
"""Columns that are None but for one value, and what that value means."""

WAYS = ("floor", "fused", "torch", "dense")
"""Ways to run a network, in the order of tables."""


@dataclass(frozen=True, kw_only=True)
class SpeedRow(TypedRow):
    """One measurement of a network or a capsule head.

    Attributes:
        case: name of the network.
        mode: "train" or "inference".
        implementation: the way it runs, perhaps with ``+compile`` and ``+graph``.
        batch: batch size.
        dtype: "float32" or "bfloat16".
        iterations: routing iterations; None for a network that does not iterate.
        classes: classes, where they are not the network's own.
        side: side of the images or of the head's feature map, where it is not the network's own.
        pose: size of the head's poses, where it is not the network's own.
        competition: "image" for EM routing whose parents of all windows compete; None otherwise.
        loop: "user" for a plain loop that a user writes; None for the step of a recipe.
        images_per_s: throughput of the median step.
        slow_images_per_s: throughput of the slowest tenth of the steps.
        fast_images_per_s: throughput of the fastest tenth of the steps.
        peak_mib: peak memory in MiB; None on a CPU.
        share_of_floor: throughput as a share of the floor's; None where no floor was measured.
        ready_s: seconds until the first step was done.
        gpu: name of the GPU, or of the processor.
        torch: version of PyTorch.
        triton: version of Triton; None without it.
        commit: commit of the code.
        date: day of the measurement, in UTC.
    """

    TITLE: ClassVar[str] = "speeds"

    case: str
    mode: str
    implementation: str
    batch: int
    dtype: str
    iterations: int | None
    classes: int | None = None
    side: int | None = None
    pose: int | None = None
    competition: str | None = None
    loop: str | None = None
    images_per_s: float
    slow_images_per_s: float | None = None
    fast_images_per_s: float | None = None
    peak_mib: float | None
    share_of_floor: float | None
    ready_s: float | None = None
    gpu: str
    torch: str = ""
    triton: str | None = None
    commit: str = ""
    date: str = ""

    def __post_init__(self) -> None:
        self.check_numbers()
        if not self.images_per_s:
            raise ValueError("images_per_s must be above 0")

    @property
    def sizes(self) -> dict[str, int]:
        """Sizes that are not the network's own, by column."""
        return {name: size for name in SIZES if (size := getattr(self, name)) is not None}

    @property
    def shape(self) -> str:
        """Return the settings that differ from the defaults, such as ``classes=100 loop=user``."""
        variants = {name: value for name in VARIANTS if (value := getattr(self, name)) is not None}
        return " ".join(f"{name}={value}" for name, value in (self.sizes | variants).items())

    @property
    def batch_ms(self) -> float:
        """Milliseconds of one batch (Zhao 2020, Table 1)."""
        return 1000 * self.batch / self.images_per_s

    @property
    def seconds_per_100_steps(self) -> float:
        """Seconds of 100 training steps (Yang 2021, Fig. 4)."""
        return 100 * self.batch / self.images_per_s


def read_speed(path: str | Path) -> list[SpeedRow]:
    """Return the rows of a file of speeds, oldest first; rows without a speed are left out."""
    return csv_file.read(path, SpeedRow, skip=lambda cells: not cells["images_per_s"])


def append_speed(path: str | Path, rows: Sequence[SpeedRow]) -> None:
    """Add rows to a file of speeds, or begin the file; without rows, write its header only."""
    csv_file.append(path, SpeedRow, rows)


def headline(rows: Iterable[SpeedRow]) -> list[SpeedRow]:
    """Return the rows of a summary: published networks, on GPUs compiled and as a graph."""
    return [
        row
        for row in rows
        if row.mode == "train"
        and ("CPU" in row.gpu or row.implementation.endswith("+compile+graph"))
        and not row.sizes
        and row.loop is None
    ]


def speed_table(rows: Iterable[SpeedRow]) -> str:
    """Return a Markdown table ordered by network; of repeated measurements the latest counts."""
    latest = {}
    for row in rows:
        what = (row.case, row.mode, row.implementation, row.batch, row.dtype, row.iterations)
        latest[(*what, row.shape, row.gpu)] = row
    return markdown_table(HEADINGS, [_cells(row) for row in sorted(latest.values(), key=_order)])


def _cells(row: SpeedRow) -> list[str]:
    runs = row.implementation.replace("+", " + ")
    if row.mode != "train":
        runs += f", {row.mode}"
    speed = row.images_per_s
    words = [f"{name} {size}" for name, size in row.sizes.items()]
    words += [meaning for name, meaning in VARIANTS.items() if getattr(row, name) is not None]
    return [
        ", ".join([row.case, *words]),
        row.gpu.removeprefix("NVIDIA ").removeprefix("x86_64 "),
        runs,
        str(row.batch),
        row.dtype,
        "" if row.iterations is None else str(row.iterations),
        f"{speed:,.0f}" if speed >= 100 else f"{speed:.1f}",
        "" if row.peak_mib is None else f"{row.peak_mib:.0f}",
        "" if row.share_of_floor is None else f"{100 * row.share_of_floor:.0f} %",
    ]


def _order(row: SpeedRow) -> tuple[object, ...]:
    """Return a sort key: GPUs first, then networks, then each batch size from its floor on."""
    way, *options = row.implementation.split("+")
    return (
        "CPU" in row.gpu,
        row.gpu,
        row.case,
        row.mode != "train",
        *(getattr(row, name) or 0 for name in SIZES),
        *(getattr(row, name) or "" for name in VARIANTS),
        row.batch,
        WAYS.index(way) if way in WAYS else len(WAYS),
        -len(options),
        way,
        row.iterations or 0,
    )
