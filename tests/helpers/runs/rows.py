"""A row of the record of results."""

from typing import Any

from torchcaps.results import AccuracyRow


def row(
    recipe: str = "sabour2017/mnist", seed: int = 0, test: float = 99.7, **more: Any
) -> AccuracyRow:
    defaults: dict[str, Any] = {
        "validation": 99.5,
        "paper": 99.75,
        "parameters": 8_215_728,
        "epochs": 640,
        "seconds": 300.0,
        "images_per_s": 120_000.0,
        "peak_mib": 900.0,
        "recipe_epochs": 640,
        "changes": {},
        "dirty": False,
        "commit": "abc1234",
        "gpu": "H200",
        "torch": "2.11.0",
        "date": "2026-12-01",
        "weights_sha256": "0" * 64,
        "command": "torchcaps train sabour2017/mnist",
    }
    return AccuracyRow(recipe=recipe, seed=seed, test=test, **{**defaults, **more})
