"""All figures by name, and reports of them."""

import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torchcaps import analysis
from torchcaps.analysis import Subject
from torchcaps.analysis.outputs import in_parts
from torchcaps.data import Strokes
from torchcaps.errors import InputError, UsageError, suggest
from torchcaps.figures.base import Effort, Maker, NotDrawnError, images_of
from torchcaps.figures.compared import COMPARED
from torchcaps.figures.report import Picture, write_picture, write_report
from torchcaps.figures.single import SINGLE
from torchcaps.models import Network
from torchcaps.models.weights.facts import digest_weights
from torchcaps.results import AccuracyRow
from torchcaps.storage import write_text

GALLERY: dict[str, Maker] = {**SINGLE, **COMPARED}
"""Figure name -> its maker; ``--only`` takes these names."""


OWNER = "weights.sha256"
"""File of a folder of figures with the hash of the weights that they show."""
MAX_NAME = 120

QUICK = Effort(samples=60, attacked=10, traced=16)
"""Effort of a first look: about a minute of one core for a full-size network."""

DEMO_COMPARISONS = ("alignment", "equivariance", "robustness", "adversarial")


def quick(networks: int) -> Effort:
    """Return the effort of a demonstration: about 15 seconds of one core for all networks."""
    each = max(40, 240 // max(1, networks))
    return Effort(samples=each, attacked=max(10, each // 4), traced=16, pairs=1000)


def check_names(names: Sequence[str]) -> None:
    """Refuse a figure that does not exist."""
    for name in names:
        if name not in GALLERY:
            raise UsageError(f"there is no figure {name!r}: {suggest(name, GALLERY)}")


def draw(
    subjects: Sequence[Subject],
    *,
    only: Sequence[str] = (),
    effort: Effort | None = None,
    progress: Callable[[str], None] = lambda name: None,
    drawn: Callable[[Picture], object] = lambda picture: None,
) -> tuple[list[Picture], list[tuple[str, str]]]:
    """Draw every figure that applies.

    Args:
        subjects: networks with their test images.
        only: names of `GALLERY`; an empty sequence draws all.
        effort: number of images of each measurement.
        progress: called with the name of each figure before it is drawn.
        drawn: called with each picture when it is drawn.

    Returns:
        The pictures, and (figure, reason) for the figures that do not apply.
    """
    if not subjects:
        raise InputError("there is nothing to draw: name a run, a weight file or a recipe")
    check_names(only)
    pictures: list[Picture] = []
    left_out: list[tuple[str, str]] = []
    for name, make in GALLERY.items():
        if only and name not in only:
            continue
        progress(name)
        try:
            for picture in make(unique(subjects), effort or Effort()):
                names = picture.subjects or tuple(one.name for one in unique(subjects))
                picture = replace(picture, subjects=names)
                drawn(picture)
                pictures.append(picture)
        except NotDrawnError as reason:
            left_out.append((name, str(reason)))
    return pictures, left_out


def unique(subjects: Sequence[Subject]) -> list[Subject]:
    """Return the subjects with unique names, numbered where they are equal."""
    names = [subject.name for subject in subjects]
    return [
        replace(subject, name=f"{subject.name} ({number})")
        if names.count(subject.name) > 1
        else subject
        for number, subject in enumerate(subjects, start=1)
    ]


def report(
    subjects: Sequence[Subject],
    out: str | Path,
    *,
    command: str,
    only: Sequence[str] = (),
    effort: Effort | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Path:
    """Draw the figures into a folder and return the path of its ``index.html``.

    Each picture is written as soon as it is drawn, and the page last.

    Args:
        subjects: networks with their test images.
        out: the folder.
        command: command line to show on the page.
        only: see :func:`draw`.
        effort: see :func:`draw`.
        progress: see :func:`draw`.
    """
    effort = effort or Effort()
    subjects = unique(subjects)
    pictures, left_out = draw(
        subjects,
        only=only,
        effort=effort,
        progress=progress,
        drawn=lambda picture: write_picture(picture, out),
    )
    if not pictures:
        raise InputError("nothing could be drawn: " + "; ".join(why for _, why in left_out))
    table = [_row(subject, effort) for subject in subjects]
    names = ", ".join(subject.name for subject in subjects)
    return write_report(
        pictures,
        out,
        title=f"Looking inside {names}",
        command=command,
        table=table,
        left_out=left_out,
    )


def subject_folder(out: str | Path, subjects: Sequence[Subject]) -> Path:
    """Return the folder of these networks' figures within ``out``, and mark it as theirs.

    A folder that holds figures of other weights is left alone: the next free number is added.
    """
    name = "-and-".join(_slug(subject.name) for subject in unique(subjects))
    digest = hashlib.sha256()
    for subject in subjects:
        digest.update(digest_weights(subject.network).encode())
    if len(name) > MAX_NAME:
        name = f"{name[:MAX_NAME]}-{digest.hexdigest()[:8]}"
    number, folder = 1, Path(out) / name
    while folder.exists() and _owner(folder) != digest.hexdigest():
        number += 1
        folder = Path(out) / f"{name}-{number}"
    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / OWNER, f"{digest.hexdigest()}\n")
    return folder


def _owner(folder: Path) -> str:
    """Return the hash of the weights whose figures a folder holds; empty where it says none."""
    path = folder / OWNER
    return path.read_text(errors="replace").strip() if path.is_file() else ""


def _slug(name: str) -> str:
    return re.sub(r"[^\w.]+", "-", name).strip("-.") or "network"


def _row(subject: Subject, effort: Effort) -> dict[str, str]:
    """Return the row of a network in the table at the top of the page."""
    batch = subject.batch(effort.samples)
    scores = in_parts(subject.network, batch.images).scores
    share = float(analysis.correct(scores, batch.labels, measure=subject.measure).float().mean())
    test = None if subject.result is None else subject.result.test
    return {
        "run": subject.name,
        "network": subject.network.name or type(subject.network).__name__,
        "parameters": f"{subject.network.n_parameters:,}",
        "images": subject.dataset,
        "test, as recorded": f"{test:.2f} %" if isinstance(test, float) else "-",
        "accuracy": f"{share:.1%} of {images_of([subject], effort.samples)}",
    }


def demo_report(
    networks: dict[str, Network],
    out: str | Path,
    *,
    command: str = "torchcaps demo",
    results: Mapping[str, AccuracyRow] | None = None,
    effort: Effort | None = None,
    progress: Callable[[str], None] = lambda name: None,
) -> Path:
    """Write a report of networks that were trained on strokes.

    Figures of one network show the first network; the comparisons show all.

    Args:
        networks: network by name in the figures.
        out: the folder.
        command: command line to show on the page.
        results: row of each run, by the same names.
        effort: number of images of each measurement; None takes few, see :func:`quick`.
        progress: called with the name of each figure before it is drawn.

    Returns:
        The path of ``index.html``.
    """
    subjects = [
        Subject(
            name,
            network,
            Strokes(2000, split="test"),
            "strokes",
            result=(results or {}).get(name),
        )
        for name, network in networks.items()
    ]
    if not subjects:
        raise InputError("a report needs at least one network")
    effort = effort or quick(len(subjects))
    alone, left_out = draw(subjects[:1], only=tuple(SINGLE), effort=effort, progress=progress)
    together, more = draw(subjects, only=DEMO_COMPARISONS, effort=effort, progress=progress)
    return write_report(
        [*alone, *together],
        out,
        title="Looking inside the networks of the demo",
        command=command,
        table=[_row(subject, effort) for subject in subjects],
        left_out=[*left_out, *more],
    )
