"""The scorecard's rows on whole runs, as often as every change is tried: see `reliability.runs`."""

import dataclasses
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor

from reliability.runs import prints
from torchcaps.recipes import Recipe, get
from torchcaps.train import InterruptedRunError, train

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

    def loss(scores: Tensor, targets: Tensor, *, step: Tensor, smoothing: float) -> Tensor:
        if int(step) == at:
            os.kill(os.getpid(), wanted)
        return recipe.loss(scores, targets, step=step, smoothing=smoothing)

    return dataclasses.replace(recipe, loss=loss)


@pytest.mark.parametrize("wanted", [signal.SIGINT, signal.SIGTERM])
def test_a_run_stopped_after_every_step_ends_like_one_that_was_not(
    tmp_path: Path, wanted: signal.Signals
) -> None:
    recipe = small("inverted-attention", average=0.9)
    train(recipe, out=tmp_path / "unbroken", tensorboard=False)
    for at in range(STEPS * EPOCHS):
        with pytest.raises(InterruptedRunError) as caught:
            train(asking(recipe, at, wanted), out=tmp_path / "run", tensorboard=False)
        assert caught.value.code == 128 + wanted
        assert f"stopped at step {at + 1} of {STEPS * EPOCHS}" in str(caught.value)
    train(recipe, out=tmp_path / "run", tensorboard=False)
    assert prints(tmp_path / "run") == prints(tmp_path / "unbroken")
