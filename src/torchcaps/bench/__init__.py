"""Speed and memory of routings and networks on this machine."""

from torchcaps.bench.compare import (
    Compared as Compared,
    compare as compare,
)
from torchcaps.bench.measure import (
    measure as measure,
)
from torchcaps.bench.plans import (
    PLANS as PLANS,
    plan as plan,
)
from torchcaps.bench.rows import (
    rows_of as rows_of,
)
from torchcaps.bench.setting import (
    Measured as Measured,
    Setting as Setting,
)
