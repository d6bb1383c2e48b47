"""The scorecard's rows on files, as often as every change is tried: see `reliability`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from reliability import damage, disks, suites
from reliability.rows import ROWS

KILLS_OF_A_PLAIN_SAVE = """
from pathlib import Path
from reliability import kills
from torchcaps.train.checkpoint.encoding import dump_json, dump_tensors
from torchcaps.train.checkpoint.manifest import write_manifest

def save(folder: Path, version: int, size: int) -> None:
    tensors = dump_tensors(kills.content(version, size))
    files = {"model.safetensors": tensors, "optim.safetensors": tensors}
    files["state.json"] = dump_json({"version": version, "size": size})
    files["manifest.json"] = write_manifest(version // 2, files)
    path = folder / f"step-{version // 2:08d}"
    path.mkdir(parents=True, exist_ok=True)
    for name, data in files.items():
        (path / name).write_bytes(data)

print(sum(1 for failure in kills.trials(0, 60, saver=save) if failure))
"""


def python(*arguments: str) -> str:
    """What a process of its own prints; a test process must not be forked."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, *arguments]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def rows(*names: str) -> None:
    """Try rows of the scorecard in a process of their own."""
    chosen = (part for name in names for part in ("--only", name))
    said = python("-m", "reliability", "--pr", *chosen)
    assert said.splitlines() == [f"{name}: {ROWS[name].pr} seen, 0 failures" for name in names]


def test_a_kill_at_any_moment_of_a_save_loses_nothing() -> None:
    rows("kill-save")


def test_the_kills_find_what_a_save_in_place_loses() -> None:
    assert int(python("-c", KILLS_OF_A_PLAIN_SAVE)) >= 5


def test_every_damage_to_a_checkpoint_is_found_and_the_one_before_is_used() -> None:
    seen = list(damage.trials(0, ROWS["damage"].pr))
    assert len(seen) == ROWS["damage"].pr
    assert not list(filter(None, seen))


def test_a_full_disk_keeps_what_was_there_and_says_what_is_missing() -> None:
    seen = list(disks.trials(0, ROWS["disk-full"].pr))
    assert len(seen) == ROWS["disk-full"].pr
    assert not list(filter(None, seen))


@pytest.mark.parametrize("kind", disks.KINDS)
def test_a_limit_of_the_system_is_told_like_a_full_disk(kind: str, tmp_path: Path) -> None:
    import random

    with disks.limited_files() as fill:
        disks.KINDS[kind](tmp_path, fill, random.Random(0))


@pytest.mark.parametrize("name", suites.LOADERS)
def test_mutated_checkpoint_files_are_read_or_refused(name: str) -> None:
    read, refused = suites.fuzz(name, 20_000, seed=0)
    assert read + refused == 20_000
    assert read > 100
    assert refused > 1000
