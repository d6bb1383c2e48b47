"""A comparison of heads as tables: for a terminal, and for a page beside its heat map."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from torchcaps.results.comparison.rows import (
    ACCURACY,
    CORRUPTED,
    COST,
    PGD,
    QUALITY,
    THROUGHPUT,
    VIEWPOINT,
    ComparisonRow,
    Measure,
    Table,
    datasets_of,
    findings,
    table_of,
)
from torchcaps.results.tables import markdown_table, text_table, write_between
from torchcaps.storage import write_text

MARK = "comparison"
BRIEF = (ACCURACY, VIEWPOINT, CORRUPTED, PGD, THROUGHPUT)
"""The measures that a terminal of 80 columns shows."""

SHORT_HEADINGS = {THROUGHPUT.name: "images/s"}
MAX_HEAD = 18
"""Letters of a head's name in a terminal."""

FINDING_HEADINGS = ("data set", "measure", "best, and better than every head", "but these")

NOTHING = "No network of this study is measured yet."


def comparison_text(rows: Sequence[ComparisonRow]) -> str:
    """Return one table per data set, of at most 80 columns."""
    parts = []
    for dataset in datasets_of(rows):
        table = table_of(rows, dataset)
        headings = [SHORT_HEADINGS.get(one.name, one.name) for one in BRIEF]
        cells = [[head[:MAX_HEAD], *line] for head, line in _lines(table, BRIEF)]
        parts.append(
            f"{dataset}, n = {_span(_counts(table))}\n{text_table(['head', *headings], cells)}\n"
        )
    return "\n".join(parts) or NOTHING


def comparison_markdown(rows: Sequence[ComparisonRow], figure: str = "") -> str:
    """Return the tables of a page, the heat map and the findings, without a final line break."""
    if not rows:
        return NOTHING
    parts = [condition(rows)]
    if figure:
        parts.append(f"![Heat map of the measures by head and data set]({figure})")
    for dataset in datasets_of(rows):
        table = table_of(rows, dataset)
        parts.append(f"### {dataset}")
        for measures in (QUALITY, COST):
            shown = [one for one in measures if any(one.name in cells for cells in table.values())]
            lines = [[head, *line] for head, line in _lines(table, shown)]
            parts.append(markdown_table(["head", *(one.name for one in shown)], lines))
    parts.append("### Differences of more than two standard errors")
    told = describe(rows)
    parts.append(markdown_table(FINDING_HEADINGS, told) if told else "There are none.")
    return "\n\n".join(parts)


def condition(rows: Sequence[ComparisonRow]) -> str:
    """Say how the networks of rows were trained, in three lines of one paragraph."""
    first = rows[0]
    partly = any(row.latency_ms is None for row in rows)
    seeds = _span([n for dataset in datasets_of(rows) for n in _counts(table_of(rows, dataset))])
    return (
        f"Study `{first.study}`: n = {seeds} seeds, {_span([row.images for row in rows])} training "
        f"images, {_span([row.epochs for row in rows])} epochs, batch size "
        f"{_span([row.batch_size for row in rows])}.\n"
        f"{_span([row.parameters for row in rows])} parameters. "
        f"Device: {', '.join(dict.fromkeys(row.gpu for row in rows))}.\n"
        "Cells are mean ± standard deviation over the seeds"
        f"{', and speeds are of the first seed' if partly else ''}."
    )


def describe(rows: Sequence[ComparisonRow]) -> list[list[str]]:
    """Return the cells of a table with one line per finding."""
    return [
        [
            finding.dataset,
            finding.measure.name,
            f"{finding.best} ({finding.cell.text(finding.measure.digits)})",
            ", ".join(finding.level) or "none",
        ]
        for finding in findings(rows)
    ]


def write_comparison(page: str | Path, rows: Sequence[ComparisonRow], figure: str = "") -> bool:
    """Write the comparison between the marks of a page; return whether the page changed.

    A page that does not exist is made.

    Args:
        page: the Markdown file.
        rows: rows of one study.
        figure: path of the heat map, relative to the page.
    """
    page = Path(page)
    if not page.exists():
        study = rows[0].study if rows else "heads"
        write_text(page, f"# Comparison {study}\n\n<!-- {MARK} -->\n<!-- /{MARK} -->\n")
    return write_between(page, MARK, comparison_markdown(rows, figure))


def _lines(table: Table, measures: Sequence[Measure]) -> Iterator[tuple[str, list[str]]]:
    """Yield each head with its cells as text."""
    for head, cells in table.items():
        yield (
            head,
            [cells[one.name].text(one.digits) if one.name in cells else "-" for one in measures],
        )


def _span(values: Sequence[int]) -> str:
    """Return a number, or the smallest and the largest of several."""
    low, high = min(values), max(values)
    return f"{low:,}" if low == high else f"{low:,} to {high:,}"


def _counts(table: Table) -> list[int]:
    """Return the number of seeds of each head."""
    return [cells[ACCURACY.name].n for cells in table.values()]
