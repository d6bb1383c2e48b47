"""The command itself: started, killed, interrupted, and what it leaves in its folder."""

import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from torchcaps.train.checkpoint.files import (
    Checkpoint,
    CheckpointError,
    checkpoints,
    newest_checkpoint,
)

ROUTINGS = ("dynamic", "em", "inverted-attention", "attention", "pairwise", "discriminative")
PATIENCE = 30.0
"""Seconds a run may take to save and leave when it is asked to."""
LONGEST = 240.0


def arguments(routing: str, folder: Path, *extra: str, epochs: int = 2) -> list[str]:
    """Train a small network for sixteen steps, saving after each."""
    settings = {"limit": 256, "test_limit": 64, "batch_size": 32, "epochs": epochs}
    return [
        *("train", f"demo/strokes-{routing}", "--device", "cpu", "--no-tensorboard"),
        *("--out", str(folder / "run"), "--results", str(folder / "rows.csv")),
        *("--save-every", "0", *extra),
        *(part for key, value in settings.items() for part in ("--set", f"{key}={value}")),
    ]


@dataclass
class Started:
    """A process that runs the command, and where its words go."""

    pid: int
    log: Path
    code: int | None = None

    def ended(self) -> int | None:
        """Its exit code, if it has ended."""
        if self.code is None:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.code = os.waitstatus_to_exitcode(status)
        return self.code

    def wait(self, seconds: float = LONGEST) -> int:
        """Its exit code; it is killed where it takes longer."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            code = self.ended()
            if code is not None:
                return code
            time.sleep(0.002)
        self.kill()
        raise AssertionError(f"it still ran after {seconds:.0f} s: {self.said()[-300:]}")

    def kill(self) -> int:
        """Kill it, if it has not ended; its exit code."""
        if self.ended() is None:
            os.kill(self.pid, signal.SIGKILL)
            self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        assert self.code is not None
        return self.code

    def said(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""


def forked(command: list[str], log: Path) -> Started:
    """The command in a copy of this process, which has imported everything already."""
    # an optimizer imports the compiler, which takes longer than the run

    from torchcaps.cli import app

    child = os.fork()
    if child:
        return Started(child, log)
    code = 70
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        sys.argv = ["torchcaps", *command]
        app(command, standalone_mode=True)
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else 0
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def executed(command: list[str], log: Path) -> Started:
    """The command as a user starts it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with log.open("wb") as file:
        started = subprocess.Popen(
            [sys.executable, "-m", "torchcaps", *command],
            stdout=file,
            stderr=subprocess.STDOUT,
            env=environment,
        )
    started.returncode = 0  # it is waited for by its number
    return Started(started.pid, log)


@dataclass(frozen=True)
class Ended:
    """What must be the same of two runs, and how long this one took."""

    prints: tuple[str, ...]
    seconds: float


def prints(run: Path) -> tuple[str, ...]:
    """Fingerprints of the weights, the last checkpoint and the metrics but for their times."""
    last = newest(run)
    assert last is not None
    digest = hashlib.sha256()
    for part in (last.model, last.optim):
        for name in sorted(part):
            digest.update(name.encode() + part[name].contiguous().numpy().tobytes())
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    timeless = ("seconds", "images_per_s", "peak_mib")
    rows = [{k: v for k, v in line.items() if k not in timeless} for line in lines]
    weights = hashlib.sha256((run / "weights.safetensors").read_bytes()).hexdigest()
    result = json.loads((run / "result.json").read_text())
    scores = f"{result['test']} {result['validation']}"
    return weights, digest.hexdigest(), json.dumps(rows), scores


def newest(run: Path) -> Checkpoint | None:
    """The newest checkpoint of a run, none of which may be damaged."""
    warnings: list[str] = []
    found = newest_checkpoint(run / "checkpoints", warn=warnings.append)
    assert not warnings, f"a damaged checkpoint can be seen: {warnings[0]}"
    return found


