"""What a user sees of a run while it goes: a bar on a terminal, lines elsewhere, or nothing."""

import math
import sys
import time
from typing import Any, NamedTuple, TextIO

import torch

__all__ = ["Bar", "Lines", "Now", "Reporter", "reporter_for"]


class Now(NamedTuple):
    """Where a run stands.

    Attributes:
        epoch: the one under way, from 1.
        epochs: of the whole run.
        step: steps taken.
        steps: of the whole run.
        loss: mean of the epoch so far.
        accuracy: percent of the epoch's training images right so far.
        images_per_s: lately.
        peak_mib: the most memory used.
        seconds_left: of the run at this speed; infinity before there is one.
    """

    epoch: int
    epochs: int
    step: int
    steps: int
    loss: float
    accuracy: float
    images_per_s: float
    peak_mib: int
    seconds_left: float


class Reporter:
    """Says nothing; the base of those that do."""

    every = 3600.0
    """Seconds between looks at a run; each one waits for the device."""

    def now(self, now: Now) -> None:
        """A look in between."""

    def epoch(self, row: dict[str, Any]) -> None:
        """An epoch has ended; the row is that of metrics.jsonl."""

    def say(self, text: str) -> None:
        """A message."""

    def close(self) -> None:
        """The run is over."""


class Lines(Reporter):
    """Plain lines, for logs and pipes."""

    every = 15.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream

    def now(self, now: Now) -> None:
        """One line."""
        self.say(
            f"epoch {now.epoch}/{now.epochs}  step {now.step}/{now.steps}  loss {now.loss:.4f}  "
            f"train {now.accuracy:.2f} %  {now.images_per_s:,.0f} images/s  "
            f"{now.peak_mib:,} MiB  {_left(now.seconds_left)} left"
        )

    def epoch(self, row: dict[str, Any]) -> None:
        """One line."""
        held_out = row.get("validation")
        chosen = "" if held_out is None else f"validation {held_out:.2f} %  "
        if row.get("test") is not None:
            chosen += f"test {row['test']:.2f} %  "
        self.say(
            f"epoch {row['epoch']}  loss {row['loss']:.4f}  train {row['train']:.2f} %  {chosen}"
            f"lr {row['lr']:.3g}  {row['images_per_s']:,.0f} images/s  {row['seconds']:.1f} s"
        )

    def say(self, text: str) -> None:
        """One line, at once."""
        self.stream.write(text + "\n")
        self.stream.flush()


class Bar(Reporter):
    """A live bar on a terminal."""

    every = 0.5

    def __init__(self, title: str = "") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn(title),
            TextColumn("{task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]:.3f}"),
            TextColumn("train {task.fields[accuracy]:.1f} %"),
            TextColumn("{task.fields[held_out]}{task.fields[images_per_s]:,.0f}/s"),
            TextColumn("{task.fields[peak_mib]:,} MiB"),
            TimeRemainingColumn(compact=True),
        )
        self.task: Any = None
        self.held_out = ""

    def now(self, now: Now) -> None:
        """Move the bar."""
        fields: dict[str, Any] = {**now._asdict(), "held_out": self.held_out}
        step, steps = fields.pop("step"), fields.pop("steps")
        if self.task is None:
            self.task = self.progress.add_task("train", total=steps, **fields)
            self.progress.start()
        self.progress.update(self.task, completed=step, total=steps, **fields)

    def epoch(self, row: dict[str, Any]) -> None:
        """Show the validation score from now on."""
        if row.get("validation") is not None:
            self.held_out = f"val {row['validation']:.1f} % "

    def say(self, text: str) -> None:
        """A line above the bar."""
        self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar as it is."""
        self.progress.stop()


def reporter_for(stream: TextIO, *, quiet: bool = False, title: str = "") -> Reporter:
    """A bar on a terminal, lines elsewhere, nothing when quiet."""
    if quiet:
        return Reporter()
    return Bar(title) if stream.isatty() else Lines(stream)


class Rate:
    """Images a second, of training alone: the clock stands still outside of steps."""

    def __init__(self) -> None:
        self.images = 0
        self.seconds = 0.0
        self.since: float | None = None
        self.warm = False

    def go_on(self, images: int, seconds: float) -> None:
        """Take up the count of a run that was stopped."""
        self.images, self.seconds = images, seconds

    def count(self, images: int, device: torch.device) -> None:
        """A step is done; the first of a process, which compiles and records, does not count."""
        if self.warm:
            self.images += images
            return
        self.warm = True
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        self.since = time.perf_counter()

    def go(self) -> None:
        """Start the clock."""
        if self.since is None:
            self.since = time.perf_counter()

    def rest(self) -> None:
        """Stop the clock."""
        if self.since is not None:
            self.seconds += time.perf_counter() - self.since
            self.since = None

    @property
    def elapsed(self) -> float:
        """Seconds of training so far."""
        running = 0.0 if self.since is None else time.perf_counter() - self.since
        return self.seconds + running

    @property
    def per_second(self) -> float:
        """Images a second so far."""
        return self.images / max(self.elapsed, 1e-9)


def _left(seconds: float) -> str:
    if seconds == math.inf:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
