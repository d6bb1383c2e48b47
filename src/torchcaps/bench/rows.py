"""Measurements as rows of a CSV file, and rows as a table."""

import csv
import datetime
import importlib.util
import io
import platform
from collections.abc import Iterable, Sequence
from importlib.metadata import version
from pathlib import Path

import torch

from torchcaps.bench.measure import network
from torchcaps.bench.setting import WAYS, Measured
from torchcaps.errors import InputError
from torchcaps.storage import append_line, read_lines

__all__ = ["COLUMNS", "append", "headline", "read", "rows_of", "table"]

COLUMNS = (
    "case",
    "mode",
    "implementation",
    "batch",
    "dtype",
    "iterations",
    "classes",
    "side",
    "pose",
    "images_per_s",
    "slow_images_per_s",
    "fast_images_per_s",
    "peak_mib",
    "share_of_floor",
    "ready_s",
    "gpu",
    "torch",
    "triton",
    "commit",
    "date",
)
"""Median, and the speeds of the slowest and the fastest tenth of the steps; classes, side and pose
are empty where they are the network's own."""

HEADINGS = ("network", "on", "runs", "batch", "precision", "iterations", "images/s", "MiB", "floor")

Row = dict[str, str]


def rows_of(measured: Sequence[Measured], *, device: torch.device, revision: str) -> list[Row]:
    """One row each; a floor is one with the same case, mode, batch, precision and sizes."""
    floors = {_key(m): m.images_per_s for m in measured if m.setting.has("floor")}
    where = torch.cuda.get_device_name() if device.type == "cuda" else _processor()
    triton = version("triton") if importlib.util.find_spec("triton") else ""
    rows = []
    for one in measured:
        setting, floor = one.setting, floors.get(_key(one))
        size = setting.batch
        values = (
            setting.case,
            setting.mode,
            setting.implementation,
            size,
            setting.dtype,
            "" if setting.has("floor") else _iterations(one),
            *("" if n is None else n for n in (setting.classes, setting.side, setting.pose)),
            f"{one.images_per_s:.4g}",
            f"{size / one.quantile(0.9):.4g}",
            f"{size / one.quantile(0.1):.4g}",
            "" if one.peak_mib != one.peak_mib else f"{one.peak_mib:.0f}",
            f"{one.images_per_s / floor:.3f}" if floor else "",
            f"{one.ready_s:.1f}",
            where,
            torch.__version__,
            triton,
            revision,
            datetime.datetime.now(datetime.UTC).date().isoformat(),
        )
        rows.append({name: str(value) for name, value in zip(COLUMNS, values, strict=True)})
    return rows


def _key(measured: Measured) -> tuple[object, ...]:
    one = measured.setting
    return one.case, one.mode, one.batch, one.dtype, one.classes, one.side, one.pose


def _iterations(measured: Measured) -> str:
    if measured.setting.iterations is not None:
        return str(measured.setting.iterations)
    with torch.device("meta"):
        net = network(measured.setting)
    counts = [getattr(net, "iterations", None)]
    counts += [getattr(module, "iterations", None) for module in net.modules()]
    known = [count for count in counts if count is not None]
    return str(known[0]) if known else ""


def _processor() -> str:
    return f"{platform.machine()} CPU x{torch.get_num_threads()}"


def append(path: Path, rows: Iterable[Row]) -> None:
    """Add rows to a CSV file, which is begun if there is none; without rows, only that."""
    head = ",".join(COLUMNS)
    lines = read_lines(path) if path.is_file() else []
    if (lines and lines[0] != head) or (not lines and path.is_file() and path.stat().st_size):
        raise InputError(f"{path} is no file of speeds, which begins with {head[:40]}...")
    if not lines:
        append_line(path, head)
    for row in rows:
        line = io.StringIO()
        csv.DictWriter(line, COLUMNS, lineterminator="").writerow(row)
        append_line(path, line.getvalue())


def read(path: Path) -> list[Row]:
    """All rows of a CSV file."""
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def headline(rows: Iterable[Row]) -> list[Row]:
    """The rows a first look needs: networks as published, on a GPU compiled and as a graph."""
    return [
        row
        for row in rows
        if row["mode"] == "train"
        and ("CPU" in row["gpu"] or row["implementation"].endswith("+compile+graph"))
        and not any(row[key] for key in ("classes", "side", "pose"))
    ]


def _place(row: Row) -> tuple[object, ...]:
    """Where a row stands: GPUs first, then by network, each batch from its floor on."""
    sizes = (int(row[key] or 0) for key in ("classes", "side", "pose", "batch"))
    way, *more = row["implementation"].split("+")
    return (
        "CPU" in row["gpu"],
        row["gpu"],
        row["case"],
        row["mode"] != "train",
        *sizes,
        WAYS.index(way) if way in WAYS else len(WAYS),
        -len(more),
        way,
        int(row["iterations"] or 0),
    )


def table(rows: Iterable[Row]) -> str:
    """Rows as a Markdown table by network; of the same thing measured twice, the later one."""
    latest: dict[tuple[str, ...], Row] = {}
    for row in rows:
        latest[tuple(row[name] for name in (*COLUMNS[:9], "gpu"))] = row
    lines = [f"| {' | '.join(HEADINGS)} |", "|---" * len(HEADINGS) + "|"]
    for row in sorted(latest.values(), key=_place):
        share = f"{100 * float(row['share_of_floor']):.0f} %" if row["share_of_floor"] else ""
        runs = row["implementation"].replace("+", " + ")
        if row["mode"] != "train":
            runs += f", {row['mode']}"
        sizes = [f"{key} {row[key]}" for key in ("classes", "side", "pose") if row[key]]
        cells = (
            ", ".join([row["case"], *sizes]),
            row["gpu"].removeprefix("NVIDIA ").removeprefix("x86_64 "),
            runs,
            row["batch"],
            row["dtype"],
            row["iterations"],
        )
        fast = float(row["images_per_s"])
        speed = f"{fast:,.0f}" if fast >= 100 else f"{fast:.1f}"
        lines.append(f"| {' | '.join((*cells, speed, row['peak_mib'], share))} |")
    return "\n".join(lines)
