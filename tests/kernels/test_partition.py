"""The partition of a kernel's work over programs."""

import pytest

from torchcaps.kernels.common.partition import MAX_CONCURRENT_PROGRAMS, split_children


@pytest.mark.parametrize("multiple", [1, 2, 4])
def test_programs_share_out_all_children_of_a_tile(multiple: int) -> None:
    for tiles in (0, 1, 2, 7, 32, 131, 263, 264, 265, 400, 1568, 10**6):
        for n_children in (0, 1, 2, 3, 5, 31, 33, 288, 1152, 10**5):
            n_part, parts = split_children(tiles, n_children, multiple)
            assert n_part >= 1
            assert n_part % multiple == 0
            assert parts * n_part >= n_children
            assert (parts - 1) * n_part < max(n_children, 1)
            # sums of parts take memory
            assert tiles * parts <= max(MAX_CONCURRENT_PROGRAMS, 8 * tiles)
