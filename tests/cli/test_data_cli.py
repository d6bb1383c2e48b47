"""`torchcaps data`."""

import json
from pathlib import Path

import numpy as np
import pytest
from PIL import Image
from typer.testing import CliRunner

from torchcaps.cli import app
from torchcaps.data import SETS

RUN = CliRunner()


def test_list_names_every_set() -> None:
    done = RUN.invoke(app, ["data", "list"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(SETS)
    entries = json.loads(RUN.invoke(app, ["data", "list", "--json"]).stdout)
    assert {entry["name"]: entry["counts"] for entry in entries} == {
        name: entry.counts for name, entry in SETS.items()
    }


@pytest.mark.parametrize("name", SETS)
def test_info_describes_every_set(name: str, tmp_path: Path) -> None:
    done = RUN.invoke(app, ["data", "info", name, "--root", str(tmp_path)])
    assert done.exit_code == 0
    assert f"{SETS[name].counts['train']:,}" in done.stdout
    assert ("files missing" in done.stdout) == (SETS[name].source != "built in")


@pytest.mark.parametrize("name", ["strokes", "strokes_overlapping"])
def test_show_writes_a_contact_sheet(name: str, tmp_path: Path) -> None:
    out = tmp_path / "sheet.png"
    done = RUN.invoke(app, ["data", "show", name, "--out", str(out), "--count", "40"])
    assert done.exit_code == 0, done.output
    size = SETS[name].shape[1]
    with Image.open(out) as sheet:
        assert sheet.size == (2 * (20 * (size + 2) + 2), 2 * (2 * (size + 2) + 2))
        assert np.asarray(sheet).std() > 20


def test_show_takes_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine" / "a").mkdir(parents=True)
    Image.new("RGB", (9, 7), (200, 0, 0)).save(tmp_path / "mine" / "a" / "1.png")
    out = tmp_path / "sheet.png"
    done = RUN.invoke(app, ["data", "show", str(tmp_path / "mine"), "--out", str(out)])
    assert done.exit_code == 0, done.output
    with Image.open(out) as sheet:
        assert sheet.mode == "RGB"


def test_a_name_comes_before_a_folder_and_a_folder_is_described(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for folder in ("strokes", "mine"):
        (tmp_path / folder / "rose").mkdir(parents=True)
        Image.new("RGB", (9, 7), (200, 0, 0)).save(tmp_path / folder / "rose" / "1.png")
    for name, mode in (("strokes", "L"), ("./strokes", "RGB"), ("mine", "RGB")):
        done = RUN.invoke(app, ["data", "show", name, "--out", "sheet.png", "--count", "4"])
        assert done.exit_code == 0, done.output
        with Image.open("sheet.png") as sheet:
            assert sheet.mode == mode
    assert "vector strokes" in RUN.invoke(app, ["data", "info", "strokes"]).stdout
    for name in ("./strokes", "mine"):
        done = RUN.invoke(app, ["data", "info", name])
        assert done.exit_code == 0, done.output
        assert "3x7x9" in done.stdout
        assert "classes rose" in done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["info", "mnits"],
        ["show", "mnits"],
        ["show", "strokes", "--split", "dev"],
        ["show", "./nowhere"],
        ["info", "./nowhere"],
        ["show", "strokes", "--out", "nowhere/at/all.png"],
        ["show", "strokes", "--out", "sheet.jpg"],
    ],
)
def test_errors_are_one_sentence_and_status_1(arguments: list[str]) -> None:
    done = RUN.invoke(app, ["data", *arguments])
    assert done.exit_code == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "Traceback" not in done.output
