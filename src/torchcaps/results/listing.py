"""Our results beside the papers' numbers, for a terminal, a paper and a spreadsheet."""

from collections.abc import Callable, Iterable, Mapping
from itertools import groupby

from torchcaps.results.accuracy import AccuracyRow
from torchcaps.results.pages import NOTHING, percent
from torchcaps.results.summary import (
    SUPERSEDED,
    TITLES,
    Summary,
    paper_of,
    recipe_order,
    select_shown,
    summarize,
    summarize_changed,
)
from torchcaps.results.tables import csv_table, latex_table, markdown_table, text_table

HEADINGS = ("recipe", "paper", "ours", "n", "epochs")
NOTE = f"* {SUPERSEDED}: the recipe or the network was corrected after these runs"
CSV_HEADINGS = (
    *("recipe", "changes", "paper", "mean", "spread", "best", "n", "epochs", "of_epochs"),
    *("parameters", "seconds", "images_per_s", "gpu", "superseded"),
)


def entries(rows: Iterable[AccuracyRow], *, every: bool = False) -> list[Summary]:
    """Return the summaries to list: each recipe, and below it its runs with changed settings.

    Args:
        rows: the rows of the record.
        every: list shorter runs of a recipe too, where longer ones have as many seeds.
    """
    rows = list(rows)
    unchanged = summarize(rows) if every else select_shown(summarize(rows))
    listed = [*unchanged, *summarize_changed(rows)]
    return sorted(listed, key=lambda one: (*recipe_order(one.recipe), bool(one.changes)))


def text(rows: Iterable[AccuracyRow]) -> str:
    """Return one table per paper, at most 80 columns wide."""
    listed = entries(rows)
    if not listed:
        return NOTHING
    parts = []
    for paper, group in groupby(listed, key=lambda one: paper_of(one.recipe)):
        headings = (TITLES.get(paper, paper), *HEADINGS[1:])
        cells, recipe = [], ""
        for one in group:
            if one.changes and one.recipe != recipe:
                cells.append((one.recipe, *[""] * (len(HEADINGS) - 1)))
            recipe = one.recipe
            name = f"  {one.changes}" if one.changes else recipe
            cells.append((name + " *" * one.superseded, *_numbers(one)))
        parts.append(f"{text_table(headings, cells)}\n")
    if any(one.superseded for one in listed):
        parts.append(f"{NOTE}\n")
    return "\n".join(parts)


def markdown_listing(rows: Iterable[AccuracyRow]) -> str:
    """Return one Markdown table of all results."""
    return markdown_table((*HEADINGS, "changed"), [_cells(one) for one in entries(rows)])


def latex_listing(rows: Iterable[AccuracyRow]) -> str:
    """Return one LaTeX table of all results, for the package booktabs."""
    return latex_table((*HEADINGS, "changed"), [_cells(one) for one in entries(rows)])


def csv_listing(rows: Iterable[AccuracyRow]) -> str:
    """Return every result as CSV, with unrounded numbers."""
    cells = [
        ["" if (v := getattr(one, key)) is None else str(v) for key in CSV_HEADINGS]
        for one in entries(rows, every=True)
    ]
    return csv_table(CSV_HEADINGS, cells)


FORMS: Mapping[str, Callable[[Iterable[AccuracyRow]], str]] = {
    "markdown": markdown_listing,
    "latex": latex_listing,
    "csv": csv_listing,
}
"""Name of a form -> its function."""


def _numbers(one: Summary) -> tuple[str, ...]:
    return (percent(one.paper), one.accuracy(), str(one.n), one.trained)


def _cells(one: Summary) -> tuple[str, ...]:
    changed = [one.changes] if one.changes else []
    return (one.recipe, *_numbers(one), ", ".join(changed + [SUPERSEDED] * one.superseded) or "-")
