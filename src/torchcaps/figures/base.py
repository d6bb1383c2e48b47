"""What every figure of a report is made from, and how much work goes into it."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.analysis import Subject
from torchcaps.errors import TorchcapsError
from torchcaps.figures.report import Picture

__all__ = ["Effort", "Maker", "NotDrawnError", "each", "images_of"]


class NotDrawnError(TorchcapsError, ValueError):
    """A figure that does not apply; its message says why."""


@dataclass(frozen=True)
class Effort:
    """How many images each measurement takes.

    Attributes:
        samples: for accuracies, alignments and reconstructions.
        attacked: for adversarial curves, which take some hundred passes each.
        traced: for routing, where every vote is kept.
        pairs: for the equivariance score.
        shown: pictures in a row.
        speed: the benchmark's rows.
    """

    samples: int = 1000
    attacked: int = 200
    traced: int = 32
    pairs: int = 4000
    shown: int = 8
    speed: Path = Path("results/speed.csv")


Maker = Callable[[Sequence[Subject], Effort], Iterator[Picture]]


def images_of(subjects: Sequence[Subject], count: int) -> str:
    """What a measurement of so many images takes, such as "200 test images"."""
    numbers = {min(count, len(subject.source)) for subject in subjects}
    kinds = " or ".join(dict.fromkeys(subject.split for subject in subjects))
    return f"{'up to ' * (len(numbers) > 1)}{max(numbers)} {kinds} images"


def each(draw: Callable[[Subject, Effort], Picture]) -> Maker:
    """One picture for every subject it applies to, then `NotDrawnError` if there are others."""

    def make(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
        reasons = []
        for number, subject in enumerate(subjects):
            try:
                drawn = draw(subject, effort)
            except TorchcapsError as error:
                reasons.append(f"{subject.name}: {error}")
                continue
            name = drawn.name if len(subjects) == 1 else f"{drawn.name}-{number}"
            title = subject.name if len(subjects) > 1 else drawn.title
            yield Picture(name, drawn.group, title, drawn.caption, drawn.figure, drawn.data)
        if reasons:
            raise NotDrawnError("; ".join(reasons))

    return make
