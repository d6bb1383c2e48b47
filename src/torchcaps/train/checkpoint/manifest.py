"""The manifest of a checkpoint, which decides whether its files are complete and undamaged.

It is the commit mark and is written last. It holds the size and SHA-256 of every other file and a
checksum of itself. It has one form only, so that no bit of a checkpoint can change unnoticed.
"""

import hashlib
import re
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from torchcaps.train.checkpoint.encoding import EncodingError, dump_json, parse_json

MODEL, OPTIM, STATE, MANIFEST = (
    "model.safetensors",
    "optim.safetensors",
    "state.json",
    "manifest.json",
)
FORMAT = 1
LIMITS = {MODEL: 16 << 30, OPTIM: 64 << 30, STATE: 16 << 20, MANIFEST: 1 << 16}
NAME = re.compile(r"step-(\d{8,18})(\.before-[0-9a-f]{8})?")
_KEYS = {"checksum", "files", "format", "step", "torch", "torchcaps"}


def write_manifest(step: int, contents: Mapping[str, bytes]) -> bytes:
    """Return the manifest of a checkpoint's files."""
    from torchcaps.version import __version__

    manifest: dict[str, Any] = {
        "format": FORMAT,
        "step": step,
        "torch": str(torch.__version__),
        "torchcaps": __version__,
        "files": {
            name: {"sha256": hashlib.sha256(data).hexdigest(), "size": len(data)}
            for name, data in contents.items()
        },
    }
    return _signed(manifest)


def _signed(manifest: dict[str, Any]) -> bytes:
    """Return a manifest with its own checksum, in its only form."""
    bare = {key: value for key, value in manifest.items() if key != "checksum"}
    return dump_json({**bare, "checksum": hashlib.sha256(dump_json(bare)).hexdigest()})


def read_manifest(path: Path) -> tuple[int, dict[str, dict[str, Any]]]:
    """Return the step of a checkpoint, and size and hash of its files, from an intact manifest."""
    data = _read(path, MANIFEST)
    with about(MANIFEST):
        manifest = parse_json(data)
        if manifest.get("format") != FORMAT:
            raise EncodingError(
                f"it has format {manifest.get('format')!r} and this version reads {FORMAT}"
            )
        if set(manifest) != _KEYS or _signed(manifest) != data:
            raise EncodingError("it was changed after it was written")
        step, files = manifest["step"], manifest["files"]
        if type(step) is not int or type(files) is not dict or set(files) != {MODEL, OPTIM, STATE}:
            raise EncodingError("it does not name the three files of a checkpoint")
        match = NAME.fullmatch(path.name)
        if match and int(match[1]) != step:
            raise EncodingError(f"it belongs to step {step}")
        for name, entry in files.items():
            fields = entry.items() if type(entry) is dict else ()
            if {key: type(value) for key, value in fields} != {"sha256": str, "size": int}:
                raise EncodingError(f"it does not give the size and hash of {name}")
    return step, files


def read_verified(path: Path) -> tuple[int, dict[str, bytes]]:
    """Return the step and the files of a checkpoint, each of the size and hash in the manifest."""
    step, files = read_manifest(path)
    contents = {}
    for name, entry in files.items():
        data = _read(path, name, size=entry["size"])
        if hashlib.sha256(data).hexdigest() != entry["sha256"]:
            raise EncodingError(f"{name} is damaged, its hash is not the one in the manifest")
        contents[name] = data
    return step, contents


def _read(path: Path, name: str, *, size: int | None = None) -> bytes:
    """Read a regular file of a checkpoint, which must have this size."""
    try:
        info = (path / name).lstat()
        if not stat.S_ISREG(info.st_mode):
            raise EncodingError(f"{name} is not a regular file")
        if size is not None and info.st_size != size:
            raise EncodingError(f"{name} has {info.st_size} bytes and should have {size}")
        if info.st_size > LIMITS[name]:
            raise EncodingError(f"{name} has {info.st_size} bytes, the most is {LIMITS[name]}")
        return (path / name).read_bytes()
    except FileNotFoundError:
        raise EncodingError(f"{name} is missing") from None
    except OSError as error:
        raise EncodingError(f"{name} cannot be read ({error.strerror})") from error
    except MemoryError:
        raise EncodingError(f"{name} does not fit into memory") from None


@contextmanager
def about(name: str) -> Iterator[None]:
    """Add the name of a file to errors."""
    try:
        yield
    except EncodingError as error:
        raise EncodingError(f"{name}: {error}") from error
