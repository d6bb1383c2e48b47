"""Results for a terminal, a paper and a spreadsheet: grouped, with what was changed."""

import csv

import pytest

from helpers.runs.rows import row
from torchcaps.results import FORMS, entries, text
from torchcaps.results.tables import latex_table, text_table

LONG = "tsai2020/diversemultimnist-matrix-modern-control-spared-4"
ROWS = [
    row(test=99.6),
    row(seed=1, test=99.8),
    row(test=99.0, changes={"lr": 0.1}),
    row(seed=1, test=99.2, changes={"lr": 0.1}),
    row(seed=1, test=10.0, changes={"lr": 0.1}, date="2026-11-01"),
    row(test=98.0, changes={"lr": 0.2}, dirty=True),
    row("zhao2020/cifar10", test=93.0, changes={"definition": 1}),
    row(LONG, test=88.0, epochs=120),
]


def test_changed_runs_stand_below_their_recipe_with_mean_and_spread() -> None:
    assert text(ROWS).splitlines() == [
        "Sabour 2017                 paper          ours  n  epochs",
        "sabour2017/mnist            99.75  99.70 ± 0.14  2     640",
        "  lr=0.1                    99.75  99.10 ± 0.14  2     640",
        "  lr=0.2, uncommitted code  99.75         98.00  1     640",
        "",
        "Tsai 2020  paper   ours  n      epochs",
        LONG,
        "           99.75  88.00  1  120 of 640",
        "",
        "Zhao 2020           paper   ours  n  epochs",
        "zhao2020/cifar10 *  99.75  93.00  1     640",
        "",
        "* superseded: the recipe or the network was corrected after these runs",
    ]
    assert text([]) == "No finished run is recorded yet.\n"


def test_changed_runs_of_a_recipe_without_others_have_its_name_above() -> None:
    lines = text([row(changes={"lr": 0.1})]).splitlines()
    assert lines[1:] == ["sabour2017/mnist", "  lr=0.1          99.75  99.70  1     640"]


def test_names_and_changes_of_any_length_fit_the_width() -> None:
    changes: dict[str, float] = {f"setting_{number}": number / 7 for number in range(9)}
    shown = text([row(f"{LONG}-{'x' * 70}"), row(changes=changes), *ROWS])
    assert max(map(len, shown.splitlines())) <= 80
    assert all(key in shown for key in changes)


def test_forms_hold_the_same_numbers() -> None:
    markdown = FORMS["markdown"](ROWS).splitlines()
    assert markdown[2] == "| sabour2017/mnist | 99.75 | 99.70 ± 0.14 | 2 | 640 | - |"
    assert markdown[-1] == "| zhao2020/cifar10 | 99.75 | 93.00 | 1 | 640 | superseded |"
    latex = FORMS["latex"](ROWS).splitlines()
    assert latex[:2] == [r"\begin{tabular}{lrrrrr}", r"\toprule"]
    assert latex[4] == r"sabour2017/mnist & 99.75 & 99.70 $\pm$ 0.14 & 2 & 640 & - \\"
    table = list(csv.DictReader(FORMS["csv"](ROWS).splitlines()))
    assert [(one["recipe"], one["changes"], one["n"]) for one in table[:2]] == [
        ("sabour2017/mnist", "", "2"),
        ("sabour2017/mnist", "lr=0.1", "2"),
    ]
    assert float(table[0]["spread"]) == pytest.approx(0.02**0.5)
    assert len(table) == len(markdown) - 2 == len(entries(ROWS))


def test_latex_has_no_letter_with_a_meaning() -> None:
    line = latex_table(["a"], [[r"50 % of_a & b$ #1 {x} ~ ^ \\"]]).splitlines()[4]
    escaped = r"50 \% of\_a \& b\$ \#1 \{x\} \textasciitilde{} \textasciicircum{} "
    assert line == escaped + r"\textbackslash{}\textbackslash{} \\"


def test_columns_are_aligned_and_named_ones_to_the_left() -> None:
    shown = text_table(("a", "b", "c"), [("x", "1", "2"), ("xyz", "10", "200")], left=("b",))
    assert shown.splitlines() == ["a    b     c", "x    1     2", "xyz  10  200"]
