"""The entry point of training: opens the run folder, trains, scores and records a recipe."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from torchcaps.errors import UsageError
from torchcaps.models.weights.transfer import describe_reinitialized
from torchcaps.recipes import Recipe
from torchcaps.results import AccuracyRow, check_record
from torchcaps.train.building import check_recipe, load_start
from torchcaps.train.evaluation.publish import record_run
from torchcaps.train.evaluation.score import tensor_float
from torchcaps.train.finish import finish, share_row
from torchcaps.train.images import load_sources
from torchcaps.train.options import TrainOptions
from torchcaps.train.outputs.folder import RunFolder, default_folder, describe_run
from torchcaps.train.outputs.report import Reporter
from torchcaps.train.process import Process, join_processes
from torchcaps.train.run import Run
from torchcaps.train.signals import Stop, catch_signals


def train(recipe: Recipe, options: TrainOptions | None = None) -> AccuracyRow:
    """Train a recipe, score it on the test images and return the row of its results.

        row = train(get("sabour2017/mnist").override(epochs=5), TrainOptions(seed=1))
        row.test                                           # percent of the test images right

    A killed run resumes from its newest good checkpoint when it is started again. On a CPU it ends
    with the same bits as an unbroken run. Under torchrun all processes call this function together;
    the first of them writes, and all return the same row.
    """
    options = TrainOptions() if options is None else options
    if not isinstance(options, TrainOptions):
        raise UsageError(f"options must be TrainOptions, not {options!r}")
    if options.record is not None:
        check_record(options.record)
    check_recipe(recipe)
    out = default_folder(recipe.name, options.seed) if options.out is None else options.out
    folder = RunFolder(Path(out))
    with (
        catch_signals() as stop,
        join_processes(options.device) as process,
        torch_settings(recipe, process, deterministic=options.deterministic),
    ):
        try:
            finished = _open(folder, recipe, options, process)
            if finished is not None:
                _record(folder, options, process)
                return finished
            return _train(recipe, options, folder, process, stop)
        finally:
            folder.close()


def _open(
    folder: RunFolder, recipe: Recipe, options: TrainOptions, process: Process
) -> AccuracyRow | None:
    """Open the run folder in the leading process; return the row of a run that is finished."""
    row = None
    if process.leads:
        reporter = options.reporter or Reporter()
        aside = folder.open(
            describe_run(
                recipe,
                options.seed,
                options.own_folder,
                options.start_from,
                skip_bad=options.skip_bad,
            ),
            resume=options.resume,
        )
        if aside is not None:
            reporter.say(f"the earlier run is kept in {aside}")
        row = folder.row()
        if row is not None:
            reporter.say(f"{folder.path} is finished; --fresh trains it again")
    return share_row(row, process) if process.any(row is not None) else None


def _train(
    recipe: Recipe, options: TrainOptions, folder: RunFolder, process: Process, stop: Stop
) -> AccuracyRow:
    """Train what is left of a run, and record it."""
    start = load_start(options.start_from, recipe)
    torch.manual_seed(options.seed)
    sources = load_sources(
        recipe,
        root=None if options.data_dir is None else Path(options.data_dir),
        own_folder=options.own_folder,
        device=process.device,
        skip_bad=options.skip_bad,
        like=None if start is None else start.preprocessing,
    )
    if process.leads and options.reporter is not None:
        for note in sources.notes:
            options.reporter.say(note)
    run = Run(recipe, options, folder, process, sources, stop, start)
    if start is not None:
        run.reporter.say(f"starts from {options.start_from}; {describe_reinitialized(run.network)}")
    try:
        run.train()
        row = finish(run)
        _record(folder, options, process)
        run.leave_if_stopped()
        return row
    finally:
        run.close()


def _record(folder: RunFolder, options: TrainOptions, process: Process) -> None:
    if process.leads and options.record is not None:
        record_run(folder, options.record)


@contextmanager
def torch_settings(recipe: Recipe, process: Process, *, deterministic: bool) -> Iterator[None]:
    """Set PyTorch's global switches for a run on a GPU, and restore them afterwards."""
    if process.device.type != "cuda":
        yield
        return
    benchmark = torch.backends.cudnn.benchmark
    was_deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
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
        torch.use_deterministic_algorithms(was_deterministic, warn_only=warn_only)
