"""``torchcaps list`` and ``results``: filters, forms, and 80 columns."""

import csv
import json
from pathlib import Path

import pytest

import torchcaps as tc
from helpers.commands import invoke, refused
from torchcaps.models.weights.pretrained import shipped
from torchcaps.recipes import RECIPES

ROOT = Path(__file__).parents[2]


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in the clone, whose record has every row."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(
    "words", [("list",), ("list", "--networks"), ("results",), ("--help",), ("results", "mnist")]
)
def test_every_line_fits_80_columns(words: tuple[str, ...]) -> None:
    result = invoke(*words)
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 80


@pytest.mark.usefixtures("here")
def test_a_wide_terminal_shows_more(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "dataset" not in invoke("list").stdout
    monkeypatch.setenv("COLUMNS", "200")
    assert "dataset" in invoke("list").stdout


@pytest.mark.usefixtures("here")
def test_a_list_takes_a_pattern_and_marks_pretrained_weights() -> None:
    rows = json.loads(invoke("list", "*cifar10*", "--pretrained", "--json").stdout)
    names = [row["recipe"] for row in rows]
    assert names == [name for name in RECIPES if "cifar10" in name and name in shipped()]
    assert all(row["weights"] > 90 for row in rows)
    line = invoke("list", "sabour2017/mnist*").stdout.splitlines()[1]
    assert line.split()[0] == "sabour2017/mnist"
    assert line.split()[-1] == "-"
    assert len(json.loads(invoke("list", "cifar10", "--json").stdout)) > len(rows)
    assert "did you mean 'sabour2017/mnist'" in refused("list", "sabour2017/mnits")


def test_networks_are_listed_by_pattern_and_by_weights() -> None:
    assert tc.list_models("*cifar*", pretrained=True) == [
        "tsai2020/cifar10-resnet",
        "choi2019/cifar10",
        "zhao2020/cifar10",
        "choi2019/cifar10-modern",
        "tsai2020/cifar10-resnet-modern",
        "zhao2020/cifar10-modern",
    ]
    names = tc.list_models(pretrained=True)
    assert all(tc.build(name, pretrained=True).trained for name in names if "demo" in name)
    rows = json.loads(invoke("list", "--networks", "--pretrained", "--json").stdout)
    assert [row["network"] for row in rows] == [n for n in names if n in tc.list_models()]
    assert all(row["weights"] == "yes" for row in rows)
    with pytest.raises(ValueError, match="no name matches 'nothing/like-it'"):
        tc.list_models("nothing/like-it")


@pytest.mark.usefixtures("here")
def test_results_take_a_pattern_and_print_one_form() -> None:
    rows = json.loads(invoke("results", "choi2019/*", "--json").stdout)
    assert {row["recipe"].partition("/")[0] for row in rows} == {"choi2019"}
    assert any(row["changes"] for row in rows)
    table = csv.DictReader(invoke("results", "choi2019/*", "--csv").stdout.splitlines())
    assert [one["mean"] for one in table] == [str(row["mean"]) for row in rows]
    assert r"\bottomrule" in invoke("results", "choi2019/*", "--latex").stdout
    assert "choose --json or --csv" in refused("results", "--json", "--csv")
    assert "no name matches 'sabuor'" in refused("results", "sabuor")
