"""The order of a campaign on its places, by the time each run is expected to need."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchcaps.campaign.entries import Entry

NEVER = float("inf")


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    Attributes:
        entry: the run.
        place: number of its place.
        start: seconds from now until it starts; infinite where no place becomes free in time.
        seconds: seconds that it still needs; None where nothing tells.
        limit: seconds of the whole campaign.
    """

    entry: Entry
    place: int
    start: float
    seconds: float | None
    limit: float

    @property
    def verdict(self) -> str:
        """What the plan expects, in words."""
        if self.start >= self.limit:
            return "not started"
        if self.seconds is None:
            return "unknown"
        return "finishes" if self.start + self.seconds <= self.limit else "goes on next time"


def plan(
    entries: Sequence[Entry], seconds: Sequence[float | None], *, places: int, limit: float
) -> list[Planned]:
    """Give each run, in the order of the list, the place that is free first.

    A run whose time is not known is taken to fill the time that is left.
    """
    free = [0.0] * places
    planned = []
    for entry, needed in zip(entries, seconds, strict=True):
        place = min(range(places), key=free.__getitem__)
        planned.append(Planned(entry, place, free[place], needed, limit))
        free[place] += NEVER if needed is None else needed
    return planned
