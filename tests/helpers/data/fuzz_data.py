"""Mutated files against every reader: a valid result or one of our errors, nothing else.

Run as a script for the long version:

    python tests/helpers/data/fuzz_data.py --mutations 1000000
"""

import argparse
import datetime
import io
import random
import struct
import subprocess
import sys
import tarfile
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import helpers.data.files as files
from torchcaps.data.archives import extract
from torchcaps.data.readers.bytes import FileFormatError
from torchcaps.data.readers.cifar import read_cifar_binary, read_cifar_pickle
from torchcaps.data.readers.idx import read_idx
from torchcaps.data.readers.norb import read_norb
from torchcaps.data.sets.affnist import read_affnist
from torchcaps.data.sets.svhn import read_svhn
from torchcaps.preprocessing.picture import decode_image, measure_image

HEADROOM = 512 << 20
SECONDS = 10.0
VALUES = (0, 1, 2, 4, 8, 14, 15, 127, 128, 255, 256, 32767, 65535, 1 << 24, 0x7FFFFFFF, 0xFFFFFFFF)


@dataclass(frozen=True)
class Target:
    seeds: tuple[bytes, ...]
    read: Callable[[bytes], bool]


def _targets() -> dict[str, Target]:
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (2, 5, 5), dtype=np.uint8)
    color = rng.integers(0, 4, (2, 3, 32, 32), dtype=np.uint8)
    labels = np.array([3, 0], np.uint8)
    small = files.idx(pixels)
    stereo = rng.integers(0, 256, (2, 2, 3, 3), dtype=np.uint8)
    forty = np.zeros((2, 1, 40, 40), np.uint8)

    def idx(data: bytes) -> bool:
        array = read_idx(data, ndim=3, limit=1000)
        return array.dtype == np.uint8 and array.ndim == 3 and array.size <= 1000

    def norb(data: bytes) -> bool:
        array = read_norb(data, ndim=4, limit=1000)
        return array.dtype in (np.uint8, np.int32) and array.ndim == 4 and array.size <= 1000

    def binary(data: bytes) -> bool:
        images, raw = read_cifar_binary(data, label_bytes=1, limit=4)
        return images.shape == (len(raw), 3, 32, 32) and len(raw) <= 4

    def pickle(data: bytes) -> bool:
        images, found = read_cifar_pickle(data, label_keys=("labels",), limit=4)
        return images.shape == (len(found), 3, 32, 32) and 0 <= found.min() <= found.max() < 256

    def svhn(data: bytes) -> bool:
        columns = read_svhn(data, 4)
        n = len(columns["labels"])
        return columns["images"].shape == (n, 3, 32, 32) and bool((columns["labels"] < 10).all())

    def affnist(data: bytes) -> bool:
        columns = read_affnist(data, 4)
        n = len(columns["labels"])
        return columns["images"].shape == (n, 1, 40, 40) and bool((columns["labels"] < 10).all())

    def image(data: bytes) -> bool:
        size, colored = measure_image(io.BytesIO(data))
        array = decode_image(io.BytesIO(data))
        return array.dtype == np.uint8 and array.shape == (*size, 3)[: 3 if colored else 2]

    return {
        "idx": Target((small, files.gz(small)), idx),
        "norb": Target((files.norb(stereo), files.gz(files.norb(stereo))), norb),
        "cifar_binary": Target((files.cifar_binary(color, labels[:, None]),), binary),
        "cifar_pickle": Target((files.cifar_pickle(color, {"labels": [3, 0]}),), pickle),
        "svhn": Target(
            (
                files.svhn(color, labels),
                files.svhn(color[:1], labels[:1], compressed=False),
            ),
            svhn,
        ),
        "affnist": Target(
            (
                files.affnist(forty, labels),
                files.affnist(forty[:1], labels[:1], compressed=False),
            ),
            affnist,
        ),
        "image": Target(_pictures(pixels[0], color[0].transpose(1, 2, 0)), image),
        "archive": Target((_tar(), _zip()), _unpack),
    }


