"""Rows of finished runs in, tables beside the papers' numbers out.

Every finished run is a row of ``results/accuracy.csv`` and a curve in ``results/curves/``. Runs of
another number of epochs than the recipe's are shown apart; runs with other changes, or of code
that was not committed, are kept but not shown. ``test``, ``validation`` and ``paper`` are percent
correct.

    append_row(ACCURACY, Row(recipe="sabour2017/mnist", seed=0, test=99.7, ...))
    print(text(read_rows(ACCURACY)))
    write_readme("README.md", read_rows(ACCURACY))
"""

from torchcaps.results.curves import curve_path, keep_curve, merge, write_curve
from torchcaps.results.record import (
    ACCURACY,
    COLUMNS,
    Row,
    add_row,
    append_row,
    check_record,
    misfits,
    read_rows,
)
from torchcaps.results.tables import (
    Summary,
    markdown,
    summarize,
    text,
    write_page,
    write_readme,
)

__all__ = [
    "ACCURACY",
    "COLUMNS",
    "Row",
    "Summary",
    "add_row",
    "append_row",
    "check_record",
    "curve_path",
    "keep_curve",
    "markdown",
    "merge",
    "misfits",
    "read_rows",
    "summarize",
    "text",
    "write_curve",
    "write_page",
    "write_readme",
]
