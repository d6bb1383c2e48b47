"""The heat map of a comparison: which numbers are bold."""

from torchcaps.figures.comparison import is_level
from torchcaps.results.comparison.rows import Cell


def test_bold_is_the_best_and_what_two_standard_errors_do_not_part_from_it() -> None:
    best = Cell(90.0, 1.0, 3)
    assert is_level(best, best)
    assert is_level(best, Cell(89.0, 1.0, 3))
    assert not is_level(best, Cell(80.0, 1.0, 3))


def test_without_a_spread_the_best_alone_is_bold() -> None:
    best = Cell(90.0, None, 1)
    assert is_level(best, best)
    assert not is_level(best, Cell(89.9, None, 1))
