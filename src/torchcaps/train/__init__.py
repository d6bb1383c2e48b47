"""Training of any recipe: one loop, crash-safe checkpoints, one process or many."""

from torchcaps.train.checkpoint.files import CheckpointError as CheckpointError
from torchcaps.train.evaluation.score import Score as Score, score as score
from torchcaps.train.loop import train as train
from torchcaps.train.options import TrainOptions as TrainOptions
from torchcaps.train.outputs.report import Reporter as Reporter
from torchcaps.train.run import TrainingError as TrainingError
from torchcaps.train.signals import InterruptedRunError as InterruptedRunError
