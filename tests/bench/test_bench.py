"""Benchmarks: plans build, rows and tables are right, the page of speeds shows the record."""

import importlib
import json
import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from typer.testing import CliRunner

from torchcaps.bench import PLANS, Measured, Setting, measure, rows_of
from torchcaps.bench.measure import find_recipe, network, prepare
from torchcaps.cli import app
from torchcaps.models import CapsNet, EMCapsNet, build
from torchcaps.models.network import Classifier
from torchcaps.recipes import get
from torchcaps.results import SpeedRow, append_speed, headline, read_speed, speed_table
from torchcaps.routing import Routing
from torchcaps.train.step import Step

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "speed.md"
CPU = torch.device("cpu")
GPU_ONLY = ("fused", "torch+graph")


@pytest.mark.parametrize(("mark", "choose"), [("headline", headline), ("speed", list)])
def test_the_page_shows_the_record(
    mark: str, choose: Callable[[list[SpeedRow]], list[SpeedRow]]
) -> None:
    text = PAGE.read_text()
    shown = re.search(rf"<!-- {mark} -->\n(.*?)\n<!-- /{mark} -->", text, re.DOTALL)
    assert shown is not None
    assert shown[1] == speed_table(choose(read_speed(ROOT / "results" / "speed.csv")))


def test_the_page_says_that_em_is_measured_with_another_competition_than_it_is_built() -> None:
    with torch.device("meta"):
        built = build("hinton2018/smallnorb")
    assert isinstance(built, EMCapsNet)
    measured = Setting("hinton2018/smallnorb").competition
    assert built.conv1.competition != measured
    assert f'`competition="{measured}"`' in PAGE.read_text()


@pytest.mark.parametrize("name", PLANS)
def test_every_setting_of_a_plan_can_be_built(name: str) -> None:
    for setting in PLANS[name]:
        with torch.device("meta"):
            net = network(setting)
        routings = [module for module in net.modules() if isinstance(module, Routing)]
        if setting.has("floor"):
            assert isinstance(net, Classifier | CapsNet)
        elif setting.has("torch"):
            assert {routing.implementation for routing in routings} == {"torch"}


def test_a_step_is_measured_and_becomes_a_row(tmp_path: Path) -> None:
    settings = [Setting("sabour2017/svhn", way, 1) for way in ("floor", "torch")]
    measured = [measure(setting, device=CPU, repeats=2) for setting in settings]
    floor, row = rows_of(measured, device=CPU, revision="abc")
    assert row.iterations == 3
    share = measured[1].images_per_s / measured[0].images_per_s
    assert row.share_of_floor == round(share, 3)
    assert floor.share_of_floor == 1
    for _ in range(2):
        append_speed(tmp_path / "speed.csv", [row])
    assert read_speed(tmp_path / "speed.csv") == [row, row]
    assert speed_table([row, row]).count("sabour2017/svhn") == 1


def test_the_loop_of_a_user_is_measured_apart() -> None:
    settings = [Setting("sabour2017/svhn", "torch", 1, loop=loop) for loop in ("recipe", "user")]
    measured = [measure(setting, device=CPU, repeats=1) for setting in settings]
    rows = rows_of(measured, device=CPU, revision="abc")
    assert [row.loop for row in rows] == [None, "user"]
    assert [row.shape for row in rows] == ["", "loop=user"]
    assert speed_table(rows).count("sabour2017/svhn, loop of a user") == 1
    assert headline(rows) == rows[:1]


def test_the_loop_of_a_user_trains_every_weight(monkeypatch: pytest.MonkeyPatch) -> None:
    net = build("sabour2017/mnist")
    module = importlib.import_module("torchcaps.bench.measure")  # its name is a function, too
    monkeypatch.setattr(module, "network", lambda setting: net)
    step = prepare(Setting("sabour2017/mnist", "torch", 2, loop="user"), CPU)
    before = {name: value.clone() for name, value in net.named_parameters()}
    step()
    for name, value in net.named_parameters():
        assert not torch.equal(value, before[name]), f"{name} has not changed"


@pytest.mark.parametrize("case", ["sabour2017/multimnist", "zhao2020/multimnist"])
def test_networks_of_two_objects_are_measured_too(case: str) -> None:
    assert measure(Setting(case, "torch", 1), device=CPU, repeats=1).images_per_s > 0


def test_the_step_is_the_recipe_s_own_with_its_ascent() -> None:
    step = prepare(Setting("yang2021/mnist-l2", "torch", 2), CPU)
    assert isinstance(step, partial)
    taken = step.func
    assert isinstance(taken, Step)
    assert taken.ascent is not None
    assert taken.recipe.reconstruction_weight == get("yang2021/mnist-l2").reconstruction_weight
    (group,) = taken.ascent.param_groups
    before = [parameter.detach().clone() for parameter in group["params"]]
    step()
    assert int(taken.taken) == 1
    for old, new in zip(before, group["params"], strict=True):
        assert not torch.equal(old, new)


def test_a_case_is_a_recipe_or_the_first_recipe_of_a_network() -> None:
    assert find_recipe(Setting("sabour2017/mnist-modern")).name == "sabour2017/mnist-modern"
    assert find_recipe(Setting("zhao2020/affnist")).loss is get("zhao2020/affnist").loss
    assert find_recipe(Setting("sabour2017/svhn", dtype="bfloat16")).precision == "bfloat16"
    untrained = find_recipe(Setting("zhao2020/cifar10-em"))
    assert untrained.network == "zhao2020/cifar10-em"
    with torch.device("meta"):
        assert network(Setting("sabour2017/mnist-modern")).name == "sabour2017/mnist"


