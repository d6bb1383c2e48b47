"""Studies: plans, a user's routing, rows that are measured once, and interruptions."""

import signal
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from helpers.commands import invoke, refused
from helpers.registry import restored_zoo
from torchcaps.campaign import Settings
from torchcaps.errors import UsageError
from torchcaps.recipes.study import HEADS, STUDIES
from torchcaps.results import ComparisonRow, append_comparison, read_comparison, table_of
from torchcaps.results.comparison.page import comparison_markdown
from torchcaps.study import Outcome, plan_study, run_study, sort_rows, without_rows

OWN = Path(__file__).parents[1] / "helpers/my_recipe.py"
SMOKE = STUDIES["smoke"]


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with restored_zoo():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("study")


@pytest.fixture(scope="module")
def settings(folder: Path) -> Settings:
    return Settings(devices=("cpu",), runs=folder / "runs", record=folder / "accuracy.csv")


@pytest.fixture(scope="module")
def outcome(folder: Path, settings: Settings) -> Outcome:
    with restored_zoo():
        runs = plan_study(SMOKE, heads=["dynamic"], routings=[f"{OWN}:MeanRouting"])
        return run_study(runs, settings, folder / "rows.csv")


def test_a_plan_has_every_head_and_seed_one_data_set_after_another() -> None:
    study = STUDIES["quick"]
    runs = plan_study(study)
    assert len(runs) == len(study.datasets) * len(study.seeds) * len(HEADS)
    assert len({run.key for run in runs}) == len(runs)
    datasets = [run.dataset for run in runs]
    assert datasets == sorted(datasets, key=study.datasets.index)


@pytest.mark.parametrize(
    ("heads", "routings", "message"),
    [
        (["emm"], [], "there is no head 'emm'"),
        (["em", "em"], [], "two heads are named em"),
        ([], [f"{OWN}:MeanRouting"] * 2, "two heads are named MeanRouting"),
        ([], [f"{OWN}:Missing"], "has no 'Missing'"),
    ],
)
def test_a_wrong_head_gets_one_sentence(
    heads: list[str], routings: list[str], message: str
) -> None:
    with pytest.raises(UsageError, match=message):
        plan_study(SMOKE, heads=heads, routings=routings)


def test_a_routing_of_ones_own_is_trained_and_measured_beside_the_others(outcome: Outcome) -> None:
    assert not outcome.missing
    assert not outcome.failed
    dynamic, own = outcome.rows
    assert (dynamic.head, own.head) == ("dynamic", "MeanRouting")
    for row in outcome.rows:
        assert abs(row.parameters - dynamic.parameters) < 0.05 * dynamic.parameters
        assert set(row.rotation) == {"0", "15", "30", "45", "60", "75", "90"}
        assert row.rotation["0"] == row.noise["0"] == row.scale["1"]
        assert row.pgd["0"] == row.fgsm["0"]
        assert row.train_images_per_s is not None
        assert row.train_images_per_s > 0
        assert row.latency_ms is not None
        assert row.latency_ms > 0
        assert row.equivariance is not None
        assert row.equivariance < 1
        assert row.iou is None
    assert dynamic.entropy is not None
    assert 0 < dynamic.entropy <= 1
    # nothing competes in a mean
    assert own.entropy is None


def test_a_row_that_exists_is_not_measured_again(
    folder: Path, settings: Settings, outcome: Outcome
) -> None:
    runs = plan_study(SMOKE, heads=["dynamic"], routings=[f"{OWN}:MeanRouting"])
    rows = folder / "interrupted.csv"
    append_comparison(rows, outcome.rows[:1])
    assert [run.head for run in without_rows(runs, outcome.rows[:1])] == ["MeanRouting"]
    new: list[str] = []
    again = run_study(runs, settings, rows, on_row=lambda row: new.append(row.head))
    assert new == ["MeanRouting"]
    assert [row.key for row in again.rows] == [row.key for row in outcome.rows]
    assert again.rows[0] == read_comparison(rows)[0] == read_comparison(folder / "rows.csv")[0]
    # the network is the same, and so is all that is no time
    timed = ("train_images_per_s", "latency_ms", "date")
    first, second = outcome.rows[1].to_dict(), again.rows[1].to_dict()
    for name, value in first.items():
        if name not in timed:
            assert second[name] == pytest.approx(value, abs=1e-3), name


def test_a_failed_measurement_is_named_and_loses_no_other_row(
    folder: Path, settings: Settings, outcome: Outcome
) -> None:
    runs = plan_study(SMOKE, heads=["dynamic"], routings=[f"{OWN}:MeanRouting"])
    weights = runs[0].entry.folder(settings.runs) / "weights.safetensors"
    rows, aside = folder / "failed.csv", weights.with_suffix(".aside")
    weights.rename(aside)
    try:
        again = run_study(runs, settings, rows)
        (problem,) = again.problems
        assert problem.startswith("compare/smoke/strokes/dynamic seed 0 could not be measured: ")
        assert "\n" not in problem
        assert [run.head for run in again.missing] == ["dynamic"]
        assert [row.head for row in read_comparison(rows)] == ["MeanRouting"]
    finally:
        aside.rename(weights)


