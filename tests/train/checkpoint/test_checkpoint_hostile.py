"""Checkpoints made or changed by a hostile hand are one sentence and nothing more."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from helpers.runs.checkpoints import save
from torchcaps.train.checkpoint.files import CheckpointError, load_checkpoint


def _resign(path: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Change a manifest and make its checksum fit again, as a hostile hand would."""
    from torchcaps.train.checkpoint import manifest as manifests

    manifest = json.loads((path / "manifest.json").read_text())
    change(manifest)
    (path / "manifest.json").write_bytes(manifests._signed(manifest))


def _escape(manifest: dict[str, Any]) -> None:
    manifest["files"]["../outside"] = manifest["files"].pop("state.json")


def _unsize(manifest: dict[str, Any]) -> None:
    manifest["files"]["state.json"]["size"] = None


def _number(manifest: dict[str, Any]) -> None:
    manifest["files"]["state.json"] = 1


def _link(path: Path) -> None:
    (path / "state.json").rename(path.parent / "elsewhere")
    (path / "state.json").symlink_to(path.parent / "elsewhere")


def _grow(path: Path) -> None:
    with (path / "manifest.json").open("ab") as file:
        file.truncate(1 << 40)


def _fifo(path: Path) -> None:
    (path / "state.json").unlink()
    os.mkfifo(path / "state.json")


def _rewrite(name: str, data: bytes) -> Callable[[Path], None]:
    """Replace a file and correct the manifest, so that only the content is wrong."""
    from hashlib import sha256

    def damage(path: Path) -> None:
        (path / name).write_bytes(data)
        entry = {"sha256": sha256(data).hexdigest(), "size": len(data)}
        _resign(path, lambda manifest: manifest["files"].update({name: entry}))

    return damage


HEADER = b'{"w":{"dtype":"F32","shape":[9],"data_offsets":[0,4]}}'
HOSTILE: list[tuple[str, Callable[[Path], object]]] = [
    ("does not name the three files", lambda path: _resign(path, _escape)),
    ("does not name the three files", lambda path: _resign(path, lambda m: m.update(step="1"))),
    (
        "size and hash of",
        lambda path: _resign(path, _number),
    ),
    ("belongs to step 7", lambda path: _resign(path, lambda m: m.update(step=7))),
    ("has format 2", lambda path: _resign(path, lambda m: m.update(format=2))),
    ("changed after", lambda path: _resign(path, lambda m: m.update(extra=1))),
    (
        "size and hash of state.json",
        lambda path: _resign(path, lambda m: m["files"]["state.json"].update(size=None)),
    ),
    ("state.json is not a regular file", _link),
    ("state.json is not a regular file", _fifo),
    ("manifest.json has 1099511627776 bytes", _grow),
    ("manifest.json is missing", lambda path: (path / "manifest.json").unlink()),
    ("optim.safetensors is missing", lambda path: (path / "optim.safetensors").unlink()),
    ("not JSON", lambda path: (path / "manifest.json").write_bytes(b"\xff")),
    ("not JSON", lambda path: (path / "manifest.json").write_bytes(b"[" * 60_000)),
    ("not a JSON object", lambda path: (path / "manifest.json").write_bytes(b"[]")),
    ("state.json: it holds NaN", _rewrite("state.json", b'{"a": NaN}')),
    ("is inf, which", _rewrite("state.json", b'{"a": 1e999}')),
    ("one key twice", _rewrite("state.json", b'{"a": 1, "a": 2}')),
    ("more than 32 deep", _rewrite("state.json", b'{"a":' * 40 + b"1" + b"}" * 40)),
    ("not JSON", _rewrite("state.json", b'{"a": ' + b"9" * 5000 + b"}")),
    ("model.safetensors: it is no whole", _rewrite("model.safetensors", b"")),
    ("model.safetensors: it is no whole", _rewrite("model.safetensors", b"\xff" * 100)),
    ("cannot be read", _rewrite("model.safetensors", len(HEADER).to_bytes(8, "little") + HEADER)),
    (
        "does not describe 'w'",
        _rewrite("optim.safetensors", (7).to_bytes(8, "little") + b'{"w":1}'),
    ),
]


@pytest.mark.parametrize(("sentence", "damage"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_checkpoint_is_one_sentence(
    tmp_path: Path, sentence: str, damage: Callable[[Path], object]
) -> None:
    path = save(tmp_path, 1)
    damage(path)
    with pytest.raises(CheckpointError, match=sentence) as caught:
        load_checkpoint(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < len(str(path)) + 300
