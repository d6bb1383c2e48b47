"""Panels of a paper's figure, and their numbers from the recorded runs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from torchcaps.recipes import twins
from torchcaps.results.accuracy import AccuracyRow
from torchcaps.results.curves import CurvePoint
from torchcaps.results.summary import (
    SUPERSEDED,
    Curves as CurveOf,
    Summary,
    results_by_recipe,
    runs_of,
    summarize,
)

Column = Literal["accuracy", "train", "test", "loss"]
"""A column of a curve; "accuracy" is "test" where all runs watched it, and "train" elsewhere."""

AXES = {"train": "training accuracy (%)", "test": "test accuracy (%)", "loss": "training loss"}


@dataclass(frozen=True)
class Curves:
    """A panel of training curves.

    Attributes:
        title: title of the panel.
        recipes: label -> recipe.
        column: what is drawn by epoch.
    """

    title: str
    recipes: Mapping[str, str]
    column: Column = "accuracy"


@dataclass(frozen=True)
class Counts:
    """A panel of test accuracy by routing iterations.

    Attributes:
        title: title of the panel.
        recipes: label -> iterations -> recipe.
    """

    title: str
    recipes: Mapping[str, Mapping[int, str]]


@dataclass(frozen=True)
class Drawing:
    """A figure of a paper.

    Attributes:
        name: name in the paper, such as "Figure 4".
        caption: what it shows, and what of it is not measured.
        panels: its panels.
    """

    name: str
    caption: str
    panels: tuple[Curves | Counts, ...]


@dataclass(frozen=True)
class DrawnLine:
    """A line of a panel: one stroke per seed, or one through the means of several recipes."""

    label: str
    strokes: tuple[tuple[tuple[float, float], ...], ...]


@dataclass(frozen=True)
class DrawnPanel:
    """The numbers of a panel."""

    title: str
    x: str
    y: str
    lines: tuple[DrawnLine, ...]


class Record:
    """The recorded runs, as panels need them.

    Args:
        rows: the rows of the record.
        curves: returns the curve of a row.
    """

    def __init__(self, rows: Sequence[AccuracyRow], curves: CurveOf) -> None:
        self.rows = rows
        self.curves = curves
        self.summaries = summarize(rows)
        self.results = results_by_recipe(rows)

    def panel(self, panel: Curves | Counts) -> DrawnPanel:
        """Return the numbers of a panel; without lines if nothing is recorded."""
        return self._curves(panel) if isinstance(panel, Curves) else self._counts(panel)

    def missing(self, panel: Curves | Counts) -> list[str]:
        """Return the recipes of a panel that have no run."""
        if isinstance(panel, Curves):
            names = list(panel.recipes.values())
        else:
            names = [name for series in panel.recipes.values() for name in series.values()]
        return [name for name in names if name not in self.results]

    def _curves(self, panel: Curves) -> DrawnPanel:
        runs = {
            f"{label} ({_detail(found)})": [
                points for row in runs_of(found, self.rows) if (points := self.curves(row))
            ]
            for label, name in panel.recipes.items()
            if (found := self.results.get(name)) is not None
        }
        column = panel.column
        if column == "accuracy":
            watched = [_stroke(points, "test") for drawn in runs.values() for points in drawn]
            column = "test" if watched and all(watched) else "train"
        lines = [
            DrawnLine(label, strokes)
            for label, drawn in runs.items()
            if (strokes := tuple(s for points in drawn if (s := _stroke(points, column))))
        ]
        return DrawnPanel(panel.title, "epoch", AXES[column], tuple(lines))

    def _counts(self, panel: Counts) -> DrawnPanel:
        lines = []
        for label, recipes in panel.recipes.items():
            groups: dict[str, list[tuple[float, float]]] = {}
            for n, name in recipes.items():
                for one in self.summaries:
                    if one.recipe in {name, *twins(name)}:
                        groups.setdefault(_detail(one), []).append((float(n), one.mean))
            lines += [
                DrawnLine(f"{label} ({detail})", (tuple(points),))
                for detail, points in groups.items()
            ]
        return DrawnPanel(panel.title, "routing iterations", AXES["test"], tuple(lines))


def _detail(summary: Summary) -> str:
    """Return the number of seeds, and how the runs differ from the recipe."""
    shorter = "" if summary.of_epochs is None else f", {summary.trained} epochs"
    return f"n = {summary.n}{shorter}{', ' * summary.superseded}{SUPERSEDED * summary.superseded}"


def _stroke(points: Sequence[CurvePoint], column: str) -> tuple[tuple[float, float], ...]:
    """Return the points of one seed that have a value."""
    pairs = ((point.epoch, getattr(point, column)) for point in points)
    return tuple((float(epoch), value) for epoch, value in pairs if value is not None)