def test_measuring_ends_at_the_time_limit(
    folder: Path, settings: Settings, outcome: Outcome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchcaps.campaign.runner.LEAST_S", 0)
    limited = replace(settings, minutes=0.5 / 60, grace_s=0.25)
    runs = plan_study(SMOKE, heads=["dynamic"])
    started = time.monotonic()
    late = run_study(runs, limited, folder / "late.csv")
    assert time.monotonic() - started < 5
    assert [run.head for run in late.missing] == ["dynamic"]
    assert (late.rows, late.failed, late.problems) == ([], [], [])


def test_rows_that_lack_only_their_speed_are_completed(
    folder: Path, settings: Settings, outcome: Outcome
) -> None:
    runs = plan_study(SMOKE, heads=["dynamic"])
    lacking = replace(
        outcome.rows[0], test=12.5, train_images_per_s=None, peak_mib=None, latency_ms=None
    )
    append_comparison(folder / "speed.csv", [lacking])
    again = run_study(runs, replace(settings, runs=folder / "none"), folder / "speed.csv")
    # neither trained nor measured again
    assert not (folder / "none").exists()
    assert not again.missing
    (row,) = again.rows
    assert row.test == 12.5
    assert row.has_speed
    assert read_comparison(folder / "speed.csv") == [row]
    append_comparison(folder / "speed.csv", [lacking, row])
    assert read_comparison(folder / "speed.csv") == [row]


def test_speed_is_measured_for_the_first_seed_only(
    folder: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(STUDIES, "smoke", replace(SMOKE, seeds=(1, 0)))
    runs = plan_study(STUDIES["smoke"], heads=["dynamic"])
    order: list[int] = []
    outcome = run_study(
        runs, settings, folder / "seeds.csv", on_row=lambda row: order.append(row.seed)
    )
    assert sorted(order) == [0, 1]
    assert {row.seed: row.latency_ms is not None for row in outcome.rows} == {0: False, 1: True}
    table = table_of(outcome.rows, "strokes")["dynamic"]
    assert table["accuracy %"].n == 2
    assert (table["latency ms"].n, table["latency ms"].std) == (1, None)
    assert "speeds are of the first seed" in comparison_markdown(outcome.rows)


def test_rows_are_sorted_by_data_set_seed_and_head(outcome: Outcome) -> None:
    first = outcome.rows[0]
    keys = [("b", 1, "em"), ("a", 0, "mine"), ("a", 0, "em"), ("b", 0, "plain-average")]
    keys += [("a", 0, "dynamic"), ("b", 0, "self")]
    rows = [replace(first, dataset=data, seed=seed, head=head) for data, seed, head in keys]
    assert [(row.dataset, row.seed, row.head) for row in sort_rows(rows)] == [
        *(("b", 0, "self"), ("b", 0, "plain-average"), ("b", 1, "em")),
        *(("a", 0, "dynamic"), ("a", 0, "em"), ("a", 0, "mine")),
    ]


def test_rows_of_another_definition_are_refused(
    folder: Path, settings: Settings, outcome: Outcome
) -> None:
    rows = folder / "other.csv"
    append_comparison(rows, [replace(outcome.rows[0], epochs=7)])
    with pytest.raises(UsageError, match="another definition of the study smoke"):
        run_study(plan_study(SMOKE, heads=["dynamic"]), settings, rows)


def test_ctrl_c_while_measuring_keeps_the_rows_so_far(
    folder: Path, settings: Settings, outcome: Outcome
) -> None:
    runs = plan_study(SMOKE, heads=["dynamic"], routings=[f"{OWN}:MeanRouting"])
    rows = folder / "stopped.csv"
    pressed: list[str] = []

    def press_once(row: ComparisonRow) -> None:
        pressed.append(row.head)
        if len(pressed) == 1:
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Exception, match="every row so far is saved") as caught:
        run_study(runs, settings, rows, on_row=press_once)
    assert getattr(caught.value, "exit_code", None) == 130
    # what was being measured is finished
    kept = read_comparison(rows)
    assert [row.head for row in kept] == pressed
    assert not any(row.has_speed for row in kept)


def test_the_command_prints_the_table_and_writes_the_page(folder: Path, outcome: Outcome) -> None:
    page = folder / "page.md"
    words = ["compare", "smoke", "--head", "dynamic", "--routing", f"{OWN}:MeanRouting"]
    words += ["--results", str(folder / "rows.csv"), "--out", str(folder / "runs")]
    result = invoke(*words, "--device", "cpu", "--page", page)
    assert result.exit_code == 0, result.output
    assert "strokes, n = 1" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    assert f"{outcome.rows[0].test:.1f}" in page.read_text()
    assert (folder / "page.png").stat().st_size > 10_000
    assert invoke(*words, "--device", "cpu", "--plan").stdout.strip() == ""


def test_a_wrong_call_gets_one_sentence(tmp_path: Path) -> None:
    assert "there is no study 'quik'" in refused("compare", "quik")
    assert "there is no head 'emm'" in refused("compare", "smoke", "--head", "emm")
    wrong = tmp_path / "rows.csv"
    wrong.write_text("not,a,comparison\n")
    assert "is not a table of comparisons" in refused("compare", "smoke", "--results", wrong)
