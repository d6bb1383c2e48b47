"""Two processes under torchrun, one of which is killed: torchrun starts them again."""

import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

from reliability.trials.runs import ROUTINGS, arguments, newest, prints
from torchcaps.train import CheckpointError
from torchcaps.train.checkpoint.files import checkpoints

PATIENCE = 60.0
"""Seconds the other process may take to end."""
LONGEST = 240.0


def trials(first: int, count: int) -> Iterator[str]:
    """Kill the leader or the other process at a random moment of a run."""
    for number in range(first, first + count):
        rng = random.Random(f"rank {number}")
        routing = ROUTINGS[number % len(ROUTINGS)]
        with tempfile.TemporaryDirectory(prefix="torchcaps-ranks-") as name:
            try:
                killed(routing, Path(name), number % 2, rng)
                yield ""
            except (AssertionError, CheckpointError, OSError) as error:
                said = (Path(name) / "log").read_text(errors="replace")[-600:]
                yield f"rank {number}, {routing}: {error}: {said}"


def killed(routing: str, folder: Path, rank: int, rng: random.Random) -> None:
    started = torchrun(routing, folder, restarts=3)
    try:
        after = rng.randint(1, 10)
        wait_for(lambda: step_of(folder) >= after, started, f"step {after}")
        time.sleep(rng.random() * 0.2)
        before = workers(started.pid)
        assert rank in before, f"there are the processes {before}"
        os.kill(before[rank], signal.SIGKILL)
        struck = time.monotonic()
        other = before[1 - rank]
        while other in workers(started.pid).values():
            assert time.monotonic() - struck < PATIENCE, "the other process did not end"
            time.sleep(0.05)
        wait_for(lambda: started.poll() is not None, None, "its end")
        assert started.returncode == 0, f"exit code {started.returncode}"
    finally:
        for process in (*workers(started.pid).values(), started.pid):
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        started.wait()
    said = (folder / "log").read_text()
    assert "resumed at step" in said, "the run did not go on from a checkpoint"
    last = newest(folder / "run")
    assert last is not None
    assert last.step == 16, f"the run ended at step {last.step}"
    for what, found, expected in zip(
        ("weights", "last checkpoint", "metrics", "scores"),
        prints(folder / "run"),
        unbroken(routing),
        strict=True,
    ):
        # each process counts its own share of an epoch, and the leader's alone is saved
        assert what == "metrics" or found == expected, f"{what} differ from the unbroken run's"


@cache
def unbroken(routing: str) -> tuple[str, ...]:
    """What two processes reach that nothing happens to."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-ranks-") as name:
        started = torchrun(routing, Path(name), restarts=0)
        assert started.wait(LONGEST) == 0, (Path(name) / "log").read_text()[-600:]
        return prints(Path(name) / "run")


def torchrun(routing: str, folder: Path, *, restarts: int) -> "subprocess.Popen[bytes]":
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [
        *(sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"),
        *("--master-port", str(port), "--max-restarts", str(restarts)),
        *("--monitor-interval", "0.1", "-m", "torchcaps", *arguments(routing, folder)),
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
    }
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment)


def wait_for(
    reached: Callable[[], bool], started: "subprocess.Popen[bytes] | None", what: str
) -> None:
    end = time.monotonic() + LONGEST
    while not reached():
        assert started is None or started.poll() is None, f"it ended before {what}"
        assert time.monotonic() < end, f"it did not reach {what}"
        time.sleep(0.02)


def step_of(folder: Path) -> int:
    names = [path.name for path in checkpoints(folder / "run" / "checkpoints")]
    return max((int(name[5:13]) for name in names), default=0)


def workers(agent: int) -> dict[int, int]:
    """Rank -> process number of the processes that torchrun started."""
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            status = (entry / "stat").read_text().rpartition(")")[2].split()
            if int(status[1]) != agent or status[0] == "Z":
                continue
            variables = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        for variable in variables:
            if variable.startswith(b"RANK="):
                found[int(variable[5:])] = int(entry.name)
    return found
