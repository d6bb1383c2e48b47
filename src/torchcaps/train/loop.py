"""The one loop: any recipe, from a laptop to several machines, and nothing lost on the way."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from torchcaps.errors import UsageError
from torchcaps.recipes import Recipe
from torchcaps.results import check_record
from torchcaps.train.building import check_recipe
from torchcaps.train.evaluation.publish import keep as keep_run
from torchcaps.train.evaluation.score import tensor_float
from torchcaps.train.images import load_sources
from torchcaps.train.outputs.folder import RunFolder, default_folder, described
from torchcaps.train.outputs.report import Reporter
from torchcaps.train.process import Process, joined
from torchcaps.train.run import Run
from torchcaps.train.signals import listening

__all__ = ["check_seed", "train"]

MOST_SEED = 2**32 - 1


def check_seed(seed: int) -> None:
    """Refuse a seed that the generators do not take."""
    if not 0 <= seed <= MOST_SEED:
        raise UsageError(f"seed must be between 0 and {MOST_SEED}, not {seed}")


def train(
    recipe: Recipe,
    *,
    seed: int = 0,
    out: str | Path | None = None,
    device: str = "auto",
    data_dir: str | Path | None = None,
    own_data: str | Path | None = None,
    resume: bool | None = None,
    reporter: Reporter | None = None,
    save_every: float = 300.0,
    keep: int = 2,
    deterministic: bool = False,
    sync_batch_norm: bool = False,
    tensorboard: bool = True,
    watch_test: bool = False,
    record: str | Path | None = None,
    command: str = "",
) -> dict[str, Any]:
    """Train a recipe and score it; returns the row of results/accuracy.csv.

        row = train(get("sabour2017/mnist").override(epochs=5), seed=1)
        row["test"]                                        # percent of the test images right

    A run that is killed goes on from its newest good checkpoint when it is started again, and on
    a CPU ends with the same bits as if it had never stopped. Under torchrun all processes call
    this together; the first of them writes.

    Args:
        recipe: what to train and how.
        seed: fixes everything that is drawn.
        out: the folder of the run; by default ``runs/RECIPE/seedN``.
        device: "auto", "cpu", "cuda" or "cuda:N".
        data_dir: the data folder; by default ``TORCHCAPS_DATA`` or the platform's cache.
        own_data: a folder of your images, one folder per class, instead of the recipe's data; the
            network adapts to their size, channels and classes.
        resume: True needs a checkpoint to go on from, False sets an earlier run aside and starts
            anew, None goes on if there is one.
        reporter: is told how it goes.
        save_every: seconds between checkpoints within an epoch; each epoch ends with one, unless
            the last is still being written and the epoch is not the best so far.
        keep: how many of the newest checkpoints stay, beside the best epoch's; at least 2.
        deterministic: on a GPU, only algorithms that give the same bits every time.
        sync_batch_norm: with several GPUs, take BatchNorm's statistics over all of them.
        tensorboard: write events, where tensorboard is installed.
        watch_test: score the test images after every epoch too, for the curve alone: the epoch is
            not chosen by it. Papers that print their best test epoch are compared with that.
        record: a CSV that the row of a run with a test score is added to, once; its curve goes
            into ``curves/`` beside it.
        command: what started the run, for the record.
    """
    if keep < 2:
        raise UsageError(f"keep must be at least 2, not {keep}: one may be damaged")
    check_seed(seed)
    if record is not None:
        check_record(record)
    check_recipe(recipe)
    own = None if own_data is None else Path(own_data)
    folder = RunFolder(Path(out) if out is not None else default_folder(recipe.name, seed))
    reporter = reporter or Reporter()
    with listening() as stop, joined(device) as process, _prepared(recipe, process, deterministic):
        finished = None
        try:
            if process.leads:
                aside = folder.open(described(recipe, seed, own), resume=resume)
                if aside is not None:
                    reporter.say(f"the earlier run is kept in {aside}")
                finished = folder.result()
                if finished is not None:
                    reporter.say(f"{folder.path} is finished; --fresh trains it again")
            if process.any(finished is not None):
                return _recorded(finished or {}, folder, record)
            root = None if data_dir is None else Path(data_dir)
            torch.manual_seed(seed)
            sources = load_sources(recipe, root=root, own=own, device=process.device)
            run = Run(recipe, seed, folder, process, sources, reporter, stop)
            run.build(sync_batch_norm=sync_batch_norm)
            run.watch_test = watch_test
            run.resume(tensorboard=tensorboard, save_every=save_every, keep=keep)
            try:
                run.epochs()
                row = _recorded(run.finish(own, command), folder, record)
                run.heed()
                return row
            finally:
                run.close()
        finally:
            folder.close()


def _recorded(row: dict[str, Any], folder: RunFolder, record: str | Path | None) -> dict[str, Any]:
    """Keep the leader's run."""
    if record is not None and row:
        keep_run(folder, record)
    return row


@contextmanager
def _prepared(recipe: Recipe, process: Process, deterministic: bool) -> Iterator[None]:
    """Torch's own switches as the run wants them, and as they were afterwards."""
    if process.device.type != "cuda":
        yield
        return
    benchmark = torch.backends.cudnn.benchmark
    fixed = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    if deterministic:
        # without it cuBLAS refuses to be deterministic
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    torch.backends.cudnn.benchmark = not deterministic
    torch.use_deterministic_algorithms(deterministic)
    torch.cuda.reset_peak_memory_stats(process.device)
    try:
        with tensor_float(process.device, recipe.precision):
            yield
    finally:
        torch.backends.cudnn.benchmark = benchmark
        torch.use_deterministic_algorithms(fixed, warn_only=warns)
