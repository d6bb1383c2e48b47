"""Parameters that differ little: a few run in every `make test`, all in `make test-all`."""

from collections.abc import Collection
from typing import Any

import pytest

__all__ = ["mark_slow_except"]


def mark_slow_except(values: Collection[Any], *quick: Any) -> list[Any]:
    """Return a test's parameters, all marked slow but the quick ones."""
    unknown = [value for value in quick if value not in values]
    assert not unknown, f"{unknown} are not among {values}"
    return [
        value if value in quick else pytest.param(value, marks=pytest.mark.slow) for value in values
    ]
