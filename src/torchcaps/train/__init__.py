"""Train any recipe: one loop, checkpoints that survive anything, one process or many."""

from torchcaps.train.checkpoint.files import CheckpointError
from torchcaps.train.evaluation.score import Score, score
from torchcaps.train.loop import train
from torchcaps.train.outputs.report import Reporter
from torchcaps.train.run import TrainingError
from torchcaps.train.signals import InterruptedRunError

__all__ = [
    "CheckpointError",
    "InterruptedRunError",
    "Reporter",
    "Score",
    "TrainingError",
    "score",
    "train",
]
