"""The metrics of ``torchcaps evaluate`` as lines of at most 80 columns."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from torchcaps.cli.predict import INVERTED

MOST_CLASSES = 12
"""Classes up to which the whole confusion matrix is printed."""


def describe_scores(scores: Mapping[str, Mapping[str, Any]], data: Path | None) -> str:
    """Return the accuracy and the metrics of each network; warn of inverted images."""
    from torchcaps.recipes import RECIPES

    lines: list[str] = []
    for name, value in scores.items():
        weights = value.get("weights", name)
        source = f" (weights of {weights})" if name in RECIPES and weights != name else ""
        if value.get("looks_inverted"):
            typer.echo(f"{name}: the images of {data} {INVERTED}", err=True)
        unit = "% R² on" if "r2" in value else "% of"
        lines.append(f"{name}{source}: {value['percent']:.2f} {unit} {value['images']:,} images")
        lines.extend(_metric_lines(value))
    return "\n".join(lines)


def _metric_lines(scores: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of one network's metrics; none for images of several objects."""
    if "r2" in scores:
        yield ""
        yield f"  {'number':20} {'R²':>8}"
        yield from (f"  {name[:20]:20} {100 * r2:6.2f} %" for name, r2 in scores["r2"].items())
    if "per_class" not in scores:
        return
    yield (
        f"  balanced {scores['balanced']:.2f} %, top 2 {scores['top2']:.2f} %, "
        f"calibration error (ECE) {scores['ece']:.2f} %"
    )
    yield ""
    names, confusion = list(scores["per_class"]), scores["confusion"]
    shown = [number for number, counts in enumerate(confusion) if sum(counts)]
    if len(shown) > MOST_CLASSES:
        shown = sorted(shown, key=lambda number: scores["per_class"][names[number]])[:MOST_CLASSES]
        yield f"  the {len(shown)} worst of {len(names)} classes"
    yield f"  {'class':20} {'images':>7} {'right':>8}   most often taken for"
    for number in shown:
        percent = scores["per_class"][names[number]]
        line = f"  {names[number][:20]:20} {sum(confusion[number]):7,} {percent:6.2f} %   "
        yield (line + _mistakes(names, confusion[number], number))[:80].rstrip()
    if len(names) <= MOST_CLASSES:
        yield from _matrix(names, confusion)


def _mistakes(names: list[str], counts: list[int], label: int) -> str:
    """Name the two classes that images of a class are most often taken for."""
    wrong = [(count, n) for n, count in enumerate(counts) if n != label and count]
    worst = sorted(wrong, key=lambda pair: -pair[0])[:2]
    return ", ".join(f"{names[n][:14]} ({count})" for count, n in worst)


def _matrix(names: list[str], confusion: list[list[int]]) -> Iterator[str]:
    """Yield the confusion matrix, its columns headed by the first letters of the classes."""
    width = max(5, *(len(f"{count:,}") + 1 for row in confusion for count in row))
    width = min(width, (80 - 14) // len(names))
    yield ""
    yield "  true class (rows) and predicted class (columns), in images"
    yield " " * 14 + "".join(name[: width - 1].rjust(width) for name in names)
    for name, counts in zip(names, confusion, strict=True):
        cells = "".join((f"{count}" if count else ".").rjust(width) for count in counts)
        yield f"  {name[:11]:12}{cells}"


def check_figure(path: Path | None) -> None:
    """Refuse a figure file of another format, before anything is scored."""
    from torchcaps.errors import UsageError

    if path is not None and path.suffix.lower() not in (".png", ".svg"):
        raise UsageError(f"{path} must end in .png or .svg")
