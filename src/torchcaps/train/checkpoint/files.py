"""Checkpoints that exist completely or not at all, and whose damage is always noticed.

A checkpoint is a folder ``step-00000123`` of four files: the network and the optimizer as
safetensors, the rest as JSON, and a manifest with the size and SHA-256 of the other three. It is
written under a temporary name, flushed to the disk and renamed, so that a process killed at any
moment leaves the checkpoint before or the new one. Nothing is pickled.

A step that is saved again replaces its folder only once the new one is complete. The old one is
set aside as ``step-00000123.before-...``, which still counts as a checkpoint. Then the new one
takes the name, and the old one goes.
"""

import contextlib
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from torchcaps.errors import TorchcapsError
from torchcaps.storage import reason, sync_folder, temporary, write_new
from torchcaps.train.checkpoint.encoding import (
    EncodingError,
    check_shapes,
    dump_json,
    dump_tensors,
    parse_json,
    parse_tensors,
)
from torchcaps.train.checkpoint.manifest import (
    LIMITS,
    MANIFEST,
    MODEL,
    NAME,
    OPTIM,
    STATE,
    about,
    read_manifest,
    read_verified,
    write_manifest,
)


class CheckpointError(TorchcapsError, ValueError):
    """A checkpoint cannot be written or read: path, cause and remedy in one sentence."""


class Checkpoint(NamedTuple):
    """The state from which a run resumes as if it had never stopped."""

    step: int
    model: dict[str, Tensor]
    optim: dict[str, Tensor]
    state: dict[str, Any]


def save_checkpoint(
    folder: Path,
    step: int,
    *,
    model: Mapping[str, Tensor],
    optim: Mapping[str, Tensor],
    state: Mapping[str, Any],
) -> Path:
    """Write ``folder/step-...`` and return it once it is safe on the disk.

    Args:
        folder: the folder of a run's checkpoints; made if it is not there.
        step: number of the step, which names the checkpoint.
        model: the network's tensors.
        optim: state of optimizer, averaging and random generators as named tensors.
        state: everything else as plain JSON: finite numbers, text, lists, dictionaries.
    """
    if type(step) is not int or not 0 <= step < 10**18:
        raise CheckpointError(f"a checkpoint's step must be a whole number from 0 on, not {step!r}")
    path = Path(folder) / f"step-{step:08d}"
    try:
        contents = {
            MODEL: dump_tensors(model),
            OPTIM: dump_tensors(optim),
            STATE: dump_json(dict(state)),
        }
        for name, data in contents.items():
            if len(data) > LIMITS[name]:
                raise EncodingError(f"{name} has {len(data)} bytes, the most is {LIMITS[name]}")
    except EncodingError as error:
        raise CheckpointError(
            f"{path} was not written: {error}; save fewer or simpler values"
        ) from error
    contents[MANIFEST] = write_manifest(step, contents)
    needed = sum(map(len, contents.values()))
    partial = temporary(path)
    try:
        try:
            partial.parent.mkdir(parents=True, exist_ok=True)
            partial.mkdir()
            for name, data in contents.items():
                write_new(partial / name, data)
            sync_folder(partial)
            _publish(partial, path)
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    except OSError as error:
        raise CheckpointError(reason(path, needed, error)) from error
    return path


def load_checkpoint(path: Path, *, model: Mapping[str, Tensor] | None = None) -> Checkpoint:
    """Read a checkpoint, and refuse it unless every byte is the one that was written.

    Args:
        path: the folder of the checkpoint.
        model: tensors of the expected names, shapes and types, such as a network's
            ``state_dict()``. A checkpoint of another network is refused before it is built.
    """
    path = Path(path)
    try:
        step, contents = read_verified(path)
        with about(STATE):
            state = parse_json(contents[STATE])
        if model is not None:
            with about(MODEL):
                check_shapes(contents[MODEL], model)
        tensors = {}
        for name in (MODEL, OPTIM):
            with about(name):
                tensors[name] = parse_tensors(contents[name])
    except EncodingError as error:
        raise CheckpointError(
            f"{path} cannot be used: {error}; go back to another checkpoint or start over"
        ) from error
    return Checkpoint(step, tensors[MODEL], tensors[OPTIM], state)


