"""The scorecard's rows on files, as often as every change is tried: see `reliability`."""

from pathlib import Path

import pytest

from helpers.processes import run_python
from reliability.rows import ROWS
from reliability.scorecard import check_rows
from reliability.trials import damage, disks, suites

KILLS_OF_A_PLAIN_SAVE = """
from pathlib import Path
from reliability.trials import kills
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


def test_a_kill_at_any_moment_of_a_save_loses_nothing() -> None:
    check_rows("kill-save")


def test_the_kills_find_what_a_save_in_place_loses() -> None:
    assert int(run_python("-c", KILLS_OF_A_PLAIN_SAVE)) >= 5


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
