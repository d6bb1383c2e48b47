"""Figures that put several networks into one plot."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torchcaps import analysis
from torchcaps.analysis import CORRUPTIONS, AccuracyCurve, Subject
from torchcaps.errors import TorchcapsError
from torchcaps.figures import curves
from torchcaps.figures.base import Effort, Maker, NotDrawnError, images_of
from torchcaps.figures.report import Picture

__all__ = ["COMPARED"]

DIGITS = tuple("0123456789")

T = TypeVar("T")


def _gather(
    measure: Callable[[Subject], T], subjects: Sequence[Subject]
) -> tuple[dict[str, T], str]:
    """What was measured by name, and why it was not for the others."""
    found: dict[str, T] = {}
    reasons = []
    for subject in subjects:
        try:
            found[subject.name] = measure(subject)
        except TorchcapsError as error:
            reasons.append(f"{subject.name}: {error}")
    return found, "; ".join(reasons)


def _alignment(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.Alignment:
        batch = subject.batch(effort.samples)
        if batch.labels.dim() > 1:
            raise NotDrawnError("its images show two objects each")
        return analysis.alignment(subject.network, batch.images, batch.labels)

    found, reasons = _gather(measure, subjects)
    if found:
        yield Picture(
            "alignment",
            "Equivariance",
            "Alignment ratio",
            "Share of the change of the class capsule that lies along one line while the image is "
            f"turned by 5 to 25 degrees or shifted by 1 to 5 pixels, over {effort.samples} test "
            "images (Choi 2019, Table 3). The baseline for random vectors is shown as computed "
            "and as the paper prints it; the two differ. An untrained network is far above both, "
            "so compare networks with one another rather than with chance.",
            curves.draw_alignment(found),
            found,
        )
        yield Picture(
            "cosines",
            "Equivariance",
            "Positive against negative transformations",
            "Cosine between the lines of positive and of negative transformations (Choi 2019, "
            "Fig. 4): -1 is a capsule that moves back the way it came, 1 one that moves the same "
            "way whichever way the image goes.",
            curves.draw_cosines(found),
            {name: one.cosines for name, one in found.items()},
        )
    if reasons:
        raise NotDrawnError(reasons)


def _equivariance(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.Equivariance:
        if tuple(subject.source.classes) != DIGITS:
            raise NotDrawnError("strokes are digits, and it does not read digits")
        return analysis.equivariance(subject.network, pairs=effort.pairs)

    found, reasons = _gather(measure, subjects)
    if found:
        size = next(s for s in subjects if s.name in found).network.image_shape[1]
        found["pixels"] = analysis.pixel_equivariance(size=size, pairs=effort.pairs)
        yield Picture(
            "equivariance",
            "Equivariance",
            "Pose change read from capsule change",
            f"Digits drawn by strokes, {effort.pairs} of them in two known poses each: R^2 of the "
            "linear prediction of the change of pose from the change of the class capsule, fitted "
            "for each class on half of the pairs, scored on the other half. Without capsules: "
            "from what enters the last linear layer. More than 16 numbers are reduced to 16 "
            "principal components, bare pixels too. Below -0.2 is drawn as -0.2.",
            curves.draw_equivariance(found),
            found,
        )
    if reasons:
        raise NotDrawnError(reasons)


def _robustness(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> tuple[AccuracyCurve, ...]:
        batch = subject.batch(effort.samples)
        return tuple(
            analysis.robustness(
                subject.network, batch.images, batch.labels, name, measure=subject.measure
            )
            for name in CORRUPTIONS
        )

    found, _ = _gather(measure, subjects)
    yield Picture(
        "robustness",
        "Robustness",
        "Accuracy against what happens to the image",
        f"Accuracy on {images_of(subjects, effort.samples)}, turned, moved, scaled, leant, covered "
        "by a black square, overlaid by another image and made noisy; the band is one standard "
        "error.",
        curves.draw_robustness(found),
        found,
    )


def _adversarial(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.AdversarialCurve:
        batch = subject.batch(effort.attacked)
        return analysis.adversarial(
            subject.network, batch.images, batch.labels, measure=subject.measure
        )

    found, _ = _gather(measure, subjects)
    yield Picture(
        "adversarial",
        "Robustness",
        "Accuracy under attack",
        f"Accuracy on {images_of(subjects, effort.attacked)} after one step (FGSM) and ten (PGD) "
        "along the sign of the gradient of the margin between scores. Images whose gradient is "
        "exactly zero cannot be attacked this way, which is no robustness; their share is in the "
        "legend.",
        curves.draw_adversarial(found),
        found,
    )


def _training(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    found, reasons = [], []
    for subject in subjects:
        if subject.run is None:
            reasons.append(f"{subject.name}: it is not a run folder")
            continue
        try:
            found.append(analysis.training_curve(subject.run, name=subject.name))
        except (TorchcapsError, OSError) as error:
            reasons.append(f"{subject.name}: {error}")
    if found:
        yield Picture(
            "training",
            "Training",
            "Convergence",
            "Loss and accuracy by epoch (as Tsai 2020, Figs. 4 and 5; Zhao 2020, Figs. 4 and 5; "
            "Yang 2021, Fig. 3).",
            curves.draw_training(found),
            found,
        )
    if reasons:
        raise NotDrawnError("; ".join(reasons))


def _cost(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    try:
        rows = analysis.read_speed(effort.speed)
    except (TorchcapsError, OSError) as error:
        raise NotDrawnError(str(error)) from None
    if not rows:
        raise NotDrawnError(f"{effort.speed} has no rows yet: fill it with torchcaps bench")
    gpus = ", ".join(sorted({row.gpu for row in rows if row.gpu}))
    yield Picture(
        "cost",
        "Cost",
        "Time and memory",
        "From the benchmark's rows: time and peak memory against routing iterations "
        "(Tsai 2020, Fig. 4), time of a batch (Zhao 2020, Table 1) and of 100 training steps "
        f"(Yang 2021, Fig. 4). Measured on {gpus or 'this machine'}.",
        curves.draw_cost(rows),
        rows,
    )


COMPARED: dict[str, Maker] = {
    "alignment": _alignment,
    "equivariance": _equivariance,
    "robustness": _robustness,
    "adversarial": _adversarial,
    "training": _training,
    "cost": _cost,
}
"""Name -> what draws it."""
