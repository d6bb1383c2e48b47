"""Rows that are tests already: mutated files for every reader, hostile files."""

import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import torchcaps as tc
from helpers.data import fuzz_data
from reliability.trials.kills import content
from torchcaps.train.checkpoint.encoding import (
    EncodingError,
    dump_json,
    dump_tensors,
    parse_json,
    parse_tensors as parse,
)

ROOT = Path(__file__).resolve().parents[3]
CHUNK = 2_000
HOSTILE = (
    "tests/train/checkpoint/test_checkpoint_hostile.py",
    "tests/data/test_archives.py",
    "tests/data/test_readers.py",
    "tests/models/test_files.py",
)
WORDS = "hostile or link or survive or exchanged or pickle or looked_up or truncation or after"


def loaders() -> dict[str, tuple[bytes, Callable[[bytes], object]]]:
    """What reads a checkpoint or a network, and a good file for each."""
    state = {"step": 3, "lr": 0.1, "names": ["a", "b"], "best": None}
    return {
        "tensors": (dump_tensors(content(1, 20)), parse),
        "json": (dump_json(state), parse_json),
    }


LOADERS = loaders()
TARGETS = [*fuzz_data.TARGETS, *LOADERS]


def mutations(first: int, count: int) -> Iterator[str]:
    """Mutated files for all readers and loaders in turn, `CHUNK` at a time."""
    for start in range(first, first + count, CHUNK):
        size = min(CHUNK, first + count - start)
        chunk = start // CHUNK
        name = TARGETS[chunk % len(TARGETS)]
        try:
            if name in LOADERS:
                fuzz(name, size, seed=chunk)
            else:
                fuzz_data.fuzz(name, size, seed=chunk)
            yield from [""] * size
        except AssertionError as error:
            yield from [f"mutation of chunk {chunk}: {error}"[:500], *[""] * (size - 1)]


def fuzz(name: str, count: int, *, seed: int) -> tuple[int, int]:
    """How many mutated files a loader read and refused; anything else is raised."""
    good, load = LOADERS[name]
    load(good)
    rng = random.Random(f"{name} {seed}")
    read = refused = 0
    with fuzz_data.limited_memory():
        for number in range(count):
            data = fuzz_data.mutate(good, rng)
            try:
                load(data)
                read += 1
            except EncodingError as error:
                refused += "\n" not in str(error)
            except Exception as error:
                raise AssertionError(f"{name} {seed} {number}: {error!r} of {data!r}") from error
            assert read + refused == number + 1, f"{name} {seed} {number}: more than a sentence"
    return read, refused


def networks(first: int, count: int) -> Iterator[str]:
    """Mutated files of a saved network: read whole, or one sentence."""
    with tempfile.TemporaryDirectory(prefix="torchcaps-network-") as name:
        path = Path(name) / "network.safetensors"
        tc.save(tc.build("zhao2020/smallnorb"), path)
        good = path.read_bytes()
        for number in range(first, first + count):
            path.write_bytes(fuzz_data.mutate(good, random.Random(f"network {number}")))
            try:
                assert tc.load(path).name == "zhao2020/smallnorb"
                yield ""
            except ValueError as error:
                yield "" if "\n" not in str(error) else f"network {number}: more than a sentence"
            except Exception as error:
                yield f"network {number}: {error!r}"


def hostile(first: int, count: int) -> Iterator[str]:
    """Hostile archives, pickles and checkpoints: the tests that hold them, each a trial."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", WORDS]
    done = subprocess.run([*command, *HOSTILE], cwd=ROOT, capture_output=True, text=True)
    told = {word: int(n) for n, word in re.findall(r"(\d+) (passed|failed|error)", done.stdout)}
    failed = told.get("failed", 0) + told.get("error", 0)
    seen = [*["a hostile file, see pytest"] * failed, *[""] * told.get("passed", 0)]
    yield from seen[first : first + count]
