"""The page that compares routings: in step with its rows, and no claim that they do not allow."""

import re
from pathlib import Path

import pytest

from helpers.prose import sentences_of
from torchcaps.models.parts.heads import POOLS
from torchcaps.recipes.study import HEADS, STUDIES
from torchcaps.results import differs, read_comparison, table_of, write_comparison
from torchcaps.results.comparison.rows import COST
from torchcaps.routing import ROUTINGS
from torchcaps.study import sort_rows

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/understand/which-routing.md"
STUDY = STUDIES["full"]
ROWS = sort_rows(read_comparison(ROOT / "results/compare-full.csv"))

POOLED = tuple(f"plain-{pool}" for pool in POOLS)
BEST = ("dynamic", "self-attention")
ROBUST = tuple(name for name in ROUTINGS if name not in ("pairwise", "self"))
ONE_PLAIN_HEAD = [
    ("fashion_mnist", "viewpoint %", "plain-average"),
    ("multimnist", "viewpoint %", "plain-attention"),
    ("cifar10", "viewpoint %", "plain-average"),
    ("affnist_style", "affine %", "plain-average"),
]
HIGHER = [
    *(("cifar10", "accuracy %", one, r) for one in BEST for r in ROUTINGS if r not in BEST),
    *(("cifar10", "accuracy %", "plain-attention", routing) for routing in ROUTINGS),
    *(("fashion_mnist", "accuracy %", "variational", pool) for pool in POOLED),
    *(("multimnist", "accuracy %", "self-attention", pool) for pool in POOLED),
    *(("fashion_mnist", "PGD %", routing, pool) for routing in ROBUST for pool in POOLED),
    *((*case, routing) for case in ONE_PLAIN_HEAD for routing in ROUTINGS),
]
"""Claims of the advice: data set, measure, the better head and the worse one."""


def test_the_page_is_in_step_with_its_rows(tmp_path: Path) -> None:
    copy = tmp_path / PAGE.name
    copy.write_text(PAGE.read_text())
    assert not write_comparison(copy, ROWS, "which-routing.png")
    assert (PAGE.parent / "which-routing.png").is_file()


def test_every_row_is_of_a_clean_commit_and_of_the_study() -> None:
    assert len({row.key for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert (row.study, row.dirty) == (STUDY.name, False)
        assert (row.epochs, row.batch_size) == (STUDY.epochs, STUDY.batch_size)
        assert re.fullmatch(r"[0-9a-f]{7,40}", row.commit)
        assert row.head in HEADS
        assert row.seed in STUDY.seeds


def test_every_cell_but_those_of_speed_has_three_seeds() -> None:
    speeds = {measure.name for measure in COST if measure.some}
    assert {row.dataset for row in ROWS} == set(STUDY.datasets)
    for dataset in STUDY.datasets:
        table = table_of(ROWS, dataset)
        assert set(table) == set(HEADS)
        for cells in table.values():
            assert {cell.n for name, cell in cells.items() if name not in speeds} == {3}


@pytest.mark.parametrize("claim", HIGHER, ids=" ".join)
def test_the_advice_exceeds_two_standard_errors(claim: tuple[str, str, str, str]) -> None:
    dataset, measure, more, less = claim
    table = table_of(ROWS, dataset)
    high, low = table[more][measure], table[less][measure]
    assert high.mean > low.mean
    assert differs(high, low)


def test_the_advice_has_the_numbers_of_the_rows() -> None:
    accuracy = "accuracy %"
    fashion, digits = table_of(ROWS, "fashion_mnist"), table_of(ROWS, "multimnist")
    for table, head in ((fashion, "variational"), (digits, "self-attention")):
        lead = table[head][accuracy].mean - max(table[pool][accuracy].mean for pool in POOLED)
        assert 0.2 <= round(lead, 1) <= 0.3
    robust = [round(fashion[head]["PGD %"].mean) for head in ROBUST]
    assert (min(robust), max(robust)) == (22, 36)
    plain = [round(fashion[head]["PGD %"].mean) for head in POOLED]
    assert (min(plain), max(plain)) == (10, 17)
    assert max(cells["PGD %"].mean for cells in table_of(ROWS, "cifar10").values()) < 4


def test_uniform_couplings_change_as_many_predictions_as_the_advice_says() -> None:
    changed = {
        head: [table_of(ROWS, data)[head]["changed %"].mean for data in STUDY.datasets]
        for head in ("dynamic", "inverted-attention", "self", "variational")
    }
    assert max(changed["dynamic"] + changed["inverted-attention"]) <= 4
    assert min(changed["self"] + changed["variational"]) >= 90


def test_the_page_starts_with_advice_in_five_sentences() -> None:
    advice = PAGE.read_text().split("\n\n")[1]
    assert len(list(sentences_of(advice, ""))) == 5


def test_every_routing_has_its_line_of_advice() -> None:
    named = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE)
    assert {cls.__name__ for cls in ROUTINGS.values()} == set(named)
