"""Speed and memory of routings and networks on this machine."""

from torchcaps.bench.measure import measure
from torchcaps.bench.plans import PLANS, plan
from torchcaps.bench.rows import COLUMNS, append, headline, read, rows_of, table
from torchcaps.bench.setting import Measured, Setting

__all__ = [
    "COLUMNS",
    "PLANS",
    "Measured",
    "Setting",
    "append",
    "headline",
    "measure",
    "plan",
    "read",
    "rows_of",
    "table",
]
