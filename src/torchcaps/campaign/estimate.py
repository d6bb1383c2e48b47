"""The time that a run needs, from recorded rows and from its own curve."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.campaign.entries import Entry, read_sections
from torchcaps.recipes import RECIPES, Recipe
from torchcaps.results import AccuracyRow, CurvePoint
from torchcaps.results.tables import markdown_table, write_between

HEADINGS = ("section", "runs", "minutes", "runs of unknown time")

FIRST_EPOCHS = 2
"""Epochs of a resumed run whose own pace is not trusted, for they may include compilation."""


@dataclass(frozen=True)
class Pace:
    """Recorded seconds per epoch of each recipe, the newest row last."""

    rows: Sequence[AccuracyRow] = ()

    def seconds_per_epoch(self, recipe: Recipe, gpu: str) -> float | None:
        """Return the recorded seconds of one epoch; None where nothing alike was recorded.

        A row of the recipe on the same device comes first, then one of a recipe with the same
        network and data set, and last the same two on another device.
        """
        alike = [row for row in self.rows if row.epochs > 0 and row.seconds > 0]
        for same_device in (True, False):
            rows = [row for row in alike if (row.gpu == gpu) is same_device]
            for is_like in (_is_same, _has_same_network):
                if matches := [row for row in rows if is_like(row, recipe)]:
                    newest = max(matches, key=lambda row: row.date)
                    return newest.seconds / newest.epochs
        return None

    def seconds_left(self, recipe: Recipe, curve: Sequence[CurvePoint], gpu: str) -> float | None:
        """Return the seconds that a run still needs; None while nothing tells."""
        done = curve[-1].epoch if curve else 0
        pace = measured_pace(curve) or self.seconds_per_epoch(recipe, gpu)
        return None if pace is None else max(0, recipe.epochs - done) * pace


def write_estimates(
    page: str | Path, list_path: str | Path, rows: Sequence[AccuracyRow], gpu: str
) -> bool:
    """Write the minutes of each section of a list between the marks ``plan`` of a page."""
    table = estimate_sections(read_sections(list_path), Pace(rows), gpu)
    return write_between(page, "plan", table)


def estimate_sections(sections: Mapping[str, Sequence[Entry]], pace: Pace, gpu: str) -> str:
    """Return a table of the minutes that the runs of each section take, one after the other."""
    cells = []
    for title, entries in sections.items():
        if entries:
            times = [pace.seconds_left(entry.recipe, (), gpu) for entry in entries]
            known = [seconds for seconds in times if seconds is not None]
            minutes = f"{sum(known) / 60:,.0f}" if known else "?"
            cells.append((title, str(len(times)), minutes, str(len(times) - len(known))))
    return markdown_table(HEADINGS, cells)


def measured_pace(curve: Sequence[CurvePoint]) -> float | None:
    """Return the seconds per epoch of the newest epochs of a curve; None for a short curve."""
    times = [(point.epoch, point.seconds) for point in curve if point.seconds is not None][-10:]
    if len(times) <= FIRST_EPOCHS:
        return None
    (first, start), (last, end) = times[0], times[-1]
    return (end - start) / (last - first)


def _is_same(row: AccuracyRow, recipe: Recipe) -> bool:
    return row.recipe == recipe.name


def _has_same_network(row: AccuracyRow, recipe: Recipe) -> bool:
    other = RECIPES.get(row.recipe)
    return other is not None and (other.network, other.dataset) == (recipe.network, recipe.dataset)
