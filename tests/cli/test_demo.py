"""The demo: its networks reach what the README says, its command is friendly."""

import json
import re
import signal
from pathlib import Path

import pytest
from typer.testing import CliRunner

from helpers.repetitions import mark_slow_except
from torchcaps import __version__, list_models
from torchcaps.cli import app
from torchcaps.recipes import RECIPES, get
from torchcaps.train import TrainOptions, train
from torchcaps.train.run import Run

README = Path(__file__).parents[2] / "README.md"
DEMOS = [name for name in RECIPES if name.startswith("demo/")]


@pytest.mark.parametrize("name", mark_slow_except(DEMOS, "demo/strokes-attention"))
def test_every_routing_reaches_what_the_readme_says(name: str, tmp_path: Path) -> None:
    row = train(get(name), TrainOptions(out=tmp_path, device="cpu", tensorboard=False))
    routing = name.partition("strokes-")[2]
    shown = re.search(rf"^\| {routing} .*\| ([\d.]+) % \|$", README.read_text(), re.MULTILINE)
    assert shown is not None
    assert row.test == pytest.approx(float(shown[1]), abs=2.5)


def test_the_command_prints_a_table_or_json(tmp_path: Path) -> None:
    runner, quick = CliRunner(), ["--steps", "1", "--no-figures", "--out", str(tmp_path)]
    table = runner.invoke(app, ["demo", "attention", "discriminative", *quick])
    assert table.exit_code == 0
    assert "attention" in table.stdout
    assert "discriminative" in table.stdout
    printed = runner.invoke(app, ["demo", "attention", *quick, "--json"])
    assert set(json.loads(printed.stdout)) == {"attention"}
    assert runner.invoke(app, ["--version"]).stdout.strip() == __version__


def test_a_stopped_demo_goes_on_and_a_finished_one_starts_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def after_step(self: Run, epoch: int) -> None:
        self.stop.signal = signal.SIGINT
        self.save_and_leave()

    words = ["demo", "attention", "--steps", "3", "--no-figures", "--out", str(tmp_path)]
    with monkeypatch.context() as patched:
        patched.setattr(Run, "after_step", after_step)
        stopped = CliRunner().invoke(app, words)
    assert stopped.exit_code == 130
    assert "the same command goes on from here" in stopped.stderr
    ended = CliRunner().invoke(app, words)
    assert ended.exit_code == 0
    assert "resumed at step 1 of 3" in ended.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["attention"]
    monkeypatch.setattr(Run, "after_step", after_step)
    assert "the earlier run is kept in" in CliRunner().invoke(app, words).stdout


def test_a_routing_that_is_none_is_told_which_there_are() -> None:
    for first in ("dynamic", "all"):
        result = CliRunner().invoke(app, ["demo", first, "dynamo"])
        assert result.exit_code == 2
        assert result.stderr.startswith("there is no routing 'dynamo': take dynamic, em, ")
        assert not result.stdout


def test_the_list_names_every_network_and_every_recipe() -> None:
    runner = CliRunner()
    rows = json.loads(runner.invoke(app, ["list", "--networks", "--json"]).stdout)
    assert [row["network"] for row in rows] == list_models()
    sizes = {row["network"]: row["parameters"] for row in rows}
    assert sizes["tsai2020/cifar10-resnet"] == 1_828_817
    recipes = json.loads(runner.invoke(app, ["list", "--json"]).stdout)
    assert [row["recipe"] for row in recipes] == list(RECIPES)
    listed = runner.invoke(app, ["list"])
    assert listed.exit_code == 0
    assert "sabour2017/mnist " in listed.stdout


def test_the_list_has_the_numbers_of_the_tables_shorter_runs_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = (Path(__file__).parents[2] / "results" / "accuracy.csv").read_text().splitlines()
    kept = [line for line in row[1:] if line.startswith(("sabour2017/mnist,", "choi2019/cifar10,"))]
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "accuracy.csv").write_text("\n".join([row[0], *kept]) + "\n")
    monkeypatch.chdir(tmp_path)
    found = {r["recipe"]: r for r in json.loads(CliRunner().invoke(app, ["list", "--json"]).stdout)}
    assert found["choi2019/cifar10"]["epochs"] == "200"
    assert found["choi2019/cifar10"]["ours"] == pytest.approx(89.25)
    assert found["sabour2017/mnist"]["epochs"] == "400 of 641"  # not the shorter ones, of 77
    assert found["sabour2017/mnist"]["ours"] == pytest.approx(99.65)
    assert (found["sabour2017/svhn"]["ours"], found["sabour2017/svhn"]["epochs"]) == (None, None)


def test_a_folder_without_a_record_is_said_to_have_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    listed = CliRunner().invoke(app, ["list"])
    assert listed.stderr == "ours: no row in results/accuracy.csv of this folder\n"


@pytest.mark.parametrize(
    "arguments",
    [["demo", "--steps", "0"], ["dmeo"], ["demo", "--seed", "x"], ["demo", "dynamite"]],
)
def test_wrong_use_exits_with_2_and_no_trace(arguments: list[str]) -> None:
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
