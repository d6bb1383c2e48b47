"""Processes that measure networks side by side."""

import json
import select
import subprocess
import sys
from collections import deque
from typing import NamedTuple, final

from torchcaps.campaign import Settings
from torchcaps.campaign.worker import child_environment
from torchcaps.results import ComparisonRow
from torchcaps.study.plan import StudyRun

END_S = 10.0
"""Time that an idle process gets to end by itself."""

SERVE = "import sys; from torchcaps.study.serving import serve; serve(*sys.argv[1:])"


class Measurement(NamedTuple):
    """The row of a run without speed, or else the problem that prevented it."""

    run: StudyRun
    row: ComparisonRow | None
    problem: str = ""


@final
class Measurer:
    """A process that measures one network after another; it starts with the first.

    Args:
        device: device of the measurements.
        settings: the folders of the study, and the environment of its processes.
    """

    def __init__(self, device: str, settings: Settings) -> None:
        self.device = device
        self.settings = settings
        self.log = settings.record.with_name("measuring.log")
        self.run: StudyRun | None = None
        self.process: subprocess.Popen[str] | None = None

    def begin(self, run: StudyRun) -> None:
        """Start to measure a run."""
        self.run = run
        self.process = self.process or self._start()
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(f"{run.to_json()}\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            # the process has ended; poll reports it
            return

    def _start(self) -> subprocess.Popen[str]:
        data_dir = self.settings.data_dir
        words = [self.device, str(self.settings.runs), "" if data_dir is None else str(data_dir)]
        self.log.parent.mkdir(parents=True, exist_ok=True)
        with self.log.open("ab") as log:
            # a group of its own: Ctrl-C reaches the study alone
            return subprocess.Popen(
                [sys.executable, "-c", SERVE, *words],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=child_environment(self.settings.environment),
            )

    def poll(self) -> Measurement | None:
        """Return the measurement if it has ended."""
        if self.run is None or self.process is None or self.process.stdout is None:
            return None
        if not select.select([self.process.stdout], [], [], 0)[0]:
            return None
        run, line = self.run, self.process.stdout.readline()
        self.run = None
        if not line.endswith("\n"):
            code = self.end()
            return Measurement(run, None, f"its process ended with code {code} (see {self.log})")
        answer = json.loads(line)
        if "problem" in answer:
            return Measurement(run, None, answer["problem"])
        return Measurement(run, ComparisonRow.from_dict(answer["row"]))

    def end(self) -> int:
        """End the process, killing one that is still measuring; return its exit code."""
        if self.process is None:
            return 0
        process, self.process = self.process, None
        if self.run is not None:
            process.kill()
        try:
            process.communicate(timeout=END_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
        return process.returncode


@final
class Pool:
    """One measuring process per slot of a study, and the runs that wait for one.

    Args:
        settings: slots and folders.
    """

    def __init__(self, settings: Settings) -> None:
        self.measurers = [Measurer(device, settings) for device in settings.slots]
        self.waiting: deque[StudyRun] = deque()

    @property
    def is_busy(self) -> bool:
        """Return whether a run is measured or waits."""
        return bool(self.waiting) or any(one.run is not None for one in self.measurers)

    def poll(self) -> list[Measurement]:
        """Return what has ended since the last call, and begin what waits."""
        ended = [found for one in self.measurers if (found := one.poll()) is not None]
        for one in self.measurers:
            if self.waiting and one.run is None:
                one.begin(self.waiting.popleft())
        return ended

    def close(self) -> None:
        """End all processes."""
        self.waiting.clear()
        for one in self.measurers:
            one.end()