def _pictures(gray: files.Bytes, color: files.Bytes) -> tuple[bytes, ...]:
    return (
        files.png(gray),
        files.png(color),
        files.picture(gray, "JPEG", orientation=6),
        files.picture(color, "JPEG"),
        files.picture(gray, "GIF"),
        files.picture(color, "GIF"),
    )


def _tar() -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as archive:
        for name in ("set/one", "set/two"):
            info = tarfile.TarInfo(name)
            info.size = 20
            archive.addfile(info, io.BytesIO(bytes(20)))
    return files.gz(file.getvalue())


def _zip() -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("set/one", bytes(20))
        archive.writestr("set/two", bytes(range(20)))
    return file.getvalue()


def _unpack(data: bytes) -> bool:
    with tempfile.TemporaryDirectory(dir=_scratch()) as name:
        outer = Path(name)
        (outer / "archive").write_bytes(data)
        written = extract(outer / "archive", outer / "into", limit=1000)
        inside = {path for path in (outer / "into").rglob("*") if path.is_file()}
        return inside == set(written) and len(list(outer.iterdir())) == 2


def _scratch() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


TARGETS = _targets()


def mutate(data: bytes, rng: random.Random) -> bytes:
    """Cut, flip, overwrite, insert or replace: what disks, networks and attackers do."""
    kind = rng.randrange(8)
    if kind == 0:
        return data[: rng.randrange(len(data) + 1)]
    if kind == 1:
        return rng.randbytes(rng.randrange(200))
    if kind == 2:
        return data[: rng.randrange(len(data))] + rng.randbytes(rng.randrange(40))
    out = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        # headers matter most: half of the damage goes to the first 256 bytes
        at = rng.randrange(min(len(out), 256) if rng.random() < 0.5 else len(out))
        if kind <= 4:
            out[at] ^= 1 << rng.randrange(8)
        elif kind == 5:
            out[at] = rng.randrange(256)
        elif kind == 6:
            word = struct.pack(rng.choice("<>") + "I", rng.choice(VALUES))
            out[at : at + 4] = word
        else:
            out[at:at] = rng.randbytes(rng.randrange(1, 9))
    return bytes(out)


@contextmanager
def limited_memory() -> Iterator[None]:
    """Let the process grow by `HEADROOM` at most: a huge allocation becomes an error."""
    if sys.platform != "linux":
        yield
        return
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def fuzz(name: str, mutations: int, *, seed: int = 0) -> tuple[int, int]:
    """How many mutated files were read and how many refused; anything else is raised."""
    target = TARGETS[name]
    for data in target.seeds:
        assert target.read(data), f"{name} does not read its own file"
    rng = random.Random(f"{name} {seed}")
    read = refused = 0
    with limited_memory():
        for number in range(mutations):
            data = mutate(rng.choice(target.seeds), rng)
            start = time.perf_counter()
            try:
                assert target.read(data), f"{name} {seed} {number}: an impossible result"
                read += 1
            except FileFormatError as error:
                one_line = "\n" not in str(error)
                refused += one_line
            except Exception as error:
                raise AssertionError(f"{name} {seed} {number}: {error!r} of {data!r}") from error
            assert read + refused == number + 1, f"{name} {seed} {number}: more than a sentence"
            assert time.perf_counter() - start < SECONDS, f"{name} {seed} {number}: slow"
    return read, refused


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mutations", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("readers", nargs="*", default=list(TARGETS))
    options = parser.parse_args()
    head = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True)
    today = datetime.datetime.now(datetime.UTC).date()
    sys.stdout.write(f"mutated files per reader, commit {head.stdout.strip()}, {today}\n")
    for name in options.readers:
        start = time.perf_counter()
        read, refused = fuzz(name, options.mutations, seed=options.seed)
        seconds = time.perf_counter() - start
        sys.stdout.write(f"{name}: {read} read, {refused} refused, 0 failures, {seconds:.0f} s\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
