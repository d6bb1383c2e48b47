"""The runner of a study: trains what is missing, then measures what has no row."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torchcaps.campaign import Settings, State, Worker, run_campaign
from torchcaps.errors import UsageError
from torchcaps.results import (
    ComparisonRow,
    append_comparison,
    check_comparison,
    read_comparison,
)
from torchcaps.study.measuring import measure_run
from torchcaps.study.plan import StudyRun
from torchcaps.train.process import choose_device
from torchcaps.train.signals import InterruptedRunError, catch_signals


@dataclass(frozen=True)
class Outcome:
    """The state of a study after a call of :func:`run_study`.

    Attributes:
        rows: all rows of the study, those of earlier calls and of other heads too.
        missing: runs without a row.
        failed: runs whose training failed.
    """

    rows: list[ComparisonRow]
    missing: list[StudyRun]
    failed: list[Worker]


def known_rows(results: Path, runs: Sequence[StudyRun]) -> list[ComparisonRow]:
    """Return the rows of a study in a file; refuse those of another definition of it."""
    if not results.exists():
        return []
    study = runs[0].study
    rows = [row for row in read_comparison(results) if row.study == study.name]
    recipes = {run.dataset: run.entry.recipe for run in runs}
    for row in rows:
        recipe = recipes.get(row.dataset)
        if recipe is not None and (
            (row.epochs, row.batch_size) != (recipe.epochs, recipe.batch_size)
            or (recipe.limit and row.images != recipe.limit)
        ):
            raise UsageError(
                f"{results} holds rows of another definition of the study {study.name}: name "
                "another file with --results"
            )
    return rows


def without_rows(runs: Sequence[StudyRun], rows: Sequence[ComparisonRow]) -> list[StudyRun]:
    """Return the runs that no row belongs to."""
    measured = {row.key for row in rows}
    return [run for run in runs if run.key not in measured]


def run_study(
    runs: Sequence[StudyRun],
    settings: Settings,
    results: str | Path,
    *,
    show: Callable[[Sequence[Worker]], None] = lambda workers: None,
    on_row: Callable[[ComparisonRow], None] = lambda row: None,
) -> Outcome:
    """Train and measure the runs that have no row yet.

    Networks are measured one after another when training has ended, so that their speeds do not
    disturb each other. Each row is written as soon as it is there.

    Args:
        runs: the runs of one study.
        settings: slots, time limit and folders; no network is begun after the limit.
        results: the CSV file of the rows.
        show: called with all runs in training, as by :func:`run_campaign`.
        on_row: called with every new row.
    """
    results = Path(results)
    started = time.monotonic()
    check_comparison(results)
    waiting = without_rows(runs, known_rows(results, runs))
    workers = run_campaign([run.entry for run in waiting], settings, show=show) if waiting else []
    device = choose_device(settings.slots[0])
    with catch_signals() as stop:
        for run, worker in zip(waiting, workers, strict=True):
            if stop.signal or time.monotonic() - started >= settings.seconds:
                break
            if worker.state is State.FINISHED:
                row = measure_run(run, settings.runs, device=device, data_dir=settings.data_dir)
                append_comparison(results, [row])
                on_row(row)
        if stop.signal:
            raise InterruptedRunError(
                "stopped while measuring; every row so far is saved, and the same command goes "
                "on from here",
                128 + stop.signal,
            )
    rows = known_rows(results, runs)
    failed = [worker for worker in workers if worker.state is State.FAILED]
    return Outcome(rows, without_rows(runs, rows), failed)
