"""Building blocks of figures: effort, makers and the error of a figure that does not apply."""

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.analysis import Subject
from torchcaps.errors import TorchcapsError
from torchcaps.figures.report import Picture


class NotDrawnError(TorchcapsError, ValueError):
    """A figure that cannot be drawn for these networks."""


@dataclass(frozen=True)
class Effort:
    """The number of images that each measurement takes.

    Attributes:
        samples: images of accuracies, alignments and reconstructions.
        attacked: images of adversarial curves, which take some hundred passes each.
        traced: images of routing figures, which keep every vote.
        pairs: pairs of the equivariance score.
        shown: images in a row.
        speed: CSV file with the rows of the benchmark.
    """

    samples: int = 1000
    attacked: int = 200
    traced: int = 32
    pairs: int = 4000
    shown: int = 8
    speed: Path = Path("results/speed.csv")


Maker = Callable[[Sequence[Subject], Effort], Iterator[Picture]]


def images_of(subjects: Sequence[Subject], count: int) -> str:
    """Describe the images of a measurement, such as "200 test images"."""
    numbers = {min(count, len(subject.source)) for subject in subjects}
    kinds = " or ".join(dict.fromkeys(subject.split for subject in subjects))
    return f"{'up to ' * (len(numbers) > 1)}{max(numbers)} {kinds} images"


def each(draw: Callable[[Subject, Effort], Picture]) -> Maker:
    """Return a maker of one picture per subject, with NotDrawnError at the end for the others."""

    def make(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
        reasons = []
        for number, subject in enumerate(subjects):
            try:
                picture = draw(subject, effort)
            except TorchcapsError as error:
                reasons.append(f"{subject.name}: {error}")
                continue
            picture = dataclasses.replace(picture, subjects=(subject.name,))
            if len(subjects) > 1:
                name = f"{picture.name}-{number}"
                picture = dataclasses.replace(picture, name=name, title=subject.name)
            yield picture
        if reasons:
            raise NotDrawnError("; ".join(reasons))

    return make
