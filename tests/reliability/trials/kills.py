"""`kill -9` while checkpoints are saved, replaced and pruned.

A forked process saves one version after another and tells each that is done. It is killed either
before a file operation chosen at random (seen through an audit hook) or after a random time. What
it leaves must hold the last version told or the one after it, in every bit.
"""

import os
import random
import signal
import struct
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
from torch import Tensor

from torchcaps.train.checkpoint.files import (
    Checkpoint,
    CheckpointError,
    checkpoints,
    load_checkpoint,
    newest_checkpoint,
    prune,
    save_checkpoint,
    sweep,
)

OPERATIONS = {"open", "os.mkdir", "os.rename", "os.remove", "os.rmdir", "os.listdir", "os.scandir"}
PER_SAVE = 40
SAVES = 100_000
SIZES = (16, 4_096, 131_072)

Save = Callable[[Path, int, int], None]


def content(version: int, size: int) -> dict[str, Tensor]:
    """Tensors in which every bit depends on the version."""
    numbers = torch.arange(size, dtype=torch.int64)
    mixed = (numbers + 1) * (2 * version + 1) * 0x9E3779B97F4A7C15 % 2**31
    return {"w": mixed.to(torch.float32), "n": mixed, "t": torch.tensor(version)}


def save(folder: Path, version: int, size: int) -> None:
    """Every step is saved twice, so that every other save replaces one."""
    tensors = content(version, size)
    state = {"version": version, "size": size}
    save_checkpoint(folder, version // 2, model=tensors, optim=tensors, state=state)
    prune(folder, keep=2)


def trials(first: int, count: int, *, saver: Save = save) -> Iterator[str]:
    """Kill a process ``count`` times."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-kills-") as name:
        version = 0
        for number in range(first, first + count):
            rng = random.Random(f"kill {number}")
            folder = Path(name) / str(number // 50)
            if not folder.is_dir():
                version = 0
            told = killed(folder, version, rng, saver)
            try:
                version = check(folder, max(told, version))
                yield ""
            except (AssertionError, CheckpointError) as error:
                yield f"kill {number}: {error}"
                version = 0
                folder.rename(folder.with_name(f"failed-{number}"))


def killed(folder: Path, version: int, rng: random.Random, saver: Save) -> int:
    """Save versions after ``version`` in a process that is killed; the last one it told."""
    reading, writing = os.pipe()
    size, by_operation = rng.choice(SIZES), rng.random() < 0.5
    limit = rng.randrange(PER_SAVE * 3)
    child = os.fork()
    if child == 0:
        os.close(reading)
        try:
            if by_operation:
                die_before(limit)
            for number in range(version + 1, version + 1 + SAVES):
                saver(folder, number, size)
                os.write(writing, struct.pack("<q", number))
        finally:
            os._exit(1)
    os.close(writing)
    if not by_operation:
        time.sleep(rng.random() * 0.06)
        os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        told = pipe.read()
    return int(struct.unpack("<q", told[-8:])[0]) if told else 0


def die_before(limit: int) -> None:
    """Kill this process before its file operation number ``limit``."""
    left = limit

    def count(event: str, arguments: object) -> None:
        nonlocal left
        if event in OPERATIONS:
            left -= 1
            if left < 0:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(count)


def check(folder: Path, told: int) -> int:
    """Assert that nothing told was lost or changed; the version that is left."""
    warnings: list[str] = []
    found = newest_checkpoint(folder, warn=warnings.append)
    assert not warnings, f"a damaged checkpoint can be seen: {warnings[0]}"
    if found is None:
        assert told == 0, f"version {told} was told and nothing is left"
        sweep(folder)
        return 0
    left = same(found)
    assert told <= left <= told + 1, f"version {told} was told and {left} is left"
    others = checkpoints(folder)
    for path in others:
        same(load_checkpoint(path))
    assert len(others) >= min(2, left // 2), f"{len(others)} checkpoints at version {left}"
    sweep(folder)
    after = newest_checkpoint(folder, warn=warnings.append)
    assert after is not None
    assert same(after) == left, "sweeping lost a version"
    hidden = [path.name for path in folder.iterdir() if path.name.startswith(".")]
    assert not hidden, f"sweeping left {hidden}"
    return left


def same(found: Checkpoint) -> int:
    """The version of a checkpoint, all of whose values are that version's."""
    version = int(found.state["version"])
    expected = content(version, int(found.state["size"]))
    for part in (found.model, found.optim):
        assert part.keys() == expected.keys()
        for key, tensor in expected.items():
            assert torch.equal(part[key], tensor), f"{key} of version {version} is wrong"
    assert found.step == version // 2
    return version
