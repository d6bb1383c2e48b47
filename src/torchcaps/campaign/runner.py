"""The runner of a campaign: fills its slots, keeps to its time limit, and stops cleanly."""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from torchcaps.campaign.entries import Entry
from torchcaps.campaign.estimate import Pace
from torchcaps.campaign.worker import State, Worker
from torchcaps.errors import UsageError
from torchcaps.results import check_record
from torchcaps.train.process import choose_device
from torchcaps.train.signals import InterruptedRunError, Stop, catch_signals

POLL_S = 0.2
LEAST_S = 20.0
"""A run is not started with less time than this: importing and loading would take it all."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The settings of a campaign.

    Attributes:
        minutes: time limit; None has no limit.
        parallel: runs side by side on each device.
        devices: the devices, such as ``("cuda:0", "cuda:1")``; empty for all GPUs, or the CPU.
        runs: the folder of the run folders.
        record: the CSV file for the rows; curves go beside it.
        data_dir: the data folder.
        environment: additional environment variables of the processes that it starts.
        grace_s: seconds before the limit at which the runs are asked to save and end.
    """

    minutes: float | None = None
    parallel: int = 1
    devices: tuple[str, ...] = ()
    runs: Path = Path("runs")
    record: Path = Path("results/accuracy.csv")
    data_dir: Path | None = None
    environment: Mapping[str, str] = field(default_factory=dict)
    grace_s: float = 25.0

    def __post_init__(self) -> None:
        if self.minutes is not None and 60 * self.minutes < self.grace_s + LEAST_S:
            raise UsageError(
                f"a time limit of {self.minutes:g} minutes is too short: runs need {LEAST_S:g} s "
                f"to start and {self.grace_s:g} s to save"
            )

    @property
    def slots(self) -> list[str]:
        """The device of each slot; neighboring slots are on different devices."""
        return [*(self.devices or find_devices())] * self.parallel

    @property
    def seconds(self) -> float:
        """The time to train, without the time to save."""
        return float("inf") if self.minutes is None else 60 * self.minutes - self.grace_s


def find_devices() -> tuple[str, ...]:
    """Return the names of all GPUs, or of the CPU where there is none."""
    import torch

    return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count())) or ("cpu",)


def run_campaign(
    entries: Sequence[Entry],
    settings: Settings | None = None,
    *,
    show: Callable[[Sequence[Worker]], None] = lambda workers: None,
) -> list[Worker]:
    """Train the runs of a campaign that are not finished, and return all of them.

    A failed run does not stop the others. At the time limit, and after Ctrl-C or SIGTERM, every
    run saves a checkpoint. The next call with the same run folders resumes them. It waits for runs
    that still go on because their campaign was killed.

    Args:
        entries: the runs, the most important first.
        settings: slots, time limit and folders.
        show: called with all runs a few times a second.
    """
    settings = settings or Settings()
    for device in settings.devices:
        choose_device(device)
    check_record(settings.record)
    workers = [Worker(entry, settings.runs, settings.record) for entry in entries]
    started = time.monotonic()
    with catch_signals() as stop:
        try:
            while not stop.signal and time.monotonic() - started < settings.seconds:
                _fill(workers, settings, settings.seconds - (time.monotonic() - started))
                show(workers)
                running = [worker for worker in workers if worker.poll() is State.RUNNING]
                left_s = settings.seconds - (time.monotonic() - started)
                if not running and not _can_start(workers, left_s):
                    break
                time.sleep(POLL_S)
        finally:
            _finish(workers, settings.grace_s, show)
        _leave_if_stopped(stop, workers)
    return workers


def free_slots(slots: Sequence[str], running: Sequence[str]) -> list[str]:
    """Return the devices of the free slots, the device with most of them first.

    Args:
        slots: the device of each slot.
        running: the device of each run that is running.
    """
    free = Counter(slots)
    free.subtract(running)
    order = []
    while free.total() > 0:
        device, _ = free.most_common(1)[0]
        order.append(device)
        free[device] -= 1
    return order


def _can_start(workers: Sequence[Worker], seconds: float) -> bool:
    return seconds >= LEAST_S and any(worker.state is State.WAITING for worker in workers)


def _fill(workers: Sequence[Worker], settings: Settings, seconds: float) -> None:
    """Start waiting runs in free slots, except those that a killed campaign left running."""
    running = [worker.device for worker in workers if worker.state is State.RUNNING]
    free = free_slots(settings.slots, running)
    if seconds < LEAST_S:
        return
    for worker in workers:
        if free and worker.state is State.WAITING and not worker.is_left_over():
            worker.start(free.pop(0), settings.data_dir, settings.environment)


def _finish(
    workers: Sequence[Worker], seconds: float, show: Callable[[Sequence[Worker]], None]
) -> None:
    """Ask all runs to save, and kill those that do not end in time."""
    for worker in workers:
        worker.stop()
    end = time.monotonic() + seconds
    while any(worker.poll() is State.RUNNING for worker in workers) and time.monotonic() < end:
        time.sleep(POLL_S)
    for worker in workers:
        worker.kill()
    show(workers)


def _leave_if_stopped(stop: Stop, workers: Sequence[Worker]) -> None:
    if stop.signal:
        finished = sum(worker.state is State.FINISHED for worker in workers)
        raise InterruptedRunError(
            f"stopped with {finished} of {len(workers)} runs finished; every other run is saved, "
            "and the same command goes on from here",
            128 + stop.signal,
        )


def left(workers: Sequence[Worker], pace: Pace, gpu: str) -> list[float | None]:
    """Return the seconds that each run still needs; 0 for a finished one."""
    return [
        0.0
        if worker.state is State.FINISHED
        else pace.seconds_left(worker.entry.recipe, worker.curve(), gpu)
        for worker in workers
    ]
