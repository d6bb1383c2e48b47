"""Campaigns: lists, plans, runs side by side, time limits and interruptions."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from helpers.commands import invoke, one_sentence, refused
from helpers.runs.rows import row
from torchcaps.campaign import (
    Pace,
    Settings,
    State,
    Worker,
    plan,
    read_list,
    run_campaign,
    write_estimates,
)
from torchcaps.campaign.entries import read_sections
from torchcaps.campaign.runner import free_slots
from torchcaps.cli.campaign import make_table
from torchcaps.cli.results import CAMPAIGN_GPU
from torchcaps.errors import TorchcapsError
from torchcaps.recipes import get
from torchcaps.results import CurvePoint, read_rows

ROOT = Path(__file__).parents[2]
CAMPAIGN = ROOT / "benchmarks/campaign.txt"
SHORT = "demo/strokes-dynamic seeds=0-1 limit=128 test_limit=64 batch_size=32\n"
LONG = "demo/strokes-pairwise limit=640 test_limit=64 batch_size=32 epochs=4000\n"


def write_list(folder: Path, *lines: str) -> Path:
    path = folder / "list.txt"
    path.write_text("".join(lines))
    return path


def test_a_line_names_a_recipe_its_seeds_settings_and_flags(tmp_path: Path) -> None:
    line = "# rows\nsabour2017/mnist seeds=0-1,5 epochs=3 watch-test=yes compile=true # short\n\n"
    entries = read_list(write_list(tmp_path, line))
    assert [entry.seed for entry in entries] == [0, 1, 5]
    assert {entry.recipe.epochs for entry in entries} == {3}
    assert entries[0].flags == ("watch-test",)
    # compiling changes no result, so it is no part of the folder's name
    assert entries[2].folder(Path("runs")).as_posix() == "runs/sabour2017/mnist/seed5-epochs=3"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sabour2017/mnits", "line 1: there is no recipe 'sabour2017/mnits'"),
        ("\nsabour2017/mnist seeds=2-1", "line 2: seeds=2-1 must count up"),
        ("sabour2017/mnist seeds=x", "line 1: seeds=x must be numbers and ranges"),
        ("sabour2017/mnist epochs=0", "line 1: epochs must be"),
        ("sabour2017/mnist watch-test=no", "must be watch-test=yes, or left out"),
        ("sabour2017/mnist 'epochs", "line 1: No closing quotation"),
        ("sabour2017/mnist\nsabour2017/mnist seeds=0-2", "names sabour2017/mnist seed 0 twice"),
        ("# nothing\n", "names no recipe"),
    ],
)
def test_a_wrong_list_gets_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(TorchcapsError, match=message.replace("/", ".")):
        read_list(write_list(tmp_path, text))


def test_a_missing_list_and_too_short_a_time_get_one_sentence(tmp_path: Path) -> None:
    assert "cannot be read" in refused("campaign", tmp_path / "no.txt")
    assert "too short" in refused("campaign", write_list(tmp_path, SHORT), "--minutes", "0.5")
    assert "cuda:7" in refused("campaign", tmp_path / "list.txt", "--device", "cuda:7")


def test_the_campaign_list_of_the_repository_is_valid() -> None:
    entries = read_list(CAMPAIGN)
    assert len(entries) > 150
    assert entries[0].name.startswith("tsai2020/cifar100-resnet seed 0")
    titles = [title for title in read_sections(CAMPAIGN) if title]
    assert [int(title.partition(".")[0]) for title in titles] == list(range(1, 20))


def test_runs_of_papers_that_print_their_best_epoch_watch_their_test_score() -> None:
    blind = {
        entry.name
        for entry in read_list(CAMPAIGN)
        if entry.recipe.published.is_best_epoch
        and not entry.recipe.name.endswith("-modern")
        and "watch-test" not in entry.flags
    }
    assert blind == set()


def test_the_estimates_of_the_list_are_those_of_the_record(tmp_path: Path) -> None:
    page = Path(shutil.copy(ROOT / "benchmarks/README.md", tmp_path))
    rows = read_rows(ROOT / "results/accuracy.csv")
    assert not write_estimates(page, CAMPAIGN, rows, CAMPAIGN_GPU), "run torchcaps results --write"


def test_a_section_takes_the_time_of_its_known_runs(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- plan -->\n<!-- /plan -->\n")
    lines = ("# 1. Known\n", "zhao2020/cifar10 seeds=0-1 epochs=60\n", "# 2. Empty\n")
    path = write_list(tmp_path, *lines, "# 3. Unknown\n", "sabour2017/mnist\n")
    known = row("zhao2020/cifar10", test=90.0, seconds=500.0, epochs=50, gpu="H200")
    assert write_estimates(page, path, [known], "H200")
    cells = ["| 1. Known | 2 | 20 | 0 |", "| 3. Unknown | 1 | ? | 1 |"]
    assert page.read_text().splitlines()[3:-1] == cells


def test_runs_go_to_the_device_with_most_free_slots() -> None:
    slots = Settings(parallel=2, devices=("cuda:0", "cuda:1", "cuda:2")).slots
    assert slots == ["cuda:0", "cuda:1", "cuda:2"] * 2
    assert free_slots(slots, []) == slots
    busy = ["cuda:0", "cuda:0", "cuda:2"]
    assert free_slots(slots, busy) == ["cuda:1", "cuda:1", "cuda:2"]
    assert free_slots(slots, slots) == []


@pytest.mark.parametrize("count", [3, 30])
def test_the_live_table_fits_a_terminal_and_counts_what_it_hides(
    count: int, tmp_path: Path
) -> None:
    entries = read_list(write_list(tmp_path, f"demo/mnist-dynamic seeds=0-{count - 1} limit=64\n"))
    workers = [Worker(entry, tmp_path / "runs", tmp_path / "rows.csv") for entry in entries]
    workers[-1].state = State.RUNNING
    workers[-2].state = State.FAILED
    console = Console(width=80, file=StringIO())
    console.print(make_table(workers, Pace()))
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    lines = shown.splitlines()
    assert len(lines) <= 10
    assert all(len(line) <= 80 for line in lines)
    assert f"1 running, {count - 2} waiting, 1 failed" in shown
    assert f"seed {count - 1}" in shown
    assert ("seed 0" in shown) is (count == 3)


def test_a_pace_is_that_of_the_recipe_then_that_of_its_network() -> None:
    known = row("zhao2020/cifar10", test=90.0, seconds=100.0, epochs=50, gpu="H200")
    pace = Pace([known])
    assert pace.seconds_per_epoch(get("zhao2020/cifar10"), "H200") == 2.0
    assert pace.seconds_per_epoch(get("zhao2020/cifar10"), "A100") == 2.0
    assert pace.seconds_per_epoch(get("zhao2020/cifar10-modern"), "H200") == 2.0
    assert pace.seconds_per_epoch(get("sabour2017/mnist"), "H200") is None


def test_a_running_curve_overrules_the_record() -> None:
    recipe = get("zhao2020/cifar10").override(epochs=100)
    known = row("zhao2020/cifar10", test=90.0, seconds=100.0, epochs=50)
    curve = [CurvePoint(epoch=n, step=n, seconds=30 + 5.0 * n) for n in range(1, 21)]
    assert Pace([known]).seconds_left(recipe, curve[:1], known.gpu) == 99 * 2.0
    assert Pace([known]).seconds_left(recipe, curve, known.gpu) == pytest.approx(80 * 5.0)


def test_a_plan_fills_the_places_in_the_order_of_the_list(tmp_path: Path) -> None:
    entries = read_list(write_list(tmp_path, "sabour2017/mnist seeds=0-4\n"))
    planned = plan(entries, [50, 20, 40, None, 10], slots=2, limit=60)
    assert [one.slot for one in planned] == [0, 1, 1, 0, 1]
    assert [one.start for one in planned] == [0, 0, 20, 50, 60]
    verdicts = ["finishes", "finishes", "finishes", "unknown", "not started"]
    assert [one.verdict for one in planned] == verdicts


def test_runs_end_side_by_side_and_a_second_campaign_trains_nothing(tmp_path: Path) -> None:
    entries = read_list(write_list(tmp_path, SHORT))
    record = tmp_path / "results/accuracy.csv"
    settings = Settings(parallel=2, devices=("cpu",), runs=tmp_path / "runs", record=record)
    together: list[int] = []
    workers = run_campaign(
        entries,
        settings,
        show=lambda all_: together.append(sum(w.state == "running" for w in all_)),
    )
    assert max(together) == 2
    assert [worker.state for worker in workers] == [State.FINISHED] * 2
    assert sorted(one.seed for one in read_rows(record)) == [0, 1]
    assert len(list((tmp_path / "results/curves").glob("*.csv"))) == 2
    assert all((worker.path / "weights.safetensors").exists() for worker in workers)
    started = time.monotonic()
    run_campaign(entries, settings)
    assert time.monotonic() - started < 5
    assert len(read_rows(record)) == 2


def test_a_failed_run_is_named_and_stops_no_other(tmp_path: Path) -> None:
    # no MNIST is in the data folder, and every download is refused
    missing = "sabour2017/mnist limit=64\n"
    path = write_list(tmp_path, missing, SHORT.replace("0-1", "0"))
    (tmp_path / "data").mkdir()
    result = invoke(
        *("campaign", path, "--out", tmp_path / "runs", "--results", tmp_path / "rows.csv"),
        *("--device", "cpu", "--data-dir", blocked(tmp_path)),
    )
    problem = one_sentence(result, 1)
    assert problem.startswith("sabour2017/mnist seed 0 limit=64 failed: ")
    assert "campaign.log" in problem
    assert "1 finished, 1 failed" in result.stdout
    assert [one.recipe for one in read_rows(tmp_path / "rows.csv")] == ["demo/strokes-dynamic"]


def blocked(folder: Path) -> Path:
    """Return a data folder that cannot be made, because a file is in its place."""
    path = folder / "file"
    path.write_text("")
    return path / "data"


def test_an_interrupted_campaign_saves_its_runs_and_goes_on(tmp_path: Path) -> None:
    path = write_list(tmp_path, LONG)
    command = [sys.executable, "-m", "torchcaps", "campaign", str(path), "--device", "cpu"]
    command += ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "rows.csv")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    metrics = tmp_path / "runs/demo/strokes-pairwise"
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    end = time.monotonic() + 90
    while time.monotonic() < end and not list(metrics.glob("*/metrics.jsonl")):
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    _, problem = process.communicate(timeout=90)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped with 0 of 1 runs finished" in problem
    assert "Traceback" not in problem
    (folder,) = metrics.iterdir()
    assert list((folder / "checkpoints").glob("step-*"))
    assert json.loads((folder / "run.json").read_text())["settings"]["epochs"] == 4000
    planned = invoke(*command[3:], "--plan", "--json")
    assert json.loads(planned.stdout)[0]["run"].startswith("demo/strokes-pairwise seed 0")


@pytest.mark.slow
def test_the_time_limit_saves_what_is_unfinished(tmp_path: Path) -> None:
    entries = read_list(write_list(tmp_path, LONG))
    settings = Settings(
        minutes=0.75,
        devices=("cpu",),
        runs=tmp_path / "runs",
        record=tmp_path / "r.csv",
        grace_s=20,
    )
    started = time.monotonic()
    (worker,) = run_campaign(entries, settings)
    assert time.monotonic() - started < 45
    assert worker.state is State.SAVED
    assert worker.curve()


@pytest.mark.slow
def test_a_killed_campaign_loses_nothing(tmp_path: Path) -> None:
    path = write_list(tmp_path, "demo/strokes-dynamic limit=640 test_limit=64 epochs=8\n")
    runs, record = tmp_path / "runs", tmp_path / "rows.csv"
    command = [sys.executable, "-m", "torchcaps", "campaign", str(path), "--device", "cpu"]
    command += ["--out", str(runs), "--results", str(record)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    end = time.monotonic() + 90
    while time.monotonic() < end and not list(runs.rglob("metrics.jsonl")):
        time.sleep(0.1)
    process.kill()
    process.wait()
    assert not record.exists()
    settings = Settings(devices=("cpu",), runs=runs, record=record)
    (worker,) = run_campaign(read_list(path), settings)
    assert worker.state is State.FINISHED
    assert [point.epoch for point in worker.curve()] == list(range(1, 9))
    assert len(read_rows(record)) == 1
