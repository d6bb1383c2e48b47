"""The scorecard's rows on whole runs, as often as every change is tried: see `trials.runs`."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from reliability import record
from reliability.rows import ROWS
from reliability.scorecard import check_rows
from reliability.trials import disks, options, poison
from reliability.trials.runs import ROUTINGS, prints
from torchcaps.recipes import Recipe, get
from torchcaps.train import InterruptedRunError, TrainOptions, train

STEPS = 3
EPOCHS = 2


def small(routing: str, **changes: Any) -> Recipe:
    """Two epochs of three steps."""
    recipe = get(f"demo/strokes-{routing}").override(
        limit=8 * STEPS, test_limit=32, batch_size=8, epochs=EPOCHS
    )
    return dataclasses.replace(recipe, **changes)


def asking(recipe: Recipe, at: int, wanted: signal.Signals) -> Recipe:
    """The recipe, whose loss asks the process to stop at a step."""

    def loss(
        scores: Tensor, targets: Tensor, *, step: Tensor, share: Tensor, smoothing: float
    ) -> Tensor:
        if int(step) == at:
            os.kill(os.getpid(), wanted)
        return recipe.loss(scores, targets, step=step, share=share, smoothing=smoothing)

    return dataclasses.replace(recipe, loss=loss)


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_after_every_step_ends_like_one_that_was_not(
    tmp_path: Path, wanted: signal.Signals
) -> None:
    recipe = small("inverted-attention", average=0.9)
    train(recipe, TrainOptions(out=tmp_path / "unbroken", tensorboard=False))
    for at in range(STEPS * EPOCHS):
        with pytest.raises(InterruptedRunError) as caught:
            train(asking(recipe, at, wanted), TrainOptions(out=tmp_path / "run", tensorboard=False))
        assert caught.value.exit_code == 128 + wanted
        assert f"stopped at step {at + 1} of {STEPS * EPOCHS}" in str(caught.value)
    train(recipe, TrainOptions(out=tmp_path / "run", tensorboard=False))
    assert prints(tmp_path / "run") == prints(tmp_path / "unbroken")


def test_killed_runs_end_like_unbroken_ones_and_stopped_ones_save() -> None:
    check_rows("kill-command", "kill-resume", "signals")


def test_a_run_whose_disk_fills_up_goes_on_when_there_is_room() -> None:
    if not disks.can_mount():
        pytest.skip("no disk can be mounted here")
    check_rows("disk-full-run")


def test_a_run_goes_on_when_one_of_its_processes_dies() -> None:
    check_rows("rank-dies")


@pytest.mark.parametrize("routing", ROUTINGS)
def test_the_same_seed_gives_the_same_bits_with_every_routing(routing: str, tmp_path: Path) -> None:
    recipe = get(f"demo/strokes-{routing}").override(
        limit=160, test_limit=32, batch_size=8, epochs=1
    )
    for name, seed in (("one", 3), ("again", 3), ("other", 4)):
        train(recipe, TrainOptions(seed=seed, out=tmp_path / name, tensorboard=False))
    assert prints(tmp_path / "one") == prints(tmp_path / "again")
    assert prints(tmp_path / "one")[0] != prints(tmp_path / "other")[0]


def test_numbers_that_are_not_finite_stop_a_run_before_the_step() -> None:
    seen = list(poison.trials(0, ROWS["not-finite"].pr))
    assert len(seen) == ROWS["not-finite"].pr
    assert not list(filter(None, seen))


def test_wrong_values_on_the_command_line_are_refused_and_right_ones_taken() -> None:
    seen = list(options.trials(0, ROWS["options"].pr))
    assert len(seen) == ROWS["options"].pr
    assert not list(filter(None, seen))


def test_the_page_shows_what_was_recorded() -> None:
    assert record.PAGE.read_text() == record.page(record.read())
