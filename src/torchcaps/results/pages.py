"""Our results beside the papers' numbers: for the README and the pages of results."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchcaps.results.accuracy import AccuracyRow
from torchcaps.results.coverage import MODERN
from torchcaps.results.summary import (
    SUPERSEDED,
    TITLES,
    Summary,
    paper_of,
    recipe_order,
    select_shown,
    summarize,
)
from torchcaps.results.tables import markdown_table, write_between

MARK = "results"
NOTHING = "No finished run is recorded yet.\n"
NO_PAIRS = "No network is recorded both as published and as trained today."

HEADINGS = ("recipe", "paper", "ours", "best", "seeds", "epochs", "seconds", "images/s", "device")
PAIR_TITLE = "As published, and as one would train today"
PAIR_HEADINGS = ("network", "parameters", "paper", "ours, as published", "ours, modern training")
FILE_HEADINGS = ("recipe", "test", "seed", "stored as", "bytes")
RUN_HEADINGS = (
    *("recipe", "seed", "test", "validation", "parameters", "epochs", "seconds"),
    *("MiB", "changed", "commit", "date"),
)

Table = tuple[str, Sequence[str], list[Sequence[str]]]
"""A table's title, headings and rows."""


def markdown(rows: Iterable[AccuracyRow]) -> str:
    """Return the tables of a README, one per paper."""
    tables = _tables(rows)
    return "\n".join(section(*table) for table in tables) or NOTHING


def write_readme(readme: str | Path, rows: Iterable[AccuracyRow]) -> bool:
    """Write the headline table between the marks of a README; return whether it changed."""
    return write_between(readme, MARK, _headline(rows))


def write_page(
    page: str | Path, rows: Iterable[AccuracyRow], weights: Mapping[str, Mapping[str, Any]]
) -> bool:
    """Write the headline table and the shipped weights between the marks of a page.

    Args:
        page: the file.
        rows: the rows of the record.
        weights: test accuracy, seed, storage type and bytes of each shipped file, by recipe.
    """
    parts = [f"{_headline(rows)}\n"]
    if weights:
        names = sorted(weights, key=recipe_order)
        parts.append(
            section("Shipped weights", FILE_HEADINGS, [_file_cells(n, weights[n]) for n in names])
        )
    return write_between(page, MARK, "\n".join(parts).removesuffix("\n"))


def write_runs(page: str | Path, rows: Iterable[AccuracyRow]) -> bool:
    """Write one table per paper and every run between the marks of a page."""
    rows = list(rows)
    parts = [section(*table) for table in _tables(rows) if table[0] != PAIR_TITLE]
    if rows:
        runs = sorted(rows, key=lambda row: recipe_order(row.recipe))
        parts.append(section("Every run", RUN_HEADINGS, [_run_cells(row) for row in runs]))
    return write_between(page, MARK, "\n".join(parts).removesuffix("\n") or NOTHING.strip())


def _headline(rows: Iterable[AccuracyRow]) -> str:
    """Return the table of networks that were trained both as published and as today."""
    summaries = summarize(rows)
    if pairs := _pairs(summaries):
        return markdown_table(PAIR_HEADINGS, pairs)
    return NO_PAIRS if summaries else NOTHING.strip()


def section(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a heading and a table."""
    return f"### {title}\n\n{markdown_table(headings, rows)}\n"


def _tables(rows: Iterable[AccuracyRow]) -> list[Table]:
    """Return the table of networks with a modern recipe, then one table per paper."""
    papers: dict[str, list[Sequence[str]]] = {}
    summaries = summarize(rows)
    for summary in select_shown(summaries):
        papers.setdefault(paper_of(summary.recipe), []).append(_cells(summary))
    tables: list[Table] = [
        (TITLES.get(paper, paper), HEADINGS, cells) for paper, cells in papers.items()
    ]
    pairs = _pairs(summaries)
    return [(PAIR_TITLE, PAIR_HEADINGS, pairs), *tables] if pairs else tables


def _pairs(summaries: Iterable[Summary]) -> list[Sequence[str]]:
    """Return the rows of networks that have a published and a modern result."""
    longest = _longest(summaries)
    return [
        (name, f"{one.parameters:,}", percent(one.paper), one.text(), modern.text())
        for name, one in longest.items()
        if (modern := longest.get(name + MODERN)) is not None
    ]


def _longest(summaries: Iterable[Summary]) -> dict[str, Summary]:
    """Return the longest runs of each recipe."""
    longest: dict[str, Summary] = {}
    for summary in summaries:
        longest.setdefault(summary.recipe, summary)
    return longest


def _cells(summary: Summary) -> list[str]:
    return [
        f"{summary.recipe} ({SUPERSEDED})" if summary.superseded else summary.recipe,
        percent(summary.paper),
        summary.accuracy(),
        percent(summary.best),
        str(summary.n),
        summary.trained,
        f"{summary.seconds:,.0f}",
        f"{summary.images_per_s:,.0f}",
        summary.gpu,
    ]


def _file_cells(recipe: str, facts: Mapping[str, Any]) -> list[str]:
    test, seed = f"{facts['test']:.2f}", str(facts["seed"])
    return [recipe, test, seed, facts["store"], f"{facts['bytes']:,}"]


def _run_cells(row: AccuracyRow) -> list[str]:
    changes = [f"{key}={value}" for key, value in row.changes.items()]
    return [
        row.recipe,
        str(row.seed),
        percent(row.test),
        percent(row.validation),
        f"{row.parameters:,}",
        row.trained,
        f"{row.seconds:,.0f}",
        "-" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
        ", ".join([*changes, *(["uncommitted code"] * row.dirty)]) or "-",
        row.commit[:12],
        row.date[:10],
    ]


def percent(value: float | None) -> str:
    """Return a percentage with two decimal places; a dash for none."""
    return "-" if value is None else f"{value:.2f}"
