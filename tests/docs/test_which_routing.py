"""The page that compares routings: in step with its rows, and no claim that they do not allow."""

import re
from pathlib import Path

import pytest

from helpers.prose import sentences_of
from torchcaps.models.parts.heads import POOLS
from torchcaps.recipes.study import HEADS, STUDIES
from torchcaps.results import differs, read_comparison, table_of, write_comparison
from torchcaps.routing import ROUTINGS
from torchcaps.study import sort_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/understand/which-routing.md"
ROWS = sort_rows(read_comparison(ROOT / "results/compare-quick.csv"))

POOLED = tuple(f"plain-{pool}" for pool in POOLS)
SLOW_LEARNERS = ("em", "pairwise", "discriminative", "self", "variational")
DIGITS = ("affnist_style", "multimnist")
HIGHER = [
    *(("fashion_mnist", "accuracy %", "dynamic", pool) for pool in POOLED),
    *(("affnist_style", "affine %", "plain-average", routing) for routing in ROUTINGS),
    *((data, "accuracy %", "plain-average", slow) for data in DIGITS for slow in SLOW_LEARNERS),
]
"""Claims of the advice: data set, measure, the better head and the worse one."""


def test_the_page_is_in_step_with_its_rows(tmp_path: Path) -> None:
    copy = tmp_path / PAGE.name
    copy.write_text(PAGE.read_text())
    assert not write_comparison(copy, ROWS, "which-routing.png")
    assert (PAGE.parent / "which-routing.png").is_file()


def test_every_row_is_of_a_clean_commit_and_of_the_study() -> None:
    study = STUDIES["quick"]
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert (row.study, row.dirty) == ("quick", False)
        assert (row.images, row.epochs, row.batch_size) == (
            study.images,
            study.epochs,
            study.batch_size,
        )
        assert re.fullmatch(r"[0-9a-f]{7,40}", row.commit)
        assert row.head in HEADS
        assert row.seed in study.seeds


def test_every_cell_has_three_seeds() -> None:
    for dataset in {row.dataset for row in ROWS}:
        table = table_of(ROWS, dataset)
        assert set(table) == set(HEADS)
        assert {cell.n for cells in table.values() for cell in cells.values()} == {3}


@pytest.mark.parametrize("claim", HIGHER, ids=" ".join)
def test_the_advice_exceeds_two_standard_errors(claim: tuple[str, str, str, str]) -> None:
    dataset, measure, more, less = claim
    table = table_of(ROWS, dataset)
    high, low = table[more][measure], table[less][measure]
    assert high.mean > low.mean
    assert differs(high, low)


@pytest.mark.parametrize("dataset", DIGITS)
def test_average_pooling_is_level_with_dynamic_routing_on_digits(dataset: str) -> None:
    table = table_of(ROWS, dataset)
    assert not differs(table["plain-average"]["accuracy %"], table["dynamic"]["accuracy %"])


def test_uniform_couplings_change_as_many_predictions_as_the_advice_says() -> None:
    changed = {
        head: [table_of(ROWS, data)[head]["changed %"].mean for data in STUDIES["quick"].datasets]
        for head in ("dynamic", "self", "variational")
    }
    assert max(changed["dynamic"]) <= 3
    assert min(changed["self"] + changed["variational"]) > 85


def test_the_page_starts_with_advice_in_five_sentences() -> None:
    advice = PAGE.read_text().split("\n\n")[1]
    assert len(list(sentences_of(advice, ""))) == 5


def test_every_routing_has_its_line_of_advice() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert {cls.__name__ for cls in ROUTINGS.values()} == set(named)
