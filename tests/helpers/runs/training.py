"""Short training runs, and a way to break one at a step."""

import json
from pathlib import Path
from typing import Any

import pytest

from torchcaps.recipes import Recipe, get
from torchcaps.results import AccuracyRow
from torchcaps.train import TrainOptions, train
from torchcaps.train.outputs.report import Reporter
from torchcaps.train.run import Run

QUICK = {"limit": 320, "batch_size": 32, "epochs": 3, "test_limit": 100}


def quick(recipe: Recipe, **options: Any) -> AccuracyRow:
    """Train on the CPU without TensorBoard."""
    return train(recipe, TrainOptions(**{"device": "cpu", "tensorboard": False, **options}))


def small(routing: str = "dynamic", **changes: Any) -> Recipe:
    return get(f"demo/strokes-{routing}").override(**{**QUICK, **changes})


class Listener(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


class BrokenError(Exception):
    """An error that a test raises to break a run."""


def break_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    usual = Run.after_step

    def after_step(self: Run, epoch: int) -> None:
        usual(self, epoch)
        if self.progress.step == step:
            raise BrokenError

    monkeypatch.setattr(Run, "after_step", after_step)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
