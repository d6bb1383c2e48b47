"""What users install: the size of the files, what a wheel records, and tests of an sdist."""

import json
import os
import subprocess
import sys
import tarfile
from pathlib import Path
from shutil import copyfile

import pytest

import torchcaps as tc
from helpers.installed import ROOT, build, install, run_away

MOST_BYTES = 50_000_000

pytestmark = pytest.mark.slow  # make test plays the three uses from the source tree

QUICK_TESTS = ("test_import.py", "test_release.py", "test_saved_files.py", "test_storage.py")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def commands(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(wheel, tmp_path_factory.mktemp("installed") / "environment")


def test_a_wheel_is_not_too_large(wheel: Path) -> None:
    assert 1_000_000 < wheel.stat().st_size < MOST_BYTES


def test_a_wheel_records_its_version_until_somebody_edits_it(
    commands: Path, tmp_path: Path
) -> None:
    quick = ["--set", "limit=64", "--set", "test_limit=50", "--no-tensorboard", "--json"]
    train = [commands / "torchcaps", "train", "demo/strokes-pairwise", *quick]
    row = json.loads(run_away(train, tmp_path))
    assert (row["commit"], row["dirty"]) == (tc.__version__, False)
    code = "import torchcaps; print(torchcaps.__file__)"
    package = Path(run_away([commands / "python", "-c", code], tmp_path).strip()).parent
    assert package.is_relative_to(commands.parent)
    edited = package / "votes.py"
    before = edited.read_text()
    try:
        edited.write_text(before + "\n")
        facts = json.loads(run_away([commands / "torchcaps", "env", "--json"], tmp_path))
    finally:
        edited.write_text(before)
    assert facts["commit"] == f"{tc.__version__} with changes"


def test_an_unchanged_run_of_a_wheel_is_among_the_results(commands: Path, tmp_path: Path) -> None:
    command = [commands / "torchcaps", "train", "demo/strokes-pairwise", "--no-tensorboard"]
    run_away(command, tmp_path)
    (summary,) = json.loads(run_away([commands / "torchcaps", "results", "--json"], tmp_path))
    assert summary["recipe"] == "demo/strokes-pairwise"
    assert summary["mean"] > 98


def test_three_uses_play_from_a_wheel(commands: Path, tmp_path: Path) -> None:
    for name in ("three_uses.py", "my_recipe.py"):
        copyfile(ROOT / "tests/helpers" / name, tmp_path / name)
    played = run_away([commands / "python", "three_uses.py", tmp_path], tmp_path)
    assert played.splitlines()[-1] == f"all three uses work with {commands.parent}"


def test_shipping_never_writes_into_an_installed_package(commands: Path, tmp_path: Path) -> None:
    quick = ["--set", "limit=64", "--set", "test_limit=50", "--no-tensorboard"]
    run_away([commands / "torchcaps", "train", "demo/strokes-pairwise", *quick], tmp_path)
    weights = sorted(commands.parent.rglob("*.safetensors"))
    ship = [str(commands / "torchcaps"), "ship", "demo/strokes-pairwise"]
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    done = subprocess.run(ship, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "--into" in done.stderr
    assert sorted(commands.parent.rglob("*.safetensors")) == weights
    assert len(weights) >= 8


def test_the_tests_of_an_sdist_run(tmp_path: Path) -> None:
    (tmp_path / "built").mkdir()
    with tarfile.open(build("sdist", tmp_path / "built")) as archive:
        archive.extractall(tmp_path, filter="data")
    (tree,) = tmp_path.glob("torchcaps-*")
    collected = run_away([sys.executable, "-m", "pytest", "-q", "--collect-only"], tree)
    here = run_away([sys.executable, "-m", "pytest", "-q", "--collect-only", "tests"], ROOT)
    assert collected.splitlines()[-1].split()[0] == here.splitlines()[-1].split()[0]
    tests = [f"tests/{name}" for name in QUICK_TESTS]
    run_away([sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *tests], tree)