@cache
def unbroken(routing: str) -> Ended:
    """The run that nothing happened to."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-unbroken-") as name:
        folder, start = Path(name), time.monotonic()
        started = forked(arguments(routing, folder), folder / "log")
        assert started.wait() == 0, started.said()
        return Ended(prints(folder / "run"), time.monotonic() - start)


def resumes(first: int, count: int) -> Iterator[str]:
    """Runs killed one to three times at random moments, then let go to their end."""
    for number in range(first, first + count):
        rng = random.Random(f"resume {number}")
        routing = ROUTINGS[number % len(ROUTINGS)]
        with tempfile.TemporaryDirectory(prefix="torchcaps-resume-") as name:
            try:
                killed_and_resumed(routing, Path(name), rng)
                yield ""
            except (AssertionError, CheckpointError, OSError) as error:
                yield f"resume {number}, {routing}: {error}"


def killed_and_resumed(routing: str, folder: Path, rng: random.Random) -> None:
    expected = unbroken(routing)
    step = 0
    for _ in range(rng.randint(1, 3)):
        started = forked(arguments(routing, folder), folder / "log")
        time.sleep(rng.random() * expected.seconds)
        started.kill()
        step = not_lost(folder / "run", step)
    started = forked(arguments(routing, folder), folder / "log")
    code = started.wait()
    assert code == 0, f"exit code {code}: {started.said()[-500:]}"
    same(prints(folder / "run"), expected.prints)


def not_lost(run: Path, step: int) -> int:
    """Assert that a kill took no step away that was there before; the step there is now."""
    found = newest(run)
    now = 0 if found is None else found.step
    assert now >= step, f"step {step} was there and {now} is left"
    return now


def same(found: tuple[str, ...], expected: tuple[str, ...]) -> None:
    for what, one, other in zip(
        ("weights", "last checkpoint", "metrics", "scores"), found, expected, strict=True
    ):
        assert one == other, f"{what} differ from the unbroken run's: {one[:200]} {other[:200]}"


def commands(first: int, count: int) -> Iterator[str]:
    """Kills of the command as a user starts it; a run that ends is compared and started over."""
    number, end = first, first + count
    while number < end:
        with tempfile.TemporaryDirectory(prefix="torchcaps-command-") as name:
            folder, step, ended = Path(name), 0, False
            routing = ROUTINGS[number % len(ROUTINGS)]
            while number < end and not ended:
                try:
                    code = killed_command(routing, folder, random.Random(f"command {number}"))
                    ended = code != -signal.SIGKILL
                    if ended:
                        assert code == 0, f"exit code {code}"
                        same(prints(folder / "run"), unbroken(routing).prints)
                        continue
                    step, failure = not_lost(folder / "run", step), ""
                except (AssertionError, CheckpointError, OSError) as error:
                    said = (folder / "log").read_text()[-300:]
                    ended, failure = True, f"command {number}, {routing}: {error}, {said}"
                number += 1
                yield failure


def killed_command(routing: str, folder: Path, rng: random.Random) -> int:
    """Kill the command a random time after its first new checkpoint; its exit code."""
    found = newest(folder / "run")
    before = 0 if found is None else found.step
    started = executed(arguments(routing, folder), folder / "log")
    begun = time.monotonic() + LONGEST
    while time.monotonic() < begun and started.ended() is None:
        names = [path.name for path in checkpoints(folder / "run" / "checkpoints")]
        if max(names, default="") > f"step-{before:08d}":
            break
        time.sleep(0.005)
    time.sleep(rng.random() * 0.15)
    return started.kill()


def signals(first: int, count: int) -> Iterator[str]:
    """Ctrl-C and SIGTERM at random moments of a long run."""
    for number in range(first, first + count):
        rng = random.Random(f"signal {number}")
        routing = ROUTINGS[number // 2 % len(ROUTINGS)]
        wanted = (signal.SIGINT, signal.SIGTERM)[number % 2]
        with tempfile.TemporaryDirectory(prefix="torchcaps-signal-") as name:
            folder = Path(name)
            started = forked(arguments(routing, folder, epochs=1000), folder / "log")
            try:
                interrupted(started, folder, wanted, rng)
                yield ""
            except (AssertionError, CheckpointError, OSError) as error:
                yield f"signal {number}, {routing}, {wanted.name}: {error}"


def interrupted(started: Started, folder: Path, wanted: signal.Signals, rng: random.Random) -> None:
    """Assert that a run saves and leaves when it is asked to."""
    end = time.monotonic() + PATIENCE
    while not (folder / "run" / "run.json").exists() and time.monotonic() < end:
        time.sleep(0.002)
    time.sleep(rng.random() * 1.5)
    before = [path.name for path in checkpoints(folder / "run" / "checkpoints")]
    asked = time.monotonic()
    os.kill(started.pid, wanted)
    code = started.wait(PATIENCE)
    said = started.said()
    assert code == 128 + wanted, f"exit code {code}: {said[-500:]}"
    assert time.monotonic() - asked < PATIENCE
    assert "Traceback" not in said, said[-500:]
    assert str(folder / "run") in said, f"it does not say where it saved: {said[-300:]}"
    last = newest(folder / "run")
    assert last is not None, "nothing was saved"
    assert f"step-{last.step:08d}" >= max(before, default=""), "a checkpoint was lost"
    assert f"step {last.step} of" in said, f"it does not name step {last.step}: {said[-300:]}"


def seeds(first: int, count: int, *, device: str = "cpu") -> Iterator[str]:
    """One seed twice gives the same bits over a hundred steps; another seed gives others."""
    for number in range(first, first + count):
        routing = ROUTINGS[number % len(ROUTINGS)]
        try:
            one, again, other = (
                seeded(routing, seed, device) for seed in (number, number, number + 1)
            )
            same(again, one)
            assert one[0] != other[0], "another seed gives the same weights"
            yield ""
        except AssertionError as error:
            yield f"seed {number}, {routing}: {error}"


def gpu_seeds(first: int, count: int) -> Iterator[str]:
    """The same on a GPU with ``--deterministic``; nothing is tried where there is none."""
    import torch

    if torch.cuda.is_available():
        yield from seeds(first, count, device="cuda")


def seeded(routing: str, seed: int, device: str) -> tuple[str, ...]:
    """The fingerprints of a run of a hundred steps with a seed."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-seed-") as name:
        folder = Path(name)
        command = arguments(routing, folder, "--seed", str(seed), "--deterministic", epochs=1)
        for before, after in (("limit=256", "limit=3200"), ("cpu", device)):
            command[command.index(before)] = after
        command[command.index("--save-every") + 1] = "10"
        # a GPU does not survive a fork
        started = (forked if device == "cpu" else executed)(command, folder / "log")
        assert started.wait() == 0, started.said()[-500:]
        last = newest(folder / "run")
        assert last is not None
        assert last.step == 100
        return prints(folder / "run")
