"""Train any recipe: one loop, checkpoints that survive anything, one process or many."""

from torchcaps.train.checkpoint import CheckpointError
from torchcaps.train.evaluate import Score, score
from torchcaps.train.loop import train
from torchcaps.train.process import UseError
from torchcaps.train.report import Reporter
from torchcaps.train.run import TrainingError
from torchcaps.train.signals import InterruptedRunError

__all__ = [
    "CheckpointError",
    "InterruptedRunError",
    "Reporter",
    "Score",
    "TrainingError",
    "UseError",
    "score",
    "train",
]
