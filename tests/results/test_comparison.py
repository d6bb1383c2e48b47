"""Comparisons: rows read back, cells over seeds, and statements only where they are allowed."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from torchcaps.errors import InputError
from torchcaps.results import (
    ComparisonRow,
    append_comparison,
    comparison_text,
    differs,
    read_comparison,
    table_of,
    write_comparison,
)
from torchcaps.results.comparison.page import describe
from torchcaps.results.comparison.rows import Cell, findings

CURVE = {"0": 80.0, "0.1": 60.0, "0.2": 40.0}


def row(head: str = "em", seed: int = 0, test: float = 80.0, **more: Any) -> ComparisonRow:
    curved = ("rotation", "translation", "shear", "occlusion", "overlap", "noise", "fgsm")
    curves = dict.fromkeys(curved, CURVE)
    values: dict[str, Any] = {
        **{"study": "quick", "dataset": "fashion_mnist", "parameters": 1000, "images": 3000},
        **{"epochs": 2, "batch_size": 25, "affine": None, "scale": {"0.8": 30.0, "1": 80.0}},
        **curves,
        **{"pgd": {"0": 80.0, "0.05": 20.0, "0.1": 10.0}, "masked": 0.0, "equivariance": -0.25},
        **{"iou": None, "entropy": 0.5, "changed": 12.5, "train_images_per_s": 300.0},
        **{"peak_mib": None, "latency_ms": 1.5, "commit": "abc", "measured_commit": "def"},
        **{"dirty": False, "gpu": "CPU", "torch": "2.13.0", "date": "2026-11-19T20:00:00Z"},
    }
    return ComparisonRow(head=head, seed=seed, test=test, **{**values, **more})


def three(head: str, *tests: float, **more: Any) -> list[ComparisonRow]:
    return [row(head, seed, test, **more) for seed, test in enumerate(tests)]


def test_a_row_is_read_back_as_it_was_written_and_added_once(tmp_path: Path) -> None:
    path = tmp_path / "compare.csv"
    first, second = row(), row("dynamic", affine=71.5, iou=0.5, peak_mib=12.0)
    third = row("self", train_images_per_s=None, latency_ms=None)
    assert append_comparison(path, [first, second, third]) == 3
    assert append_comparison(path, [replace(first, test=1.0)]) == 0
    assert read_comparison(path) == [first, second, third]


def test_a_file_of_other_columns_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "compare.csv"
    path.write_text("recipe,seed\nsabour2017/mnist,0\n")
    with pytest.raises(InputError, match="is not a table of comparisons"):
        append_comparison(path, [row()])


def test_levels_that_change_nothing_do_not_count() -> None:
    one = row()
    assert one.mean_accuracy(["rotation"]) == 50.0
    assert one.mean_accuracy(["scale"]) == 30.0
    assert one.mean_accuracy(["rotation", "scale"]) == pytest.approx((60 + 40 + 30) / 3)


def test_a_cell_is_the_mean_and_deviation_over_seeds() -> None:
    table = table_of(three("em", 80.0, 82.0, 84.0), "fashion_mnist")
    assert table["em"]["accuracy %"] == Cell(82.0, 2.0, 3)
    assert table["em"]["accuracy %"].text(1) == "82.0 ± 2.0"
    assert "affine %" not in table["em"]
    assert table["em"]["equivariance R²"].mean == -0.25


def test_two_standard_errors_are_counted_by_hand() -> None:
    # standard error of the difference: sqrt(2**2 / 3 + 1**2 / 3) = 1.2910, twice it 2.5820
    one, limit = Cell(80.0, 2.0, 3), 2 * math.sqrt(4 / 3 + 1 / 3)
    assert differs(one, Cell(80.0 + limit + 1e-6, 1.0, 3))
    assert differs(one, Cell(80.0 - limit - 1e-6, 1.0, 3))
    assert not differs(one, Cell(80.0 + limit - 1e-6, 1.0, 3))
    assert not differs(one, Cell(99.0, None, 1))


def test_only_differences_that_exceed_two_standard_errors_are_stated() -> None:
    rows = [*three("a", 90, 91, 92), *three("b", 89, 91, 92), *three("c", 70, 71, 72)]
    (found,) = [one for one in findings(rows) if one.measure.name == "accuracy %"]
    assert (found.best, found.beaten, found.level) == ("a", ("c",), ("b",))
    assert describe(rows)[0] == ["fashion_mnist", "accuracy %", "a (91.0 ± 1.0)", "b"]
    close = [*three("a", 80, 85, 90), *three("b", 79, 84, 89)]
    assert [one for one in findings(close) if one.measure.name == "accuracy %"] == []
    assert describe([row("a", test=90.0), row("b", test=10.0)]) == []


def test_less_latency_is_better_and_couplings_are_not_judged() -> None:
    rows = [
        *[row("slow", seed, latency_ms=9 + 0.1 * seed, entropy=0.9) for seed in range(3)],
        *[row("fast", seed, latency_ms=1 + 0.1 * seed, entropy=0.1) for seed in range(3)],
    ]
    assert [(one.measure.name, one.best) for one in findings(rows)] == [("latency ms", "fast")]


def test_a_speed_of_one_seed_has_no_spread_and_other_measures_need_all_seeds() -> None:
    first, *others = three("em", 80, 81, 82, affine=70.0, peak_mib=9.0)
    rows = [first]
    for one in others:
        speedless = replace(one, train_images_per_s=None, peak_mib=None, latency_ms=None)
        rows.append(replace(speedless, affine=None))
    table = table_of(rows, "fashion_mnist")["em"]
    assert table["latency ms"] == Cell(1.5, None, 1)
    assert table["training images/s"].text(0) == "300"
    assert table["MiB"].n == 1
    assert "affine %" not in table
    assert "300" in comparison_text(rows)


def test_a_terminal_gets_eighty_columns() -> None:
    rows = [*three("a-routing-with-a-long-name-of-its-own", 90, 91, 92), *three("em", 80, 81, 82)]
    text = comparison_text([replace(one, train_images_per_s=98_765.4) for one in rows])
    assert max(map(len, text.splitlines())) <= 80
    assert "91.0 ± 1.0" in text
    assert comparison_text([]) == "No network of this study is measured yet."


def test_a_page_is_made_and_then_written_between_its_marks(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    assert write_comparison(page, three("em", 80, 81, 82), "page.png")
    text = page.read_text()
    assert "n = 3 seeds, 3,000 training images, 2 epochs" in text
    assert "| em | 81.0 ± 1.0 |" in text
    assert "![Heat map" in text
    page.write_text(f"Advice.\n\n{text}")
    assert not write_comparison(page, three("em", 80, 81, 82), "page.png")
    assert write_comparison(page, three("em", 80, 81, 83), "page.png")
    assert page.read_text().startswith("Advice.\n")
