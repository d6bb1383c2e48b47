"""A small checkpoint for tests."""

from pathlib import Path
from typing import Any

import torch

from torchcaps.train.checkpoint.files import (
    save_checkpoint,
)


def save(folder: Path, step: int, value: float | None = None, **state: Any) -> Path:
    """A small checkpoint that holds its step, or a value, everywhere."""
    number = float(step) if value is None else value
    return save_checkpoint(
        folder,
        step,
        model={"w": torch.full((4, 3), number)},
        optim={"m": torch.full((5,), number), "rng": torch.arange(16, dtype=torch.uint8)},
        state={"step": step, "value": number, **state},
    )
