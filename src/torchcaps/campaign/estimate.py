"""The time that a run needs, from recorded rows and from its own curve."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchcaps.recipes import RECIPES, Recipe
from torchcaps.results import AccuracyRow, CurvePoint

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
                if found := [row for row in rows if is_like(row, recipe)]:
                    newest = max(found, key=lambda row: row.date)
                    return newest.seconds / newest.epochs
        return None

    def seconds_left(self, recipe: Recipe, curve: Sequence[CurvePoint], gpu: str) -> float | None:
        """Return the seconds that a run still needs; None while nothing tells."""
        done = curve[-1].epoch if curve else 0
        pace = measured_pace(curve) or self.seconds_per_epoch(recipe, gpu)
        return None if pace is None else max(0, recipe.epochs - done) * pace


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
