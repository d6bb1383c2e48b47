"""20,000 mutated files per reader; `make reliability` runs a million."""

import pytest

from helpers.data import fuzz_data


@pytest.mark.parametrize("name", fuzz_data.TARGETS)
def test_mutated_files_are_read_or_refused(name: str) -> None:
    read, refused = fuzz_data.fuzz(name, 20_000)
    assert read + refused == 20_000
    assert read > 100
    assert refused > 1000
