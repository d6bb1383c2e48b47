"""Style of every figure: size, palette, tiles of images. No display, no global state."""

from collections.abc import Sequence
from io import BytesIO
from itertools import cycle
from pathlib import Path
from typing import NamedTuple

import matplotlib
import numpy as np
import torch
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from torch import Tensor

from torchcaps.storage import write_bytes

PALETTE = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#000000")
"""Okabe and Ito's colors for all kinds of color vision, without the yellow."""

MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
DASHES = ("-", "--", "-.", ":")
SEQUENTIAL = "cividis"
DIVERGING = "PuOr"
DPI = 120
TEXT = 9.0

Pixels = NDArray[np.float32]


class Line(NamedTuple):
    """Color, marker and dash of a line, so that lines differ in more than their color."""

    color: str
    marker: str
    dash: str

    @staticmethod
    def number(n: int) -> "Line":
        """Return the style of the n-th line of a plot."""
        dash = DASHES[n // len(PALETTE) % len(DASHES)]
        return Line(PALETTE[n % len(PALETTE)], MARKERS[n % len(MARKERS)], dash)


def blank(
    width: float, height: float, *, rows: int = 1, columns: int = 1, title: str = ""
) -> tuple[Figure, list[Axes]]:
    """Return a figure of this size in inches, and its axes row by row."""
    figure = Figure(figsize=(width, height), dpi=DPI, layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False)
    axes = [axis for row in grid for axis in row]
    for axis in axes:
        axis.tick_params(labelsize=TEXT - 1)
    if title:
        figure.suptitle(title, fontsize=TEXT + 1)
    return figure, axes


def class_name(number: int, classes: Sequence[str]) -> str:
    """Return the first letters of a class's name, or its number if it has none."""
    return classes[number][:10] if number < len(classes) else str(number)


def name_axes(axis: Axes, x: str, y: str, title: str = "") -> None:
    """Label both axes."""
    axis.set_xlabel(x, fontsize=TEXT)
    axis.set_ylabel(y, fontsize=TEXT)
    if title:
        axis.set_title(title, fontsize=TEXT)


def legend(axis: Axes, count: int) -> None:
    """Add a legend if there is more than one series."""
    if count > 1:
        axis.legend(fontsize=TEXT - 2, framealpha=0.8)


def lines(
    axis: Axes,
    curves: Sequence[tuple[str, Sequence[float], Sequence[float]]],
    x: str,
    y: str,
    *,
    explained: bool = True,
) -> None:
    """Plot named curves (name, xs, ys), with a legend if ``explained``."""
    for number, (name, xs, ys) in enumerate(curves):
        style = Line.number(number)
        axis.plot(
            xs,
            ys,
            label=name,
            color=style.color,
            marker=style.marker if len(xs) <= 30 else "None",
            linestyle=style.dash,
            markersize=4,
            linewidth=1.4,
        )
    name_axes(axis, x, y)
    axis.grid(alpha=0.3)
    if explained:
        legend(axis, len(curves))


def bars(
    axis: Axes,
    groups: Sequence[str],
    series: Sequence[tuple[str, Sequence[float]]],
    x: str,
    y: str,
) -> None:
    """Plot named series of one bar per group, side by side."""
    width = 0.8 / max(1, len(series))
    hatches = cycle(("", "//", "..", "xx"))
    for number, ((name, values), hatch) in enumerate(zip(series, hatches, strict=False)):
        places = [n + (number - (len(series) - 1) / 2) * width for n in range(len(groups))]
        color = PALETTE[number % len(PALETTE)]
        axis.bar(
            places, values, width, label=name, color=color, hatch=hatch, edgecolor="white", lw=0.5
        )
    axis.set_xticks(range(len(groups)), groups, fontsize=TEXT - 1)
    name_axes(axis, x, y)
    axis.grid(axis="y", alpha=0.3)
    legend(axis, len(series))


def heat(
    figure: Figure,
    axis: Axes,
    values: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    x: str,
    y: str,
    what: str,
    *,
    limit: float | None = 1.0,
) -> None:
    """Draw a table of numbers in colors, with the numbers in the cells."""
    numbers = values.detach().cpu().float().numpy()
    signed = limit is not None
    bounds = (-limit, limit) if limit is not None else (0.0, float(np.nanmax(numbers)))
    shown = axis.imshow(
        numbers, DIVERGING if signed else SEQUENTIAL, vmin=bounds[0], vmax=bounds[1], aspect="auto"
    )
    axis.set_xticks(range(len(columns)), columns, rotation=30, ha="right", fontsize=TEXT - 1)
    axis.set_yticks(range(len(rows)), rows, fontsize=TEXT - 2)
    for (row, column), number in np.ndenumerate(numbers):
        strong = abs(number) > 0.6 * bounds[1] if signed else number < 0.5 * bounds[1]
        color = "white" if strong else "black"
        text = "-" if np.isnan(number) else f"{number:.2f}"
        written = axis.text(
            column, row, text, ha="center", va="center", fontsize=TEXT - 3, color=color
        )
        written.set_in_layout(False)
    name_axes(axis, x, y)
    bar = figure.colorbar(shown, ax=axis, shrink=0.8)
    bar.set_label(what, fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT - 2)


def tiled(images: Tensor, *, gap: int = 1) -> Pixels:
    """Arrange images ``[r k c h w]`` in one picture ``[height width 3]`` on gray."""
    images = as_rgb(images)
    r, k, _, h, w = images.shape
    sheet = images.new_full((r, k, 3, h + gap, w + gap), 0.5)
    sheet[..., :h, :w] = images
    flat = sheet.permute(0, 3, 1, 4, 2).reshape(r * (h + gap), k * (w + gap), 3)
    pixels: Pixels = flat.clamp(0, 1).cpu().numpy().astype(np.float32)
    return pixels


def as_rgb(images: Tensor) -> Tensor:
    """Return images with three channels; of two cameras the first is taken."""
    images = images.detach().float()
    if images.shape[-3] == 3:
        return images
    gray = images.narrow(-3, 0, 1)
    return gray.expand(*gray.shape[:-3], 3, *gray.shape[-2:])


def colored(heat_map: Tensor) -> Tensor:
    """Convert numbers ``[... h w]`` in 0..1 to colors ``[... 3 h w]``."""
    shades = colormaps[SEQUENTIAL](heat_map.detach().cpu().clamp(0, 1).numpy())[..., :3]
    return torch.from_numpy(np.ascontiguousarray(shades)).float().movedim(-1, -3)


def show_tiles(
    axis: Axes,
    images: Tensor,
    rows: Sequence[str],
    columns: Sequence[str],
    x: str,
    y: str,
    *,
    gap: int = 1,
) -> None:
    """Draw images ``[r k c h w]`` as one picture with named rows and columns."""
    h, w = images.shape[-2] + gap, images.shape[-1] + gap
    axis.imshow(tiled(images, gap=gap), interpolation="nearest")
    axis.set_xticks([n * w + w / 2 - 1 for n in range(len(columns))], columns, fontsize=TEXT - 2)
    axis.set_yticks([n * h + h / 2 - 1 for n in range(len(rows))], rows, fontsize=TEXT - 1)
    axis.tick_params(length=0)
    for side in axis.spines.values():
        side.set_visible(False)
    name_axes(axis, x, y)


def save(figure: Figure, stem: Path) -> tuple[Path, Path]:
    """Write ``stem.png``, at 120 pixels per inch, and ``stem.svg``."""
    png, svg = stem.with_suffix(".png"), stem.with_suffix(".svg")
    figure.draw_without_rendering()
    figure.set_layout_engine("none")  # laid out once, not for each file
    png_bytes, svg_bytes = BytesIO(), BytesIO()
    figure.savefig(png_bytes, format="png", dpi=DPI, metadata={"Software": "torchcaps"})
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps", "svg.fonttype": "none"}):
        figure.savefig(svg_bytes, format="svg", dpi=DPI, metadata={"Date": None})
    write_bytes(png, png_bytes.getvalue())
    write_bytes(svg, svg_bytes.getvalue())
    return png, svg