def checkpoints(folder: Path) -> list[Path]:
    """Return the checkpoints that look complete, oldest first, without reading their files."""
    return [path for path in _folders(folder) if (path / MANIFEST).is_file()]


def newest_checkpoint(
    folder: Path,
    *,
    warn: Callable[[str], None],
    model: Mapping[str, Tensor] | None = None,
) -> Checkpoint | None:
    """Return the newest good checkpoint, or None where there is none at all.

    Newer ones that are damaged stay, and each is reported to ``warn``.
    """
    bad = []
    for path in reversed(_folders(folder)):
        try:
            return load_checkpoint(path, model=model)
        except CheckpointError as error:
            bad.append(error)
            warn(str(error))
    if bad:
        raise CheckpointError(
            f"{folder} holds {len(bad)} checkpoints and none can be used, the newest because: "
            f"{bad[0]}"
        )
    return None


def prune(
    folder: Path,
    *,
    keep: int = 2,
    best: int | None = None,
    model: Mapping[str, Tensor] | None = None,
) -> None:
    """Remove old checkpoints once the newest ``keep`` have been read back and are good.

    Damaged ones, and those of a network without the tensors of ``model``, stay and do not count.
    The checkpoint of step ``best`` stays.
    """
    if keep < 1:
        raise ValueError(f"keep must be at least 1, not {keep}")
    good = 0
    for path in reversed(_folders(folder)):
        try:
            if good < keep:
                contents = read_verified(path)[1]
                if model is not None:
                    check_shapes(contents[MODEL], model)
                good += 1
            elif read_manifest(path)[0] != best:
                _remove(path)
        except EncodingError:
            continue
        except OSError as error:
            raise CheckpointError(f"{path} cannot be removed ({error.strerror})") from error


def sweep(folder: Path) -> None:
    """Remove what a killed process left unfinished; no other process may be saving here."""
    folder = Path(folder)
    if not folder.is_dir():
        return
    try:
        for path in folder.glob(".step-*.tmp"):
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
        for path in _folders(folder):
            plain = path.with_name(path.name.partition(".")[0])
            if path == plain:
                continue
            if not plain.exists():
                path.rename(plain)
                continue
            with contextlib.suppress(EncodingError):
                read_verified(plain)
                _remove(path)
        sync_folder(folder)
    except OSError as error:
        raise CheckpointError(
            f"{folder} cannot be tidied ({error.strerror}); make it writable"
        ) from error


def _folders(folder: Path) -> list[Path]:
    """Return all folders with a checkpoint's name, oldest first, each after the one it replaces."""
    folders = []
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        for path in Path(folder).iterdir():
            match = NAME.fullmatch(path.name)
            if match and path.is_dir() and not path.is_symlink():
                folders.append((int(match[1]), match[2] is None, path.name, path))
    return [path for *_, path in sorted(folders)]


def _publish(partial: Path, path: Path) -> None:
    """Rename a complete folder to its final name; the one it replaces stays until then."""
    before = [old for old in _folders(path.parent) if old.name.startswith(f"{path.name}.")]
    if path.is_dir() and not path.is_symlink():
        aside = path.with_name(f"{path.name}.before-{secrets.token_hex(4)}")
        path.rename(aside)
        before.append(aside)
        try:
            partial.rename(path)
        except BaseException:
            aside.rename(path)
            raise
    else:
        partial.rename(path)
    sync_folder(path.parent)
    for old in before:
        _remove(old)


def _remove(path: Path) -> None:
    """Remove a checkpoint so that a kill meanwhile leaves none that looks damaged."""
    renamed = temporary(path)
    path.rename(renamed)
    shutil.rmtree(renamed)
