"""Tables of the recorded runs beside the papers' numbers."""

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torchcaps.errors import InputError
from torchcaps.papers import PAPERS
from torchcaps.results.record import Row
from torchcaps.storage import write_text

__all__ = ["Summary", "markdown", "summarize", "text", "write_page", "write_readme"]

OPEN, CLOSE = "<!-- results -->", "<!-- /results -->"
NOTHING = "No finished run is recorded yet.\n"
HEADINGS = ("recipe", "paper", "ours", "best", "seeds", "epochs", "seconds", "images/s", "device")
PAIR_TITLE = "As published, and as one would train today"
PAIR_HEADINGS = ("network", "parameters", "paper", "ours, as published", "ours, trained as today")
MODERN = "-modern"
"""How the recipe ends that trains the network of another as one would today."""

FILE_HEADINGS = ("recipe", "test", "seed", "stored as", "bytes")
RUN_HEADINGS = (
    "recipe",
    "seed",
    "test",
    "validation",
    "parameters",
    "epochs",
    "seconds",
    "MiB",
    "changed",
    "commit",
    "date",
)

TITLES = {**{key: paper.label for key, paper in PAPERS.items()}, "demo": "Demo"}
"""Headings in order, by the part of a recipe's name before the slash."""

EPOCHS = re.compile(r"epochs=\d+ of (\d+)(?: |$)")
"""A changed number of epochs, and the recipe's own."""

Lines = list[Sequence[str]]


@dataclass(frozen=True)
class Summary:
    """A recipe over its seeds.

    Attributes:
        recipe: its name.
        mean: of the test accuracies, in percent.
        spread: their standard deviation; None for one seed.
        best: the highest of them.
        n: seeds.
        paper: what the paper prints.
        parameters: how many numbers are learned.
        epochs: trained.
        of_epochs: what the recipe asks for, where that is another number; None otherwise.
        seconds: of training, mean.
        images_per_s: mean.
        gpu: the devices, by name.
    """

    recipe: str
    mean: float
    spread: float | None
    best: float
    n: int
    paper: float | None
    parameters: int
    epochs: int
    of_epochs: int | None
    seconds: float
    images_per_s: float
    gpu: str

    @property
    def trained(self) -> str:
        """The epochs, and of how many where the recipe asks for more or fewer."""
        return f"{self.epochs}" + ("" if self.of_epochs is None else f" of {self.of_epochs}")


def summarize(rows: Iterable[Row]) -> list[Summary]:
    """Mean and spread of each recipe over the runs of it as it is, grouped by paper.

    Of several runs with one seed the latest counts. Runs of another number of epochs than the
    recipe's are a summary of their own. Runs with other changes and dirty ones do not count.
    """
    groups: dict[tuple[str, int, int | None], dict[int, Row]] = {}
    for row in rows:
        if _shown(row):
            seeds = groups.setdefault((row.recipe, row.epochs, _of_epochs(row)), {})
            if row.seed not in seeds or row.date >= seeds[row.seed].date:
                seeds[row.seed] = row
    summaries = []
    for (name, epochs, of_epochs), seeds in groups.items():
        runs = list(seeds.values())
        tests = [run.test for run in runs]
        summaries.append(
            Summary(
                recipe=name,
                mean=statistics.fmean(tests),
                spread=statistics.stdev(tests) if len(tests) > 1 else None,
                best=max(tests),
                n=len(tests),
                paper=runs[-1].paper,
                parameters=runs[-1].parameters,
                epochs=epochs,
                of_epochs=of_epochs,
                seconds=statistics.fmean(run.seconds for run in runs),
                images_per_s=statistics.fmean(run.images_per_s for run in runs),
                gpu=", ".join(sorted({run.gpu for run in runs})),
            )
        )
    return sorted(
        summaries,
        key=lambda one: (*_order(one.recipe), one.of_epochs is not None, -one.epochs),
    )


def markdown(rows: Iterable[Row]) -> str:
    """The tables for a README, one per paper."""
    papers = _papers(rows)
    return "\n".join(f"### {title}\n\n{_table(lines)}" for title, lines in papers) or NOTHING


def text(rows: Iterable[Row]) -> str:
    """The tables for a terminal, one per paper."""
    rows = list(rows)
    made = []
    for title, lines in _papers(rows):
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        cells = [
            "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
            for line in lines
        ]
        made.append("\n".join([title, *cells]) + "\n")
    if hidden := sum(not _shown(row) for row in rows):
        made.append(f"Runs not shown, of other settings or uncommitted code: {hidden}.\n")
    return "\n".join(made) or NOTHING


def write_readme(readme: str | Path, rows: Iterable[Row]) -> bool:
    """Put the tables between the marks of a README; whether anything changed."""
    return _write_between(Path(readme), markdown(rows))


