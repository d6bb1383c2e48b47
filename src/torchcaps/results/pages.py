"""Our results beside the papers' numbers: for a terminal, the README and the pages of results."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torchcaps.recipes import RECIPES
from torchcaps.results.accuracy import AccuracyRow
from torchcaps.results.summary import TITLES, Summary, paper_of, recipe_order, summarize
from torchcaps.results.tables import markdown_table, text_table, write_between

MARK = "results"
NOTHING = "No finished run is recorded yet.\n"
NO_PAIRS = "No network is recorded both as published and as trained today."
MODERN = "-modern"
"""Suffix of the recipe that trains a published network with today's methods."""

SUPERSEDED = "superseded"
"""Mark of results whose recipe or network was corrected after the runs."""

HEADINGS = ("recipe", "paper", "ours", "best", "seeds", "epochs", "seconds", "images/s", "device")
PAIR_TITLE = "As published, and as one would train today"
PAIR_HEADINGS = ("network", "parameters", "paper", "ours, as published", "ours, trained as today")
PAPER_HEADINGS = ("recipe", "paper", "ours, as published", "ours, trained as today")
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
    return "\n".join(_section(*table) for table in tables) or NOTHING


def text(rows: Iterable[AccuracyRow]) -> str:
    """Return the tables of a terminal, one per paper."""
    rows = list(rows)
    parts = [
        f"{title}\n{text_table(headings, cells)}\n" for title, headings, cells in _tables(rows)
    ]
    if hidden := sum(not row.is_comparable for row in rows):
        parts.append(f"Runs not shown, of other settings or uncommitted code: {hidden}.\n")
    return "\n".join(parts) or NOTHING


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
            _section("Shipped weights", FILE_HEADINGS, [_file_cells(n, weights[n]) for n in names])
        )
    return write_between(page, MARK, "\n".join(parts).removesuffix("\n"))


def write_runs(page: str | Path, rows: Iterable[AccuracyRow]) -> bool:
    """Write one table per paper and every run between the marks of a page."""
    rows = list(rows)
    parts = [_section(*table) for table in _tables(rows) if table[0] != PAIR_TITLE]
    if rows:
        runs = sorted(rows, key=lambda row: recipe_order(row.recipe))
        parts.append(_section("Every run", RUN_HEADINGS, [_run_cells(row) for row in runs]))
    return write_between(page, MARK, "\n".join(parts).removesuffix("\n") or NOTHING.strip())


def write_paper(paper: str, page: str | Path, rows: Iterable[AccuracyRow]) -> bool:
    """Write a table for each table and figure of a paper between the marks of its page.

    Args:
        paper: the paper's key, such as ``"sabour2017"``.
        page: the file.
        rows: the rows of the record.
    """
    longest = _longest(summarize(rows))
    tables: dict[str, list[Sequence[str]]] = {}
    for name, recipe in RECIPES.items():
        if paper_of(name) == paper and not name.endswith(MODERN):
            published = recipe.published
            modern = longest.get(name + MODERN)
            cells = (
                name.partition("/")[2],
                _percent(published.value)
                + ("" if published.spread is None else f" ± {published.spread:g}"),
                _result(longest[name]) if name in longest else "not measured",
                "" if modern is None else _result(modern),
            )
            tables.setdefault(published.where, []).append(cells)
    sections = [_section(where, PAPER_HEADINGS, cells) for where, cells in tables.items()]
    return write_between(page, MARK, "\n".join(sections).removesuffix("\n"))


def _headline(rows: Iterable[AccuracyRow]) -> str:
    """Return the table of networks that were trained both as published and as today."""
    summaries = summarize(rows)
    if pairs := _pairs(summaries):
        return markdown_table(PAIR_HEADINGS, pairs)
    return NO_PAIRS if summaries else NOTHING.strip()


def _section(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    return f"### {title}\n\n{markdown_table(headings, rows)}\n"


def _tables(rows: Iterable[AccuracyRow]) -> list[Table]:
    """Return the table of networks with a modern recipe, then one table per paper.

    Shorter runs are shown only where they have more seeds than longer ones.
    """
    papers: dict[str, list[Sequence[str]]] = {}
    most_seeds: dict[str, int] = {}
    summaries = summarize(rows)
    for summary in summaries:
        if summary.n > most_seeds.get(summary.recipe, 0):
            most_seeds[summary.recipe] = summary.n
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
        (name, f"{one.parameters:,}", _percent(one.paper), _result(one), _result(modern))
        for name, one in longest.items()
        if (modern := longest.get(name + MODERN)) is not None
    ]


def _longest(summaries: Iterable[Summary]) -> dict[str, Summary]:
    """Return the longest runs of each recipe."""
    longest: dict[str, Summary] = {}
    for summary in summaries:
        longest.setdefault(summary.recipe, summary)
    return longest


def _result(summary: Summary) -> str:
    """Return mean, spread and n, and how the runs differ from the recipe."""
    shorter = "" if summary.of_epochs is None else f", {summary.trained} epochs"
    superseded = f", {SUPERSEDED}" if summary.superseded else ""
    return f"{_mean(summary)} (n = {summary.n}{shorter}{superseded})"


def _cells(summary: Summary) -> list[str]:
    return [
        f"{summary.recipe} ({SUPERSEDED})" if summary.superseded else summary.recipe,
        _percent(summary.paper),
        _mean(summary),
        _percent(summary.best),
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
        _percent(row.test),
        _percent(row.validation),
        f"{row.parameters:,}",
        row.trained,
        f"{row.seconds:,.0f}",
        "-" if row.peak_mib is None else f"{row.peak_mib:,.0f}",
        ", ".join([*changes, *(["uncommitted code"] * row.dirty)]) or "-",
        row.commit[:12],
        row.date[:10],
    ]


def _mean(summary: Summary) -> str:
    return f"{summary.mean:.2f}" + ("" if summary.spread is None else f" ± {summary.spread:.2f}")


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
