"""Tables as Markdown and as aligned text, and pages that hold one between two marks."""

from collections.abc import Sequence
from pathlib import Path

from torchcaps.errors import InputError
from torchcaps.storage import write_text

Cells = Sequence[str]


def markdown_table(headings: Cells, rows: Sequence[Cells]) -> str:
    """Return a Markdown table without a line break at its end."""
    lines = [_markdown_line(headings), "|" + "---|" * len(headings)]
    return "\n".join([*lines, *map(_markdown_line, rows)])


def text_table(headings: Cells, rows: Sequence[Cells]) -> str:
    """Return a table of aligned columns without a line break at its end."""
    lines = [headings, *rows]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    )


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
