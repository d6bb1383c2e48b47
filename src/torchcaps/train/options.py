"""The options of a training run that its recipe does not decide."""

from dataclasses import dataclass
from pathlib import Path

from torchcaps.errors import UsageError
from torchcaps.train.outputs.report import Reporter

MAX_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Refuse a seed that the random generators do not accept."""
    if type(seed) is not int or not 0 <= seed <= MAX_SEED:
        raise UsageError(f"seed must be between 0 and {MAX_SEED}, not {seed!r}")


@dataclass(frozen=True, kw_only=True)
class TrainOptions:
    """The options of :func:`train`; none of them changes what the recipe computes but the seed.

    Attributes:
        seed: fixes every random draw.
        out: the run folder; by default ``runs/RECIPE/seedN``.
        device: "auto", "cpu", "cuda", "cuda:N", or "mps", which is untested.
        data_dir: the data folder; by default ``TORCHCAPS_DATA`` or the platform's cache.
        own_data: a folder of your images, one folder per class, or arrays that NumPy has saved, in
            place of the recipe's data. The network adapts to their size, channels and classes.
        skip_bad: leave out files of ``own_data`` that are no images.
        start_from: a run folder, a weight file or the name of a recipe with pretrained weights. The
            run starts from the weights that fit and uses the preprocessing of that network.
        resume: True requires a checkpoint to resume from. False moves an earlier run aside and
            starts over. None resumes if there is a checkpoint.
        reporter: receives the progress of the run; None reports nothing.
        save_every: seconds between checkpoints within an epoch. Each epoch ends with a checkpoint,
            unless the last one is still being written and the epoch is not the best so far.
        keep: number of newest checkpoints to keep beside the best epoch's; at least 2.
        deterministic: on a GPU, use only algorithms that give the same bits every time.
        sync_batch_norm: with several GPUs, compute BatchNorm's statistics over all of them.
        tensorboard: write TensorBoard events, where tensorboard is installed.
        watch_test: score the test images after every epoch too, for the curve alone. The epoch is
            not chosen by these scores. They compare with papers that print their best test epoch.
        record: a CSV file to add the row of a scored run to; the curve goes to ``curves/`` beside.
        command: the command that started the run, for the record.
    """

    seed: int = 0
    out: str | Path | None = None
    device: str = "auto"
    data_dir: str | Path | None = None
    own_data: str | Path | None = None
    skip_bad: bool = False
    start_from: str | Path | None = None
    resume: bool | None = None
    reporter: Reporter | None = None
    save_every: float = 300.0
    keep: int = 2
    deterministic: bool = False
    sync_batch_norm: bool = False
    tensorboard: bool = True
    watch_test: bool = False
    record: str | Path | None = None
    command: str = ""

    def __post_init__(self) -> None:
        if self.keep < 2:
            raise UsageError(f"keep must be at least 2, not {self.keep}: one may be damaged")
        if not self.save_every >= 0:
            raise UsageError(f"save_every must be at least 0 seconds, not {self.save_every}")
        check_seed(self.seed)

    @property
    def own_folder(self) -> Path | None:
        """The folder of the user's own images."""
        return None if self.own_data is None else Path(self.own_data)