def test_quantiles_are_those_of_the_steps() -> None:
    one = Measured(Setting("x", batch=6), tuple(float(n) for n in range(10, 0, -1)), 1.0, 0.0)
    assert one.images_per_s == pytest.approx(6 / 5.5)
    assert (one.quantile(0.1), one.quantile(0.9), one.quantile(1.0)) == (2.0, 10.0, 10.0)


def test_the_command_prints_json_and_refuses_an_unknown_plan(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(PLANS, "small", (Setting("sabour2017/svhn", "torch", 1, "inference"),))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    done = CliRunner().invoke(app, ["bench", "--json", "--repeats", "1"])
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["mode"] == "inference"
    refused = CliRunner().invoke(app, ["bench", "nonsense"])
    assert refused.exit_code == 2
    assert "there is no plan 'nonsense'" in refused.output


def test_what_cannot_be_measured_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for implementation in ("bogus", "torch+bogus", ""):
        with pytest.raises(ValueError, match="there is no implementation"):
            Setting("sabour2017/svhn", implementation)
    with pytest.raises(ValueError, match="at least one image"):
        Setting("sabour2017/svhn", batch=0)
    with pytest.raises(ValueError, match="at least one repeat"):
        measure(Setting("sabour2017/svhn", "torch", 1), device=CPU, repeats=0)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    settings = [Setting("sabour2017/svhn", way, 1, "inference") for way in GPU_ONLY]
    monkeypatch.setitem(PLANS, "small", (*settings, replace(settings[0], implementation="torch")))
    done = CliRunner().invoke(app, ["bench", "--repeats", "1"])
    assert done.exit_code == 0, done.output
    assert "kernels do not run because there is no CUDA device" in done.stderr
    assert "leave out +graph" in done.stderr
    assert done.stdout.count("svhn") == 1
    monkeypatch.setitem(PLANS, "small", tuple(settings))
    assert CliRunner().invoke(app, ["bench"]).exit_code == 1
    nowhere = CliRunner().invoke(app, ["bench", "--keep", str(tmp_path)])
    assert nowhere.exit_code == 1
    assert "Is a directory" in nowhere.output


def test_tables_say_where_and_take_any_implementation() -> None:
    made = speed_table(
        SpeedRow(
            case="x",
            mode="train",
            implementation=way,
            batch=4,
            dtype="float32",
            iterations=count,
            images_per_s=5.0,
            peak_mib=None,
            share_of_floor=None,
            gpu=gpu,
        )
        for gpu in ("x86_64 CPU x2", "NVIDIA H200")
        for way in ("mine", "torch", "torch+compile")
        for count in (10, 9)
    )
    shown = [[cell.strip() for cell in line.split("|")] for line in made.splitlines()[2:]]
    ways = ("torch + compile", "torch", "mine")
    assert [(cells[2], cells[3], cells[6]) for cells in shown] == [
        (on, way, count) for on in ("H200", "CPU x2") for way in ways for count in ("9", "10")
    ]


def test_a_floor_is_one_of_the_same_sizes() -> None:
    small, large = (Setting("tsai2020/cifar10-simple", "floor", 1, side=n) for n in (16, 32))
    settings = (small, large, replace(small, implementation="torch"))
    measured = [Measured(s, (t,), 1.0, 0.0) for s, t in zip(settings, (1.0, 4.0, 2.0), strict=True)]
    rows = rows_of(measured, device=CPU, revision="abc")
    assert [row.share_of_floor for row in rows] == [1, 1, 0.5]


def test_dense_votes_are_cast_before_they_are_routed() -> None:
    net = network(Setting("sabour2017/svhn", "dense", 1))
    seen: list[type] = []
    for module in net.modules():
        if isinstance(module, Routing):
            module.register_forward_pre_hook(lambda _, inputs: seen.append(type(inputs[1])))
    net(torch.rand(1, 3, 32, 32))
    assert seen == [torch.Tensor]


def test_rows_are_kept_one_by_one_and_only_in_a_file_of_speeds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    good = Setting("sabour2017/svhn", "torch", 1, "inference")
    monkeypatch.setitem(PLANS, "small", (good, replace(good, batch=2)))
    kept = tmp_path / "speed.csv"
    kept.touch()  # as a full disk leaves it
    command = ["bench", "--repeats", "1", "--keep", str(kept)]
    assert CliRunner().invoke(app, command).exit_code == 0
    assert [row.batch for row in read_speed(kept)] == [1, 2]

    def stopped(setting: Setting, **settings: object) -> Measured:
        if setting.batch == 2:
            raise KeyboardInterrupt
        return Measured(setting, (1.0,), 1.0, 1.0)

    monkeypatch.setattr("torchcaps.bench.measure", stopped)
    assert CliRunner().invoke(app, command).exit_code != 0
    assert [row.batch for row in read_speed(kept)] == [1, 2, 1]
    other = tmp_path / "notes.csv"
    for text in ("recipe,seed\nx,1\n", "one line that does not end"):
        other.write_text(text)
        refused = CliRunner().invoke(app, ["bench", "--keep", str(other)])
        assert refused.exit_code == 1
        assert f"{other} is not a table of speeds" in refused.output
        assert other.read_text() == text
