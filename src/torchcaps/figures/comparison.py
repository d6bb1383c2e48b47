"""A heat map of a comparison: heads in rows, measures of every data set in columns."""

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from torchcaps.figures.style import DIVERGING, TEXT, blank, name_axes
from torchcaps.results import ComparisonRow, datasets_of, differs, table_of
from torchcaps.results.comparison.rows import LATENCY, QUALITY, THROUGHPUT, Cell, Measure

SHOWN = (*QUALITY, THROUGHPUT, LATENCY)
LIMIT = 2.0
"""Deviation from a column's mean at which its color is full, in standard deviations."""


def draw_comparison(rows: Sequence[ComparisonRow]) -> Figure:
    """Draw each measure relative to the mean of its column; the text is the mean over seeds.

    Bold numbers differ from the column's best by two standard errors at most. Where there is no
    spread, the best alone is bold.
    """
    columns = _columns(rows)
    heads = list(dict.fromkeys(row.head for row in rows))
    figure, (axis,) = blank(1.8 + 0.62 * len(columns), 1.9 + 0.3 * len(heads))
    values = np.full((len(heads), len(columns)), np.nan)
    for place, (_, measure, cells) in enumerate(columns):
        for head, cell in cells.items():
            values[heads.index(head), place] = measure.better * cell.mean
    spread = np.nanstd(values, axis=0)
    scores = (values - np.nanmean(values, axis=0)) / np.where(spread > 0, spread, 1)
    shown = axis.imshow(scores, DIVERGING, vmin=-LIMIT, vmax=LIMIT, aspect="auto")
    for place, (_, measure, cells) in enumerate(columns):
        best = max(cells.values(), key=lambda cell: measure.better * cell.mean)
        for head, cell in cells.items():
            row = heads.index(head)
            axis.text(
                place,
                row,
                f"{cell.mean:,.{measure.digits}f}",
                ha="center",
                va="center",
                fontsize=TEXT - 3,
                weight="bold" if is_level(best, cell) else "normal",
                color="white" if abs(scores[row, place]) > 0.6 * LIMIT else "black",
            ).set_in_layout(False)
    names = [f"{dataset}\n{measure.name}" for dataset, measure, _ in columns]
    axis.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=TEXT - 3)
    axis.set_yticks(range(len(heads)), heads, fontsize=TEXT - 1)
    name_axes(axis, "", "")
    bar = figure.colorbar(shown, ax=axis, shrink=0.8)
    bar.set_label("better than the column's mean,\nin standard deviations", fontsize=TEXT - 1)
    bar.ax.tick_params(labelsize=TEXT - 2)
    return figure


def is_level(best: Cell, cell: Cell) -> bool:
    """Return whether a cell is the best, or differs from it by two standard errors at most."""
    return cell is best or (cell.std is not None and not differs(best, cell))


def _columns(rows: Sequence[ComparisonRow]) -> list[tuple[str, Measure, dict[str, Cell]]]:
    """Return data set, measure and cells by head, for each column with any."""
    columns = []
    for dataset in datasets_of(rows):
        table = table_of(rows, dataset)
        for measure in SHOWN:
            cells = {head: row[measure.name] for head, row in table.items() if measure.name in row}
            if cells:
                columns.append((dataset, measure, cells))
    return columns
