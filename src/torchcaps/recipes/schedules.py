"""Learning rate schedules: pure functions of progress, so that resuming restores no state.

Each takes a :class:`Clock` and returns the factor of the recipe's learning rate. Points in time are
shares of the run, so that a shorter run keeps the shape. Where a paper counts steps, ``steps`` is
the length of its run; None counts the steps of our run instead.
"""

import math
from collections.abc import Callable
from typing import NamedTuple


class Clock(NamedTuple):
    """The progress of a run.

    Attributes:
        step: optimizer steps so far.
        steps: steps of the whole run.
        steps_per_epoch: steps of one epoch.
    """

    step: int
    steps: int
    steps_per_epoch: int

    @property
    def share(self) -> float:
        """The share of the run that is done, 0 to 1."""
        return self.step / max(1, self.steps)

    def steps_of(self, steps: int | None) -> float:
        """Return how many of a paper's steps the run has taken; None counts its own."""
        return self.step if steps is None else self.share * steps


Schedule = Callable[[Clock], float]


def constant(clock: Clock) -> float:
    """Keep the learning rate constant."""
    return 1.0


def exponential(
    clock: Clock, *, rate: float, every: int, steps: int | None, floor: float = 0.0
) -> float:
    """Multiply by ``rate`` over ``every`` of ``steps``, continuously, down to ``floor``."""
    return max(floor, math.pow(rate, clock.steps_of(steps) / every))


def milestones(clock: Clock, *, at: tuple[float, ...], factor: float = 0.1) -> float:
    """Multiply by ``factor`` at each of these shares of the run."""
    # a share such as 150 / 350 of the steps may round to just above a whole number
    passed = sum(clock.step + 0.5 > share * clock.steps for share in at)
    return math.pow(factor, passed)


def inverse_time(
    clock: Clock, *, decay: float, steps: int | None, at: float = math.inf, factor: float = 0.5
) -> float:
    """Divide by 1 + ``decay`` times the steps; from the share ``at`` on, multiply by ``factor``."""
    return (factor if clock.share >= at else 1.0) / (1 + decay * clock.steps_of(steps))


def cosine(clock: Clock, *, end: float = 0.0) -> float:
    """Follow half a cosine from 1 to ``end``."""
    return end + (1 - end) * 0.5 * (1 + math.cos(math.pi * min(1.0, clock.share)))


def one_cycle(clock: Clock, *, peak: float = 0.2, start: float = 0.04, end: float = 1e-4) -> float:
    """Rise linearly from ``start`` to 1 at the share ``peak`` of the run, then fall to ``end``."""
    share = min(1.0, clock.share)
    if share < peak:
        return start + (1 - start) * share / peak
    return 1 + (end - 1) * (share - peak) / (1 - peak)
