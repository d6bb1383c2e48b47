"""The order of a campaign on its slots, by the time each run is expected to need."""

from collections.abc import Sequence
from dataclasses import dataclass

from torchcaps.campaign.entries import Entry

NEVER = float("inf")


@dataclass(frozen=True)
class Planned:
    """A run of a plan.

    Attributes:
        entry: the run.
        slot: number of the slot that it runs in.
        start: seconds from now until it starts; infinite if no slot becomes free in time.
        seconds: seconds that it still needs; None if unknown.
        limit: seconds of the whole campaign.
    """

    entry: Entry
    slot: int
    start: float
    seconds: float | None
    limit: float

    @property
    def verdict(self) -> str:
        """The expected outcome, in words."""
        if self.start >= self.limit:
            return "not started"
        if self.seconds is None:
            return "unknown"
        return "finishes" if self.start + self.seconds <= self.limit else "goes on next time"


def plan(
    entries: Sequence[Entry], seconds: Sequence[float | None], *, slots: int, limit: float
) -> list[Planned]:
    """Assign each run, in the order of the list, to the slot that is free first.

    A run of unknown time is assumed to fill the time that is left.
    """
    free = [0.0] * slots
    planned = []
    for entry, needed in zip(entries, seconds, strict=True):
        slot = min(range(slots), key=free.__getitem__)
        planned.append(Planned(entry, slot, free[slot], needed, limit))
        free[slot] += NEVER if needed is None else needed
    return planned
