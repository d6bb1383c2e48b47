"""Short training runs, and a way to break one at a step."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from torchcaps.recipes import Recipe, get
from torchcaps.train import train
from torchcaps.train.outputs.report import Reporter
from torchcaps.train.run import Run

QUICK = {"limit": 320, "batch_size": 32, "epochs": 3, "test_limit": 100}

quick = partial(train, device="cpu", tensorboard=False)


def small(routing: str = "dynamic", **changes: Any) -> Recipe:
    return get(f"demo/strokes-{routing}").override(**{**QUICK, **changes})


class Listener(Reporter):
    def __init__(self) -> None:
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)


class BrokenError(Exception):
    """What a test breaks a run with."""


def break_at(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    usual = Run._between

    def between(self: Run, epoch: int) -> None:
        usual(self, epoch)
        if self.progress.step == step:
            raise BrokenError

    monkeypatch.setattr(Run, "_between", between)


def metrics(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
