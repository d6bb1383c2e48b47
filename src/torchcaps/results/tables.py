"""Tables of the recorded runs beside the papers' numbers."""

import statistics
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from torchcaps.results.record import Row
from torchcaps.storage import write_text

__all__ = ["Summary", "markdown", "summarise", "text", "write_readme"]

OPEN, CLOSE = "<!-- results -->", "<!-- /results -->"
NOTHING = "No finished run is recorded yet.\n"
HEADINGS = ("recipe", "ours", "seeds", "paper", "parameters", "epochs", "seconds", "device")

TITLES = {
    "sabour2017": "Sabour 2017",
    "hinton2018": "Hinton 2018",
    "choi2019": "Choi 2019",
    "tsai2020": "Tsai 2020",
    "zhao2020": "Zhao 2020",
    "yang2021": "Yang 2021",
    "demo": "Demo",
}
"""How the papers are headed, in order; the part of a recipe's name before the slash."""


@dataclass(frozen=True)
class Summary:
    """A recipe over its seeds.

    Attributes:
        recipe: its name.
        mean: of the test accuracies, in percent.
        spread: their standard deviation; None for one seed.
        n: seeds.
        paper: what the paper prints.
        parameters: how many numbers are learned.
        epochs: trained.
        seconds: of training, mean.
        images_per_s: mean.
        gpu: the devices, by name.
    """

    recipe: str
    mean: float
    spread: float | None
    n: int
    paper: float | None
    parameters: int
    epochs: int
    seconds: float
    images_per_s: float
    gpu: str


def summarise(rows: Iterable[Row]) -> list[Summary]:
    """Mean and spread of each recipe over the runs of it as it is, grouped by paper.

    Of several runs with one seed the latest counts. Modified and dirty runs do not.
    """
    recipes: dict[str, dict[int, Row]] = {}
    for row in rows:
        if not row.modified and not row.dirty:
            recipes.setdefault(row.recipe, {})[row.seed] = row
    summaries = []
    for name, seeds in recipes.items():
        runs = list(seeds.values())
        tests = [run.test for run in runs]
        summaries.append(
            Summary(
                recipe=name,
                mean=statistics.fmean(tests),
                spread=statistics.stdev(tests) if len(tests) > 1 else None,
                n=len(tests),
                paper=runs[-1].paper,
                parameters=runs[-1].parameters,
                epochs=runs[-1].epochs,
                seconds=statistics.fmean(run.seconds for run in runs),
                images_per_s=statistics.fmean(run.images_per_s for run in runs),
                gpu=", ".join(sorted({run.gpu for run in runs})),
            )
        )
    order = list(TITLES)
    return sorted(
        summaries,
        key=lambda summary: (
            order.index(_paper(summary)) if _paper(summary) in order else len(order),
            _paper(summary),
            summary.recipe,
        ),
    )


def markdown(rows: Iterable[Row]) -> str:
    """The tables for a README, one per paper."""

    def table(title: str, lines: list[list[str]]) -> str:
        made = [f"### {title}\n", *(f"| {' | '.join(line)} |" for line in lines)]
        made.insert(2, "|" + "---|" * len(HEADINGS))
        return "\n".join(made) + "\n"

    return _tables(rows, table)


def text(rows: Iterable[Row]) -> str:
    """The tables for a terminal, one per paper."""

    def table(title: str, lines: list[list[str]]) -> str:
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        made = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        return "\n".join([title, *made]) + "\n"

    return _tables(rows, table)


def write_readme(readme: str | Path, rows: Iterable[Row]) -> bool:
    """Put the tables between the marks of a README; whether anything changed."""
    readme = Path(readme)
    if not readme.is_file():
        raise ValueError(f"there is no {readme} here to write the tables into")
    old = readme.read_text()
    before, opened, rest = old.partition(OPEN + "\n")
    _, closed, after = rest.partition(CLOSE)
    if not opened or not closed:
        raise ValueError(f"{readme} has no {OPEN} and {CLOSE} on lines of their own; add them")
    new = before + opened + markdown(rows) + closed + after
    if new == old:
        return False
    write_text(readme, new)
    return True


def _tables(rows: Iterable[Row], table: Callable[[str, list[list[str]]], str]) -> str:
    papers: dict[str, list[list[str]]] = {}
    for summary in summarise(rows):
        papers.setdefault(_paper(summary), [list(HEADINGS)]).append(_cells(summary))
    made = [table(TITLES.get(paper, paper), lines) for paper, lines in papers.items()]
    return "\n".join(made) or NOTHING


def _paper(summary: Summary) -> str:
    return summary.recipe.partition("/")[0]


def _cells(summary: Summary) -> list[str]:
    spread = "" if summary.spread is None else f" ± {summary.spread:.2f}"
    return [
        summary.recipe,
        f"{summary.mean:.2f}{spread}",
        str(summary.n),
        "-" if summary.paper is None else f"{summary.paper:.2f}",
        f"{summary.parameters:,}",
        str(summary.epochs),
        f"{summary.seconds:,.0f}",
        summary.gpu,
    ]
