"""The demo: its networks reach what the README says, its command is friendly."""

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from torchcaps import __version__, list_models
from torchcaps.cli import app
from torchcaps.demo import CONTENDERS, SmallCapsNet, train

README = Path(__file__).parents[1] / "README.md"


@pytest.mark.parametrize("name", CONTENDERS)
def test_every_routing_reaches_what_the_readme_says(name: str) -> None:
    result = train(CONTENDERS[name])
    shown = re.search(rf"^\| {re.escape(name)} \| ([\d.]+)% \|$", README.read_text(), re.MULTILINE)
    assert shown is not None
    assert 100 * result.accuracy == pytest.approx(float(shown[1]), abs=2.5)
    network = SmallCapsNet(CONTENDERS[name])
    assert result.parameters == sum(p.numel() for p in network.parameters())


def test_training_is_reproducible() -> None:
    contender = next(iter(CONTENDERS.values()))
    first: list[float] = []
    second: list[float] = []
    train(contender, steps=5, progress=lambda step, loss: first.append(loss))
    train(contender, steps=5, progress=lambda step, loss: second.append(loss))
    assert len(first) == 5
    assert first == second


def test_the_command_prints_a_table_or_json() -> None:
    runner = CliRunner()
    table = runner.invoke(app, ["demo", "--steps", "1"])
    assert table.exit_code == 0
    assert all(name in table.stdout for name in CONTENDERS)
    printed = runner.invoke(app, ["demo", "--steps", "1", "--json"])
    assert set(json.loads(printed.stdout)) == set(CONTENDERS)
    assert runner.invoke(app, ["--version"]).stdout.strip() == __version__


def test_the_list_names_every_network() -> None:
    rows = json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)
    assert [row["network"] for row in rows] == list_models()
    sizes = {row["network"]: row["parameters"] for row in rows}
    assert sizes["tsai2020/cifar10-resnet"] == 1_828_817
    assert CliRunner().invoke(app, ["list"]).exit_code == 0


@pytest.mark.parametrize("arguments", [["demo", "--steps", "0"], ["dmeo"], ["demo", "--seed", "x"]])
def test_wrong_use_exits_with_2_and_no_trace(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
