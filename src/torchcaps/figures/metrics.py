"""The figure of ``torchcaps evaluate``: confusion matrix and reliability diagram."""

from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from torchcaps.errors import InputError
from torchcaps.figures.style import DPI, PALETTE, SEQUENTIAL, TEXT, blank, name_axes
from torchcaps.storage import write_bytes

NUMBERED = 20
"""Classes up to which the cells of the matrix hold numbers."""


def draw_metrics(scores: Mapping[str, Mapping[str, Any]], path: Path) -> None:
    """Draw the metrics of each network as a row: confusion matrix and reliability diagram.

    Args:
        scores: metrics by the name of the network, as :func:`evaluate_files` returns them.
        path: a .png or .svg file.
    """
    shown = {name: value for name, value in scores.items() if "per_class" in value}
    if not shown:
        reason = "every image has several objects"
        if any("r2" in value for value in scores.values()):
            reason = "the network predicts numbers"
        raise InputError(f"there is no confusion matrix to draw: {reason}")
    figure, axes = blank(10.5, 4.8 * len(shown), rows=len(shown), columns=2)
    for number, (name, value) in enumerate(shown.items()):
        _draw_confusion(figure, axes[2 * number], value, name)
        _draw_reliability(axes[2 * number + 1], value)
    content = BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "torchcaps", "svg.fonttype": "none"}):
        figure.savefig(content, format=path.suffix[1:].lower(), dpi=DPI)
    write_bytes(path, content.getvalue())


def _draw_confusion(figure: Figure, axis: Axes, value: Mapping[str, Any], name: str) -> None:
    counts = np.array(value["confusion"], dtype=float)
    shares = 100 * counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    shown = axis.imshow(shares, SEQUENTIAL, vmin=0, vmax=100)
    classes = list(value["per_class"])
    if len(classes) <= NUMBERED:
        labels = [one[:12] for one in classes]
        axis.set_xticks(range(len(labels)), labels, rotation=45, ha="right", fontsize=TEXT - 2)
        axis.set_yticks(range(len(labels)), labels, fontsize=TEXT - 2)
        for (row, column), count in np.ndenumerate(counts):
            color = "black" if shares[row, column] > 50 else "white"
            text = f"{count:.0f}" if count else ""
            axis.text(
                column, row, text, ha="center", va="center", fontsize=TEXT - 3, color=color
            ).set_in_layout(False)
    name_axes(axis, "predicted class", "true class", f"{name}: {value['percent']:.2f} %")
    bar = figure.colorbar(shown, ax=axis, shrink=0.8)
    bar.set_label("images of the true class in %", fontsize=TEXT)
    bar.ax.tick_params(labelsize=TEXT - 2)


def _draw_reliability(axis: Axes, value: Mapping[str, Any]) -> None:
    bins = value["reliability"]
    axis.plot([0, 100], [0, 100], color="#888888", linestyle=":", label="perfectly calibrated")
    sizes = [12 + 200 * one["images"] / value["images"] for one in bins]
    places = [one["confidence"] for one in bins], [one["accuracy"] for one in bins]
    axis.plot(*places, color=PALETTE[0], linewidth=1)
    axis.scatter(*places, s=sizes, color=PALETTE[0], label="images of one confidence, area: number")
    axis.set_xlim(0, 102)
    axis.set_ylim(0, 102)
    axis.set_aspect("equal")
    axis.grid(alpha=0.3)
    axis.legend(fontsize=TEXT - 2, loc="upper left")
    name_axes(axis, "confidence in %", "accuracy in %", f"calibration error {value['ece']:.2f} %")
