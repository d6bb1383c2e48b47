"""What the repository holds: its record, curves, tables and weights tell one story."""

import re
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from helpers.repetitions import mark_slow_except
from torchcaps.data import missing_files
from torchcaps.models.weights.files import describe
from torchcaps.models.weights.pretrained import MAX_WEIGHT_BYTES, facts, shipped
from torchcaps.models.zoo import count_parameters
from torchcaps.papers import PAPERS
from torchcaps.recipes import RECIPES
from torchcaps.results import (
    ACCURACY,
    curve_path,
    gather,
    read_rows,
    write_coverage,
    write_page,
    write_paper,
    write_readme,
    write_runs,
)
from torchcaps.train.evaluation.files import evaluate_files
from torchcaps.train.evaluation.publish import TOLERANCE

ROOT = Path(__file__).parents[2]
MOST_TOGETHER = 54_000_000
SHIPPED = shipped()


def test_the_readme_and_the_pages_are_in_step_with_the_record(tmp_path: Path) -> None:
    rows = read_rows(ROOT / ACCURACY)
    evidence = gather(ROOT / ACCURACY, ROOT / "results/speed.csv")
    writers: list[tuple[str, Callable[[Path], bool]]] = [
        ("README.md", lambda page: write_readme(page, rows)),
        ("docs/results.md", lambda page: write_page(page, rows, facts())),
        ("docs/results.md", lambda page: write_coverage(page, evidence)),
        ("docs/runs.md", lambda page: write_runs(page, rows)),
    ]
    writers += [
        (f"docs/papers/{key}.md", partial(write_paper, key, evidence=evidence)) for key in PAPERS
    ]
    for name, write in writers:
        copy = tmp_path / Path(name).name
        copy.write_text((ROOT / name).read_text())
        assert not write(copy), name


def test_the_record_and_its_curves_tell_one_story() -> None:
    record = ROOT / ACCURACY
    rows = read_rows(record)
    curves = {curve_path(record, each): each for each in sorted(rows, key=lambda each: each.date)}
    assert set((record.parent / "curves").iterdir()) == set(curves)
    for path, last in curves.items():
        header, *lines = path.read_text().splitlines()
        epochs = [dict(zip(header.split(","), line.split(","), strict=True)) for line in lines]
        assert int(epochs[-1]["epoch"]) == last.epochs, path.name
        held_out = [float(epoch["validation"]) for epoch in epochs if epoch["validation"]]
        if last.validation is None:
            assert not held_out, path.name
        else:
            assert max(held_out) == pytest.approx(last.validation, abs=6e-4), path.name
        assert float(epochs[-1]["seconds"]) == pytest.approx(last.seconds, abs=0.15), path.name
        steps = int(epochs[-1]["step"]) / last.epochs
        assert steps == int(epochs[0]["step"]) / int(epochs[0]["epoch"]), path.name


def test_every_row_of_the_record_is_one_run_of_a_recipe_of_ours() -> None:
    rows = read_rows(ROOT / ACCURACY)
    assert len({each.weights_sha256 for each in rows}) == len(rows)
    for each in rows:
        recipe = RECIPES[each.recipe]
        assert each.paper == recipe.published.value, each
        definition = each.changes.get("definition")
        assert definition is None or isinstance(definition, int)
        parameters = count_parameters(recipe.network, definition=definition)
        assert each.parameters == parameters, each
        assert each.recipe_epochs == recipe.epochs, each
        assert re.fullmatch(r"[0-9a-f]{7,40}", each.commit), each
        assert re.fullmatch(r"[0-9a-f]{64}", each.weights_sha256), each
        assert f"torchcaps train {each.recipe}" in each.command, each


def test_the_shipped_files_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in SHIPPED.values()}
    assert {name: size for name, size in sizes.items() if size > MAX_WEIGHT_BYTES} == {}
    assert sum(sizes.values()) <= MOST_TOGETHER


@pytest.mark.parametrize("recipe", SHIPPED)
def test_a_shipped_file_is_of_a_run_of_the_record(recipe: str) -> None:
    described = describe(SHIPPED[recipe])
    trained = described["trained"]
    assert (trained["recipe"], described["network"]) == (recipe, RECIPES[recipe].network)
    assert described["overrides"].get("iterations") == RECIPES[recipe].iterations
    runs = [r for r in read_rows(ROOT / ACCURACY) if r.weights_sha256 == trained["weights_sha256"]]
    assert [(r.recipe, r.seed) for r in runs] == [(recipe, trained["seed"])]
    definition = described["overrides"].get("definition")
    assert definition in (None, runs[0].changes.get("definition"))
    assert replace(runs[0], changes={}).modified == trained["modified"]
    assert abs(trained["test"] - runs[0].test) <= TOLERANCE


CHECKED = [name for name in SHIPPED if RECIPES[name].dataset in ("mnist", "fashion_mnist")]


@pytest.mark.parametrize("recipe", mark_slow_except(CHECKED, "demo/mnist-pairwise"))
def test_a_shipped_file_gives_its_number_on_the_real_images(recipe: str) -> None:
    chosen = RECIPES[recipe]
    for name in (chosen.dataset, chosen.test_dataset or chosen.dataset):
        if missing_files(name):
            pytest.skip(f"no {name} in the data folder")
    trained = describe(SHIPPED[recipe])["trained"]
    start = time.perf_counter()
    (score,) = evaluate_files([SHIPPED[recipe]], device="cpu").values()
    assert score["images"] == trained["images"]
    assert abs(score["percent"] - trained["test"]) <= 0.02, f"{time.perf_counter() - start:.0f} s"
