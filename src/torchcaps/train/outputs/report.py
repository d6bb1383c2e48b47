"""Progress of a run for its user: a bar on a terminal, lines elsewhere, or nothing."""

import math
import sys
from typing import Any, NamedTuple, TextIO

from torchcaps.results import CurvePoint


class Now(NamedTuple):
    """The state of a run between two steps.

    Attributes:
        epoch: number of the current epoch, from 1.
        epochs: epochs of the whole run.
        step: steps taken.
        steps: steps of the whole run.
        loss: mean loss of the epoch so far.
        accuracy: training accuracy of the epoch so far, in percent.
        images_per_s: training throughput.
        peak_mib: peak memory in MiB.
        seconds_left: estimate for the rest of the run; infinity before there is one.
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
    """A reporter that reports nothing; the base of the others."""

    every = 3600.0
    """Seconds between reports within an epoch; each one waits for the device."""

    unit = "%"
    """Unit of the scores."""

    def now(self, now: Now) -> None:
        """Report the state between two steps."""

    def epoch(self, point: CurvePoint) -> None:
        """Report an epoch that has ended."""

    def say(self, text: str) -> None:
        """Report a message."""

    def close(self) -> None:
        """End the report."""


class Lines(Reporter):
    """A reporter of plain lines, for logs and pipes."""

    every = 15.0

    def __init__(self, stream: TextIO | None = None) -> None:
        self.stream = sys.stdout if stream is None else stream

    def now(self, now: Now) -> None:
        """Write the state as one line."""
        self.say(
            f"epoch {now.epoch}/{now.epochs}  step {now.step}/{now.steps}  loss {now.loss:.4f}  "
            f"train {now.accuracy:.2f} {self.unit}  {now.images_per_s:,.0f} images/s  "
            f"{now.peak_mib:,} MiB  {_left(now.seconds_left)} left"
        )

    def epoch(self, point: CurvePoint) -> None:
        """Write the epoch as one line."""
        parts = (
            ("loss", point.loss, ".4f", ""),
            ("train", point.train, ".2f", f" {self.unit}"),
            ("validation", point.validation, ".2f", f" {self.unit}"),
            ("test", point.test, ".2f", f" {self.unit}"),
            ("lr", point.lr, ".3g", ""),
            ("", point.images_per_s, ",.0f", " images/s"),
            ("", point.seconds, ".1f", " s"),
        )
        shown = [
            f"{name} {value:{form}}{unit}".strip()
            for name, value, form, unit in parts
            if value is not None
        ]
        self.say("  ".join([f"epoch {point.epoch}", *shown]))

    def say(self, text: str) -> None:
        """Write the message and flush."""
        self.stream.write(text + "\n")
        self.stream.flush()


class Bar(Reporter):
    """A live progress bar on a terminal."""

    every = 0.5

    def __init__(self, title: str = "") -> None:
        from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn(title),
            TextColumn("{task.fields[epoch]}/{task.fields[epochs]}"),
            BarColumn(bar_width=None),
            TextColumn("loss {task.fields[loss]:.3f}"),
            TextColumn("train {task.fields[accuracy]:.1f} {task.fields[unit]}"),
            TextColumn("{task.fields[validation]}{task.fields[images_per_s]:,.0f}/s"),
            TextColumn("{task.fields[peak_mib]:,} MiB"),
            TimeRemainingColumn(compact=True),
        )
        self.task: Any = None
        self.validation = ""

    def now(self, now: Now) -> None:
        """Move the bar."""
        fields: dict[str, Any] = {**now._asdict(), "validation": self.validation, "unit": self.unit}
        step, steps = fields.pop("step"), fields.pop("steps")
        if self.task is None:
            self.task = self.progress.add_task("train", total=steps, **fields)
            self.progress.start()
        self.progress.update(self.task, completed=step, total=steps, **fields)

    def epoch(self, point: CurvePoint) -> None:
        """Show the validation accuracy from now on."""
        if point.validation is not None:
            self.validation = f"val {point.validation:.1f} {self.unit} "

    def say(self, text: str) -> None:
        """Print the message above the bar."""
        self.progress.console.print(text, highlight=False, markup=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the bar as it is."""
        self.progress.stop()


def reporter_for(stream: TextIO, *, quiet: bool = False, title: str = "") -> Reporter:
    """Return a bar for a terminal, lines for another stream, or a silent reporter."""
    if quiet:
        return Reporter()
    return Bar(title) if stream.isatty() else Lines(stream)


def _left(seconds: float) -> str:
    if seconds == math.inf:
        return "?"
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
