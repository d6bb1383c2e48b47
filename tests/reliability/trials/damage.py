"""Checkpoints damaged in every way a disk or a person can."""

import random
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch

from reliability.trials.kills import content
from torchcaps.train.checkpoint.files import (
    CheckpointError,
    load_checkpoint,
    newest_checkpoint,
    prune,
    save_checkpoint,
)

FILES = ("model.safetensors", "optim.safetensors", "state.json", "manifest.json")
SIZE = 200
OLD, NEW = 1, 2


def trials(first: int, count: int) -> Iterator[str]:
    """Damage the newest of two checkpoints ``count`` times."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-damage-") as name:
        good = Path(name) / "good"
        for step in (OLD, NEW):
            save(good, step)
        for number in range(first, first + count):
            rng = random.Random(f"damage {number}")
            kind = list(DAMAGES)[number % len(DAMAGES)]
            folder = Path(name) / "tried"
            shutil.copytree(good, folder)
            try:
                check(folder, kind, rng)
                yield ""
            except (AssertionError, CheckpointError, pytest.fail.Exception) as error:
                yield f"damage {number}, {kind}: {error}"
            finally:
                shutil.rmtree(folder)


def save(folder: Path, step: int, *, size: int = SIZE) -> Path:
    tensors = content(step, size)
    state = {"step": step, "name": "demo/strokes-dynamic", "losses": [0.5 / step] * 20}
    return save_checkpoint(folder, step, model=tensors, optim=tensors, state=state)


def check(folder: Path, kind: str, rng: random.Random) -> None:
    newest = folder / f"step-{NEW:08d}"
    before = read(newest)
    DAMAGES[kind](newest, rng)
    after = read(newest)
    assert after != before, "nothing was damaged"
    model = content(NEW, SIZE)
    with pytest.raises(CheckpointError) as caught:
        load_checkpoint(newest, model=model)
    assert str(newest) in str(caught.value), f"the path is not named: {caught.value}"
    assert "\n" not in str(caught.value), f"more than a sentence: {caught.value}"
    told: list[str] = []
    found = newest_checkpoint(folder, warn=told.append, model=model)
    assert found is not None
    assert found.step == OLD, f"went back to step {found.step}"
    assert all(torch.equal(found.model[k], v) for k, v in content(OLD, SIZE).items())
    assert len(told) == 1, f"{len(told)} warnings"
    prune(folder, keep=1, model=model)
    assert read(newest) == after, "the damaged checkpoint was changed"
    load_checkpoint(folder / f"step-{OLD:08d}")


def read(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir()}


def flip(path: Path, rng: random.Random) -> None:
    change(path, rng, lambda data: _flip(data, rng, 1))


def flip_many(path: Path, rng: random.Random) -> None:
    change(path, rng, lambda data: _flip(data, rng, rng.randint(2, 64)))


def _flip(data: bytearray, rng: random.Random, bits: int) -> None:
    for place in rng.sample(range(8 * len(data)), min(bits, 8 * len(data))):
        data[place // 8] ^= 1 << place % 8


def truncate(path: Path, rng: random.Random) -> None:
    def cut(data: bytearray) -> None:
        del data[rng.randrange(len(data)) :]

    change(path, rng, cut)


def zero(path: Path, rng: random.Random) -> None:
    def clear(data: bytearray) -> None:
        start = rng.choice([place for place, byte in enumerate(data) if byte])
        stop = min(len(data), start + rng.choice((1, 16, 512, 4096)))
        data[start:stop] = bytes(stop - start)

    change(path, rng, clear)


def append(path: Path, rng: random.Random) -> None:
    change(path, rng, lambda data: data.extend(rng.randbytes(rng.randint(1, 100))))


def overwrite(path: Path, rng: random.Random) -> None:
    def replace(data: bytearray) -> None:
        data[:] = rng.randbytes(rng.randint(1, 4096))

    change(path, rng, replace)


def change(path: Path, rng: random.Random, how: Callable[[bytearray], None]) -> None:
    file = path / rng.choice(FILES)
    data = bytearray(file.read_bytes())
    how(data)
    file.write_bytes(data)


def remove(path: Path, rng: random.Random) -> None:
    (path / rng.choice(FILES)).unlink()


def mix(path: Path, rng: random.Random) -> None:
    """A file of the checkpoint before in place of its own."""
    name = rng.choice(FILES)
    shutil.copy(path.with_name(f"step-{OLD:08d}") / name, path / name)


def other_model(path: Path, rng: random.Random) -> None:
    """A good checkpoint of another network."""
    shutil.rmtree(path)
    save(path.parent, NEW, size=SIZE + rng.randint(1, 50))


DAMAGES = {
    "one bit": flip,
    "bits": flip_many,
    "cut": truncate,
    "zeroed": zero,
    "longer": append,
    "overwritten": overwrite,
    "file missing": remove,
    "file of another step": mix,
    "another network": other_model,
}
