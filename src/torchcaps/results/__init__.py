"""Rows of finished runs in, tables beside the papers' numbers out.

Every finished run is a row of ``results/accuracy.csv``; runs whose settings or code were changed
are kept there but not shown. ``test``, ``validation`` and ``paper`` are percent correct.

    append_row(ACCURACY, Row(recipe="sabour2017/mnist", seed=0, test=99.7, ...))
    print(text(read_rows(ACCURACY)))
    write_readme("README.md", read_rows(ACCURACY))
"""

from torchcaps.results.record import ACCURACY, COLUMNS, Row, append_row, read_rows
from torchcaps.results.tables import Summary, markdown, summarise, text, write_readme

__all__ = [
    "ACCURACY",
    "COLUMNS",
    "Row",
    "Summary",
    "append_row",
    "markdown",
    "read_rows",
    "summarise",
    "text",
    "write_readme",
]