def write_page(
    page: str | Path, rows: Iterable[Row], weights: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Put the tables, the shipped weights and every single run between the marks of a page.

    Args:
        page: the file.
        rows: of the record.
        weights: recipe -> test, seed, store and bytes of its file.
    """
    rows = list(rows)
    files: Lines = [
        (name, f"{one['test']:.2f}", str(one["seed"]), one["store"], f"{one['bytes']:,}")
        for name, one in sorted(weights.items(), key=lambda item: _order(item[0]))
    ]
    table = f"\n### Shipped weights\n\n{_table([FILE_HEADINGS, *files])}" if files else ""
    runs: Lines = [_run_cells(row) for row in sorted(rows, key=lambda row: _order(row.recipe))]
    every = f"\n### Every run\n\n{_table([RUN_HEADINGS, *runs])}" if runs else ""
    return _write_between(Path(page), markdown(rows) + table + every)


def _write_between(path: Path, content: str) -> bool:
    if not path.is_file():
        raise InputError(f"there is no {path} here to write the tables into")
    old = path.read_text(encoding="utf-8")
    before, opened, rest = old.partition(OPEN + "\n")
    _, closed, after = rest.partition(CLOSE)
    if not opened or not closed:
        raise InputError(f"{path} has no {OPEN} and {CLOSE} on lines of their own; add them")
    new = before + opened + content + closed + after
    if new == old:
        return False
    write_text(path, new)
    return True


def _papers(rows: Iterable[Row]) -> list[tuple[str, Lines]]:
    """What both kinds of recipes reached, then the lines of each paper.

    Shorter runs are shown only where they are of more seeds than longer ones.
    """
    papers: dict[str, Lines] = {}
    seeds: dict[str, int] = {}
    summaries = summarize(rows)
    for summary in summaries:
        if summary.n > seeds.get(summary.recipe, 0):
            seeds[summary.recipe] = summary.n
            papers.setdefault(_paper(summary.recipe), [HEADINGS]).append(_cells(summary))
    tables = [(TITLES.get(paper, paper), lines) for paper, lines in papers.items()]
    pairs = _pairs(summaries)
    return [(PAIR_TITLE, [PAIR_HEADINGS, *pairs]), *tables] if pairs else tables


def _pairs(summaries: Iterable[Summary]) -> Lines:
    """Networks with a modern recipe: what the published one reached, and what that did."""
    longest: dict[str, Summary] = {}
    for summary in summaries:
        longest.setdefault(summary.recipe, summary)
    return [
        (name, f"{one.parameters:,}", _percent(one.paper), _reached(one), _reached(today))
        for name, one in longest.items()
        if (today := longest.get(name + MODERN)) is not None
    ]


def _reached(summary: Summary) -> str:
    """Mean, spread and n, and the epochs of runs that are shorter than their recipe."""
    shorter = "" if summary.of_epochs is None else f", {summary.trained} epochs"
    return f"{_mean(summary)} (n = {summary.n}{shorter})"


def _table(lines: Lines) -> str:
    rows = [[cell.replace("|", r"\|") for cell in line] for line in lines]
    made = [f"| {' | '.join(row)} |" for row in rows]
    made.insert(1, "|" + "---|" * len(lines[0]))
    return "\n".join(made) + "\n"


def _shown(row: Row) -> bool:
    return not row.dirty and not EPOCHS.sub("", row.modified).strip()


def _of_epochs(row: Row) -> int | None:
    found = EPOCHS.search(row.modified)
    return int(found[1]) if found else None


def _paper(recipe: str) -> str:
    return recipe.partition("/")[0]


def _order(recipe: str) -> tuple[int, str, str]:
    papers, paper = list(TITLES), _paper(recipe)
    return papers.index(paper) if paper in papers else len(papers), paper, recipe


def _cells(summary: Summary) -> list[str]:
    return [
        summary.recipe,
        _percent(summary.paper),
        _mean(summary),
        _percent(summary.best),
        str(summary.n),
        summary.trained,
        f"{summary.seconds:,.0f}",
        f"{summary.images_per_s:,.0f}",
        summary.gpu,
    ]


def _mean(summary: Summary) -> str:
    return f"{summary.mean:.2f}" + ("" if summary.spread is None else f" ± {summary.spread:.2f}")


def _run_cells(row: Row) -> list[str]:
    of_epochs = _of_epochs(row)
    changes = [*EPOCHS.sub("", row.modified).split(), *(["uncommitted code"] * row.dirty)]
    return [
        row.recipe,
        str(row.seed),
        _percent(row.test),
        _percent(row.validation),
        f"{row.parameters:,}",
        f"{row.epochs}" + ("" if of_epochs is None else f" of {of_epochs}"),
        f"{row.seconds:,.0f}",
        "-" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
        ", ".join(changes) or "-",
        row.commit[:12],
        row.date[:10],
    ]


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
