"""Disks that are full: a real one of a few hundred kilobytes where mounting is allowed.

Elsewhere the kernel is told to refuse files beyond a size, which fails the same writes.
"""

import random
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

import helpers.data.download_server as downloads
import torchcaps as tc
from reliability.trials.kills import content
from reliability.trials.runs import (
    ROUTINGS,
    arguments,
    forked,
    newest,
    prints,
    same,
    unbroken,
)
from torchcaps.data import DownloadError
from torchcaps.data.sheet import save_png
from torchcaps.storage import WriteError, append_line, read_lines, write_text
from torchcaps.train.checkpoint.files import (
    CheckpointError,
    newest_checkpoint,
    save_checkpoint,
)

SIZE = 512 << 10
# a checkpoint of the small networks has about 5.3 MB: one fits, three do not
FIRST, SECOND = 6_500_000, 15_000_000
REFUSED = (WriteError, CheckpointError, DownloadError)


def trials(first: int, count: int) -> Iterator[str]:
    """Fill a disk under each kind of file in turn."""
    for number in range(first, first + count):
        rng = random.Random(f"disk {number}")
        kind = list(KINDS)[number % len(KINDS)]
        with small_disk() as (folder, fill):
            try:
                KINDS[kind](folder, fill, rng)
                yield ""
            except (AssertionError, OSError, ValueError) as error:
                yield f"disk {number}, {kind}: {error!r}"


Fill = Callable[[int], None]
"""Leave so many bytes free; a negative number takes everything away that filled the disk."""


@contextmanager
def small_disk() -> Iterator[tuple[Path, Fill]]:
    """A folder on a disk of its own, and how to fill it."""
    if not can_mount():
        with (
            tempfile.TemporaryDirectory(prefix="torchcaps-disk-") as name,
            limited_files() as limit,
        ):
            yield Path(name), limit
        return
    with mounted(SIZE) as folder:
        filler = folder / "filler"

        def fill(free: int) -> None:
            filler.unlink(missing_ok=True)
            if free < 0:
                return
            with filler.open("wb", buffering=0) as file:
                try:
                    while file.write(bytes(4096)):
                        pass
                except OSError:
                    file.truncate(max(0, file.tell() - free))

        yield folder, fill


@cache
def can_mount() -> bool:
    """Whether this process may mount a disk in memory."""
    try:
        with mounted(SIZE):
            return True
    except (OSError, subprocess.CalledProcessError):
        return False


@contextmanager
def mounted(size: int) -> Iterator[Path]:
    """A disk of so many bytes, in memory."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-disk-") as name:
        mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", name]
        subprocess.run(mount, capture_output=True, check=True)
        try:
            yield Path(name)
        finally:
            subprocess.run(["umount", "--lazy", name], capture_output=True, check=True)


@contextmanager
def limited_files() -> Iterator[Fill]:
    """Let the kernel refuse to write files beyond a size, where no disk can be mounted."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(free: int) -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft if free < 0 else free, hard))

    try:
        yield fill
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def refused(attempt: Callable[[], object], path: Path) -> None:
    """Assert that an attempt is refused with path, needed and free bytes in one sentence."""
    try:
        attempt()
    except REFUSED as error:
        message = str(error)
        assert str(path) in message, f"the path is not named: {message}"
        assert re.search(r"needs (\d+ (more )?bytes|more)", message), message
        assert re.search(r"\d+ (bytes )?are free", message), message
        assert "\n" not in message, message
    else:
        raise AssertionError("it was not noticed")


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir() if path.name != "filler")


def checkpoint(folder: Path, fill: Fill, rng: random.Random) -> None:
    size = rng.randint(1000, 6000)
    run = folder / "run"

    def save(step: int) -> None:
        tensors = content(step, size)
        save_checkpoint(run, step, model=tensors, optim=tensors, state={"step": step})

    save(1)
    fill(rng.randrange(0, 12 * size))
    again = rng.random() < 0.5
    refused(lambda: save(1 if again else 2), run / f"step-0000000{1 if again else 2}")
    assert names(run) == ["step-00000001"], f"left behind: {names(run)}"
    found = newest_checkpoint(run, warn=_never)
    assert found is not None
    assert all(torch.equal(found.model[key], value) for key, value in content(1, size).items())
    fill(-1)
    save(2)
    found = newest_checkpoint(run, warn=_never)
    assert found is not None
    assert found.step == 2


