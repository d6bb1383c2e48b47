"""Figures that compare several networks in one plot."""

from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

from torchcaps import analysis
from torchcaps.analysis import CORRUPTIONS, AccuracyCurve, Subject
from torchcaps.errors import TorchcapsError
from torchcaps.figures import curves
from torchcaps.figures.base import Effort, Maker, NotDrawnError, each, images_of
from torchcaps.figures.report import Picture
from torchcaps.results import read_speed
from torchcaps.train.outputs.folder import RunFolder

DIGITS = tuple("0123456789")

T = TypeVar("T")


def _gather(
    measure: Callable[[Subject], T], subjects: Sequence[Subject]
) -> tuple[dict[str, T], str]:
    """Measure every subject; return results by name, and why the others have none."""
    results: dict[str, T] = {}
    reasons = []
    for subject in subjects:
        try:
            results[subject.name] = measure(subject)
        except TorchcapsError as error:
            reasons.append(f"{subject.name}: {error}")
    return results, "; ".join(reasons)


def _alignment(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.Alignment:
        batch = subject.batch(effort.samples)
        if batch.labels.dim() > 1:
            raise NotDrawnError("its images show two objects each")
        return analysis.alignment(subject.network, batch.images, batch.labels)

    results, reasons = _gather(measure, subjects)
    if results:
        yield Picture(
            "alignment",
            "Equivariance",
            "Alignment ratio",
            "Share of the change of the class capsule that lies along one line while the image is "
            f"rotated by 5 to 25 degrees or shifted by 1 to 5 pixels, over {effort.samples} test "
            "images (Choi 2019, Table 3). The baseline for random vectors is shown as computed "
            "and as the paper prints it; the two differ. An untrained network is far above both, "
            "so compare networks with each other, not with the baseline.",
            curves.draw_alignment(results),
            results,
        )
        yield Picture(
            "cosines",
            "Equivariance",
            "Positive against negative transformations",
            "Cosine between the lines of positive and of negative transformations (Choi 2019, "
            "Fig. 4): -1 is a capsule that moves in opposite directions for opposite changes of "
            "the image, 1 one that moves in the same direction for both.",
            curves.draw_cosines(results),
            {name: one.cosines for name, one in results.items()},
        )
    if reasons:
        raise NotDrawnError(reasons)


def _equivariance(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.Equivariance:
        if tuple(subject.source.classes) != DIGITS:
            raise NotDrawnError("strokes are digits, and it does not classify digits")
        return analysis.equivariance(subject.network, pairs=effort.pairs)

    results, reasons = _gather(measure, subjects)
    if results:
        size = next(s for s in subjects if s.name in results).network.image_shape[1]
        results["pixels"] = analysis.pixel_equivariance(size=size, pairs=effort.pairs)
        yield Picture(
            "equivariance",
            "Equivariance",
            "Pose change read from capsule change",
            f"{effort.pairs} digits of strokes, each in two known poses: R^2 of the "
            "linear prediction of the change of pose from the change of the class capsule, fitted "
            "for each class on half of the pairs and scored on the other half. Networks without "
            "capsules use the input of their last linear layer. More than 16 numbers are reduced "
            "to 16 principal components, also of the pixels. Values below -0.2 are drawn as -0.2.",
            curves.draw_equivariance(results),
            results,
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

    results, _ = _gather(measure, subjects)
    yield Picture(
        "robustness",
        "Robustness",
        "Accuracy on corrupted images",
        f"Accuracy on {images_of(subjects, effort.samples)}, rotated, shifted, scaled, sheared, "
        "covered by a black square, overlaid by another image, and with noise; the band is one "
        "standard error.",
        curves.draw_robustness(results),
        results,
    )


def _adversarial(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    def measure(subject: Subject) -> analysis.AdversarialCurve:
        batch = subject.batch(effort.attacked)
        return analysis.adversarial(
            subject.network, batch.images, batch.labels, measure=subject.measure
        )

    results, _ = _gather(measure, subjects)
    yield Picture(
        "adversarial",
        "Robustness",
        "Accuracy under attack",
        f"Accuracy on {images_of(subjects, effort.attacked)} after one step (FGSM) and ten (PGD) "
        "along the sign of the gradient of the margin between scores. Images whose gradient is "
        "exactly zero cannot be attacked this way, which is not robustness; the legend has their "
        "share.",
        curves.draw_adversarial(results),
        results,
    )


def _training(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    training_curves, reasons = [], []
    for subject in subjects:
        if subject.run is None:
            reasons.append(f"{subject.name}: it has no run folder")
            continue
        try:
            training_curves.append(analysis.training_curve(subject.run, name=subject.name))
        except (TorchcapsError, OSError) as error:
            reasons.append(f"{subject.name}: {error}")
    if training_curves:
        yield Picture(
            "training",
            "Training",
            "Convergence",
            "Loss and accuracy by epoch (as Tsai 2020, Figs. 4 and 5; Zhao 2020, Figs. 4 and 5; "
            "Yang 2021, Fig. 3).",
            curves.draw_training(training_curves),
            training_curves,
        )
    if reasons:
        raise NotDrawnError("; ".join(reasons))


def _routing_by_epoch(subject: Subject, effort: Effort) -> Picture:
    points = RunFolder(subject.run).routing_curve() if subject.run else []
    if not points:
        raise NotDrawnError("it has no run folder, or its run recorded no routing")
    return Picture(
        "routing-by-epoch",
        "Training",
        "What routing does while it is learned",
        f"On {points[-1].images} fixed images by epoch. Top left: entropy of the couplings behind "
        "the predictions; 1 is uniform. Top right: activations of the parents; constant ones carry "
        "nothing. Bottom left: capsules that are never active, and those that always are. "
        "Bottom right: predictions that change when all couplings are made uniform.",
        curves.draw_routing_by_epoch(points),
        points,
    )


def _cost(subjects: Sequence[Subject], effort: Effort) -> Iterator[Picture]:
    try:
        rows = read_speed(effort.speed)
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
    "routing-by-epoch": each(_routing_by_epoch),
    "cost": _cost,
}
"""Figure name -> its maker."""
