"""One run of a campaign as a process."""

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from enum import StrEnum
from pathlib import Path

from torchcaps.campaign.entries import Entry
from torchcaps.errors import TorchcapsError
from torchcaps.results import AccuracyRow, CurvePoint
from torchcaps.train.outputs.folder import RunFolder

INTERRUPTED = (128 + signal.SIGINT, 128 + signal.SIGTERM)
"""Exit codes of a run that has saved and can be resumed."""


def child_environment(more: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a process that imports this package from the same place."""
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **more}


class State(StrEnum):
    """The state of a run."""

    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"
    SAVED = "saved"
    FAILED = "failed"


class Worker:
    """A run and its process.

    Args:
        entry: the run.
        runs: the folder of all runs.
        record: the CSV file for its row.
    """

    def __init__(self, entry: Entry, runs: Path, record: Path) -> None:
        self.entry = entry
        self.path = entry.folder(runs)
        self.record = record
        self.log = self.path / "campaign.log"
        self.process: subprocess.Popen[bytes] | None = None
        self.state = State.WAITING
        self.device = ""
        self.problem = ""
        self._curve: list[CurvePoint] = []
        self._curve_bytes = -1
        if self.row() is not None:
            self.state = State.FINISHED

    def row(self) -> AccuracyRow | None:
        """Return the row of a finished run; None for one that is not finished or not readable."""
        try:
            return RunFolder(self.path).row()
        except TorchcapsError:
            return None

    def curve(self) -> list[CurvePoint]:
        """Return the epochs so far, read again when the file has grown."""
        folder = RunFolder(self.path)
        try:
            size = folder.metrics.stat().st_size
        except OSError:
            size = 0
        if size != self._curve_bytes:
            self._curve, self._curve_bytes = folder.curve() if size else [], size
        return self._curve

    def is_left_over(self) -> bool:
        """Return whether the run goes on without its campaign, which was killed."""
        return self.process is None and RunFolder(self.path).is_in_use()

    def command(self, device: str, data_dir: Path | None) -> list[str]:
        """Return the command that trains the run on a device."""
        words = ["train", self.entry.source, "--seed", str(self.entry.seed), "--no-tensorboard"]
        words += ["--out", str(self.path), "--results", str(self.record), "--device", device]
        for text in self.entry.settings:
            words += ["--set", text]
        words += [f"--{flag}" for flag in self.entry.flags]
        if data_dir is not None:
            words += ["--data-dir", str(data_dir)]
        return [sys.executable, "-m", "torchcaps", *words]

    def start(self, device: str, data_dir: Path | None, environment: Mapping[str, str]) -> None:
        """Start the process; its output goes to ``campaign.log`` in the run folder.

        Args:
            device: its device.
            data_dir: the data folder.
            environment: additional environment variables.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # a group of its own: Ctrl-C reaches the campaign alone, which passes it on
            self.process = subprocess.Popen(
                self.command(device, data_dir),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=child_environment(environment),
            )
        self.device = device
        self.state = State.RUNNING

    def poll(self) -> State:
        """Update the state from the process."""
        if self.process is not None and self.state is State.RUNNING:
            code = self.process.poll()
            if code is not None:
                self._end(code)
        return self.state

    def _end(self, code: int) -> None:
        if self.row() is not None:
            self.state = State.FINISHED
        elif code in INTERRUPTED:
            self.state = State.SAVED
        else:
            self.state = State.FAILED
            self.problem = self._last_line() or f"it ended with code {code}"

    def _last_line(self) -> str:
        try:
            lines = self.log.read_text(errors="replace").splitlines()
        except OSError:
            return ""
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def stop(self) -> None:
        """Ask the process to save and end."""
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End a process that does not stop; its newest checkpoint remains."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
            if self.state is State.RUNNING:
                self.state = State.SAVED if self.curve() else State.FAILED
                self.problem = "it did not stop in time and was killed"
