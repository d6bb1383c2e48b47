"""Tables as Markdown, LaTeX, CSV and aligned text, and pages that hold one between two marks."""

import csv
import io
import textwrap
from collections.abc import Container, Sequence
from pathlib import Path

from torchcaps.errors import InputError
from torchcaps.storage import write_text

Cells = Sequence[str]

LATEX = {
    **{letter: f"\\{letter}" for letter in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
}


def markdown_table(headings: Cells, rows: Sequence[Cells]) -> str:
    """Return a Markdown table without a line break at its end."""
    lines = [_markdown_line(headings), "|" + "---|" * len(headings)]
    return "\n".join([*lines, *map(_markdown_line, rows)])


def text_table(
    headings: Cells, rows: Sequence[Cells], *, width: int = 80, left: Container[str] = ()
) -> str:
    """Return a table of aligned columns without a line break at its end.

    Columns are aligned to the right, except for the first and those that ``left`` names. A first
    cell that would make the table wider than ``width`` gets lines of its own.
    """
    columns = list(zip(headings, *rows, strict=True))
    others = [max(map(len, column)) for column in columns[1:]]
    room = max(1, width - sum(others) - 2 * len(others))
    first = max((len(cell) for cell in columns[0] if len(cell) <= room), default=0)
    lines = []
    for name, *cells in (headings, *rows):
        if len(name) > first:
            indent = " " * (len(name) - len(name.lstrip()) + 2)
            wrapped = textwrap.wrap(name, width, subsequent_indent=indent, break_on_hyphens=False)
            lines += wrapped
            name = ""
        aligned = [
            cell.ljust(size) if heading in left else cell.rjust(size)
            for cell, size, heading in zip(cells, others, headings[1:], strict=True)
        ]
        lines.append("  ".join([name.ljust(first), *aligned]).rstrip())
    return "\n".join(lines)


def latex_table(headings: Cells, rows: Sequence[Cells]) -> str:
    """Return a LaTeX table for the package booktabs, without a line break at its end."""
    columns = "l" + "r" * (len(headings) - 1)
    lines = [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", _latex_line(headings), r"\midrule"]
    return "\n".join([*lines, *map(_latex_line, rows), r"\bottomrule", r"\end{tabular}"])


def csv_table(headings: Cells, rows: Sequence[Cells]) -> str:
    """Return a table as CSV without a line break at its end."""
    buffer = io.StringIO()
    csv.writer(buffer, lineterminator="\n").writerows([headings, *rows])
    return buffer.getvalue().removesuffix("\n")


def write_between(path: str | Path, name: str, content: str) -> bool:
    """Replace what stands between two marks of a page; return whether the page changed.

    Args:
        path: the page.
        name: name of the marks ``<!-- name -->`` and ``<!-- /name -->``, on lines of their own.
        content: the new lines, without a line break at the end.
    """
    path = Path(path)
    opening, closing = f"<!-- {name} -->", f"<!-- /{name} -->"
    if not path.is_file():
        raise InputError(f"there is no {path} here to write the tables into")
    old = path.read_text(encoding="utf-8")
    before, opened, rest = old.partition(f"{opening}\n")
    _, closed, after = rest.partition(closing)
    if not opened or not closed:
        raise InputError(f"{path} has no {opening} and {closing} on lines of their own; add them")
    new = f"{before}{opened}{content}\n{closed}{after}"
    if new == old:
        return False
    write_text(path, new)
    return True


def _markdown_line(cells: Cells) -> str:
    escaped = (cell.replace("|", r"\|") for cell in cells)
    return f"| {' | '.join(escaped)} |"


def _latex_line(cells: Cells) -> str:
    escaped = ("".join(LATEX.get(letter, letter) for letter in cell) for cell in cells)
    return f"{' & '.join(escaped)} \\\\"
