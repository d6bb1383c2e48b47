"""Networks that were trained as published and as today stand side by side, ahead of the rest."""

from helpers.runs.rows import row
from torchcaps.results import markdown

PUBLISHED = "zhao2020/cifar10"
HEAD = "| network | parameters | paper | ours, as published | ours, modern training |"


def test_a_network_stands_beside_itself_trained_as_today() -> None:
    short = {"epochs": 100}
    rows = [
        row(PUBLISHED, 0, 93.0, paper=93.2, parameters=903_760),
        row(PUBLISHED, 1, 93.4, paper=93.2, parameters=903_760),
        row(PUBLISHED, 2, 50.0, paper=93.2, parameters=903_760, changes={"lr": 9}),
        row(f"{PUBLISHED}-modern", 0, 94.5, paper=93.2, parameters=903_760, **short),
        row("choi2019/mnist", 0, 99.0),
    ]
    shown = markdown(rows)
    title, _, head, _, *lines = shown.splitlines()
    assert (title, head) == ("### As published, and as one would train today", HEAD)
    assert lines[0] == (
        "| zhao2020/cifar10 | 903,760 | 93.20 | 93.20 ± 0.28 (n = 2) | 94.50 (n = 1, 100 of 640 "
        "epochs) |"
    )
    assert not lines[1]


def test_the_longest_runs_of_a_recipe_are_compared() -> None:
    short = {"epochs": 100}
    runs = [row("a/b", seed, 90.0, **short) for seed in range(3)] + [row("a/b", 0, 91.0)]
    lines = markdown([*runs, row("a/b-modern", 0, 95.0)]).splitlines()
    assert lines[4] == "| a/b | 8,215,728 | 99.75 | 91.00 (n = 1) | 95.00 (n = 1) |"


def test_without_both_there_is_no_such_table() -> None:
    for rows in ([row("a/b")], [row("a/b-modern")], [row("a/b"), row("a/c-modern")]):
        assert "as published" not in markdown(rows)


def test_superseded_runs_are_marked_until_the_corrected_recipe_has_one() -> None:
    before = {"changes": {"definition": 1}}
    rows = [row("a/b", 0, 90.0, **before), row("a/b-modern", 0, 95.0)]
    table = markdown(rows)
    assert "| a/b | 8,215,728 | 99.75 | 90.00 (n = 1, superseded) | 95.00 (n = 1) |" in table
    assert "| a/b (superseded) | 99.75 | 90.00 |" in table
    rows.append(row("a/b", 1, 91.0))
    assert "superseded" not in markdown(rows)
    assert "| a/b | 99.75 | 91.00 | 91.00 | 1 |" in markdown(rows)
