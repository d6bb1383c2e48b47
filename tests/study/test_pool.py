"""The processes that measure: what they answer, and what becomes of one that ends."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.registry import restored_zoo
from torchcaps.campaign import Settings
from torchcaps.recipes.study import STUDIES
from torchcaps.study import StudyRun, plan_study
from torchcaps.study.pool import Measurement, Pool

OWN = Path(__file__).parents[1] / "helpers/my_recipe.py"


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    with restored_zoo():
        yield


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[Pool]:
    settings = Settings(
        devices=("cpu",), runs=tmp_path / "runs", record=tmp_path / "log/accuracy.csv"
    )
    pool = Pool(settings)
    try:
        yield pool
    finally:
        pool.close()


def next_measurement(pool: Pool) -> Measurement:
    """Return the next measurement of a pool."""
    end = time.monotonic() + 90
    while time.monotonic() < end:
        if found := pool.poll():
            return found[0]
        time.sleep(0.05)
    raise AssertionError("nothing was measured in time")


def test_a_run_is_the_same_in_another_process() -> None:
    for run in plan_study(STUDIES["smoke"], heads=["em"], routings=[f"{OWN}:MeanRouting"]):
        again = StudyRun.from_json(run.to_json())
        assert again.key == run.key
        assert again.entry.recipe.settings() == run.entry.recipe.settings()


def test_a_process_that_dies_is_reported_and_replaced(pool: Pool) -> None:
    first, second = plan_study(STUDIES["smoke"], heads=["dynamic", "em"])
    pool.waiting.extend([first, second])
    assert pool.poll() == []
    (measurer,) = pool.measurers
    assert measurer.process is not None
    measurer.process.send_signal(signal.SIGKILL)
    run, row, problem = next_measurement(pool)
    assert (run, row) == (first, None)
    assert problem == f"its process ended with code -9 (see {measurer.log})"
    # the next process reads the second run, which was never trained
    run, row, problem = next_measurement(pool)
    assert (run, row) == (second, None)
    assert "train it first" in problem
    assert not pool.is_busy
    process = measurer.process
    pool.close()
    # an idle process ends by itself
    assert process is not None
    assert process.returncode == 0