def log(folder: Path, fill: Fill, rng: random.Random) -> None:
    path = folder / "metrics.jsonl"
    lines = [f'{{"step": {number}}}' for number in range(rng.randint(1, 500))]
    for line in lines:
        append_line(path, line)
    fill(0)
    refused(lambda: append_line(path, "x" * rng.randint(5_000, 20_000)), path)
    assert read_lines(path) == lines
    assert path.read_bytes()[-1:] == b"\n", "half a line was left"
    fill(-1)
    append_line(path, "last")
    assert read_lines(path) == [*lines, "last"]


def figure(folder: Path, fill: Fill, rng: random.Random) -> None:
    path = folder / "figure.png"
    noise = torch.randint(0, 256, (3, 150, 200), dtype=torch.uint8)
    save_png(noise, path)
    before = path.read_bytes()
    fill(rng.randrange(0, 80_000))
    refused(lambda: save_png(255 - noise, path), path)
    assert path.read_bytes() == before
    assert names(folder) == ["figure.png"], f"left behind: {names(folder)}"
    fill(-1)
    save_png(255 - noise, path)
    assert path.read_bytes() != before


def download(folder: Path, fill: Fill, rng: random.Random) -> None:
    """The disk is full before the first byte, or fills up after the request was sent."""
    early = rng.random() < 0.5
    with downloads.serving() as server:
        wanted = downloads.wanted(server, "good")
        if early:
            fill(rng.randrange(0, 50_000))
        else:
            server.requests = _Filling(lambda: fill(rng.randrange(0, 50_000)))
        refused(lambda: downloads.get(wanted, folder), folder / "set")
        assert not (folder / "set" / "file.gz").exists()
        server.requests = []
        fill(-1)
        downloads.get(wanted, folder)
        assert (folder / "set" / "file.gz").read_bytes() == downloads.CONTENT


class _Filling(list[tuple[str, str | None]]):
    """Requests, the first of which fills the disk."""

    def __init__(self, fill: Callable[[], None]) -> None:
        super().__init__()
        self.fill = fill

    def append(self, request: tuple[str, str | None]) -> None:
        if not self:
            self.fill()
        super().append(request)


def result(folder: Path, fill: Fill, rng: random.Random) -> None:
    path = folder / "result.json"
    write_text(path, "old")
    fill(rng.randrange(0, 8192))
    refused(lambda: write_text(path, "new" * 10_000), path)
    assert path.read_text() == "old"
    assert names(folder) == ["result.json"], f"left behind: {names(folder)}"


def weights(folder: Path, fill: Fill, rng: random.Random) -> None:
    path = folder / "weights.safetensors"
    network = tc.build("zhao2020/smallnorb", n_classes=5)
    path.write_text("old")
    fill(rng.randrange(0, 8192))
    refused(lambda: tc.save(network, path), path)
    assert path.read_text() == "old"
    assert names(folder) == ["weights.safetensors"], f"left behind: {names(folder)}"


def run(folder: Path, rng: random.Random) -> None:
    """The disk of a run fills up while it trains; with room again it goes on to the same end."""
    routing = rng.choice(ROUTINGS)
    expected = unbroken(routing)
    size = rng.randrange(FIRST, SECOND)
    with mounted(size) as disk:
        started = forked(arguments(routing, disk), folder / "log")
        code, said = started.wait(), started.said()
        assert code == 1, f"exit code {code}: {said[-500:]}"
        assert "Traceback" not in said, said[-800:]
        last = said.strip().splitlines()[-1]
        assert str(disk / "run") in last, f"the path is not named: {last}"
        assert re.search(r"needs \d+ bytes and \d+ are free", last), last
        assert newest(disk / "run") is not None, "the checkpoints are gone"
        grow = ["mount", "-o", f"remount,size={8 * size}", str(disk)]
        subprocess.run(grow, capture_output=True, check=True)
        started = forked(arguments(routing, disk), folder / "log")
        code = started.wait()
        assert code == 0, f"it does not go on: {started.said()[-500:]}"
        same(prints(disk / "run"), expected.prints)


def _never(message: str) -> None:
    raise AssertionError(message)


KINDS: dict[str, Callable[[Path, Fill, random.Random], None]] = {
    "checkpoint": checkpoint,
    "log": log,
    "figure": figure,
    "download": download,
    "result": result,
    "weights": weights,
}


def runs(first: int, count: int) -> Iterator[str]:
    """Fill the disk of the command while it trains."""
    if not can_mount():
        return
    for number in range(first, first + count):
        rng = random.Random(f"run on a disk {number}")
        with tempfile.TemporaryDirectory(prefix="torchcaps-full-") as name:
            try:
                run(Path(name), rng)
                yield ""
            except (AssertionError, OSError, ValueError) as error:
                yield f"run on a disk {number}: {error!r}"
