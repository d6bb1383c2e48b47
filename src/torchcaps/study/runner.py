"""The runner of a study: trains what is missing, and measures what has no row."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from torchcaps.campaign import Settings, State, Worker, run_campaign
from torchcaps.errors import UsageError
from torchcaps.results import (
    ComparisonRow,
    append_comparison,
    check_comparison,
    read_comparison,
)
from torchcaps.study.measuring import measure_speed
from torchcaps.study.plan import StudyRun, sort_rows
from torchcaps.study.pool import Measurement, Pool
from torchcaps.study.serving import describe_error
from torchcaps.train.process import choose_device
from torchcaps.train.signals import InterruptedRunError, Stop, catch_signals

POLL_S = 0.2


@dataclass(frozen=True)
class Outcome:
    """The state of a study after a call of :func:`run_study`.

    Attributes:
        rows: all rows of the study, those of earlier calls and of other heads too.
        missing: runs whose row is missing, or lacks its speed.
        failed: runs whose training failed.
        problems: one sentence for each network that could not be measured.
    """

    rows: list[ComparisonRow]
    missing: list[StudyRun]
    failed: list[Worker]
    problems: list[str]


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


def unfinished(runs: Sequence[StudyRun], rows: Sequence[ComparisonRow]) -> list[StudyRun]:
    """Return the runs whose row is missing, or lacks the speed that it should have."""
    whole = {row.key for row in rows if row.has_speed}
    measured = {row.key for row in rows}
    return [run for run in runs if run.key not in (whole if run.has_speed else measured)]


def run_study(
    runs: Sequence[StudyRun],
    settings: Settings,
    results: str | Path,
    *,
    show: Callable[[Sequence[Worker]], None] = lambda workers: None,
    on_row: Callable[[ComparisonRow], None] = lambda row: None,
) -> Outcome:
    """Train and measure the runs that have no row yet.

    Processes of their own, as many as there are slots, measure each network when it is trained,
    and its row is written. When nothing else runs, the speed of the networks of the first seed is
    measured one after another, and their rows are written again.

    Args:
        runs: the runs of one study.
        settings: slots, time limit and folders; no network is begun after the limit.
        results: the CSV file of the rows.
        show: called with all runs in training, as by :func:`run_campaign`.
        on_row: called with every new row.
    """
    results = Path(results)
    end = time.monotonic() + settings.seconds
    check_comparison(results)
    record = _Record(results, runs, on_row)
    workers = _train_and_measure(record, settings, end, show)
    with catch_signals() as stop:
        record.add_speeds(choose_device(settings.slots[0]), end, stop)
        _leave_if_stopped(stop)
    rows = sort_rows(known_rows(results, runs))
    failed = [worker for worker in workers if worker.state is State.FAILED]
    return Outcome(rows, unfinished(runs, rows), failed, record.problems)


class _Record:
    """The rows of a study.

    Args:
        results: the CSV file of the rows.
        runs: the runs of the study.
        on_row: called with every new row.
    """

    def __init__(
        self, results: Path, runs: Sequence[StudyRun], on_row: Callable[[ComparisonRow], None]
    ) -> None:
        self.results = results
        self.runs = runs
        self.on_row = on_row
        self.problems: list[str] = []
        self.waiting = without_rows(runs, known_rows(results, runs))
        """Runs that had no row when this call began."""

    def add(self, measurement: Measurement) -> None:
        """Write a row, or keep the problem."""
        run, row, problem = measurement
        if row is None:
            self._fail(run, problem)
        else:
            append_comparison(self.results, [row])
            self.on_row(row)

    def add_speeds(self, device: torch.device, end: float, stop: Stop) -> None:
        """Measure the speeds that rows lack, until the time is over."""
        known = known_rows(self.results, self.runs)
        rows = {row.key: row for row in known}
        for run in unfinished(self.runs, known):
            if stop.signal or time.monotonic() >= end:
                return
            if run.key in rows:
                try:
                    row = measure_speed(rows[run.key], run, device=device)
                except Exception as error:
                    self._fail(run, describe_error(error))
                else:
                    append_comparison(self.results, [row])

    def _fail(self, run: StudyRun, problem: str) -> None:
        self.problems.append(f"{run.entry.name} could not be measured: {problem}")


def _train_and_measure(
    record: _Record,
    settings: Settings,
    end: float,
    show: Callable[[Sequence[Worker]], None],
) -> list[Worker]:
    """Train what is unfinished, and measure all but the speed of what is finished."""
    runs = record.waiting
    begun: set[tuple[str, str, str, int]] = set()
    pool = Pool(settings)

    def update(workers: Sequence[Worker]) -> None:
        show(workers)
        for run, worker in zip(runs, workers, strict=True):
            if worker.state is State.FINISHED and run.key not in begun:
                begun.add(run.key)
                pool.waiting.append(run)
        for measurement in pool.poll():
            record.add(measurement)

    if not runs:
        return []
    try:
        try:
            workers = run_campaign([run.entry for run in runs], settings, show=update)
            with catch_signals() as stop:
                while pool.is_busy and not stop.signal and time.monotonic() < end:
                    _wait(pool, record)
                _leave_if_stopped(stop)
        finally:
            pool.waiting.clear()
            last = min(time.monotonic(), end) + settings.grace_s
            while pool.is_busy and time.monotonic() < last:
                _wait(pool, record)
    finally:
        pool.close()
    return workers


def _wait(pool: Pool, record: _Record) -> None:
    """Write what has been measured, and wait a moment."""
    for measurement in pool.poll():
        record.add(measurement)
    time.sleep(POLL_S)


def _leave_if_stopped(stop: Stop) -> None:
    if stop.signal:
        raise InterruptedRunError(
            "stopped while measuring; every row so far is saved, and the same command goes on "
            "from here",
            128 + stop.signal,
        )
