"""The record of finished runs: rows that stay whole, tables that are in step."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchcaps.results import (
    ACCURACY,
    COLUMNS,
    Row,
    append_row,
    markdown,
    read_rows,
    summarise,
    text,
    write_readme,
)

ROOT = Path(__file__).parents[1]


def row(recipe: str = "sabour2017/mnist", seed: int = 0, test: float = 99.7, **more: Any) -> Row:
    given: dict[str, Any] = {
        "validation": 99.5,
        "paper": 99.75,
        "parameters": 8_215_728,
        "epochs": 640,
        "seconds": 300.0,
        "images_per_s": 120_000.0,
        "peak_mib": 900.0,
        "modified": False,
        "dirty": False,
        "commit": "abc1234",
        "gpu": "NVIDIA H200",
        "torch": "2.11.0",
        "date": "2026-12-01",
        "weights_sha256": "0" * 64,
        "command": "torchcaps train sabour2017/mnist",
    }
    return Row(recipe=recipe, seed=seed, test=test, **{**given, **more})


def test_the_columns_are_those_agreed() -> None:
    assert (
        ",".join(COLUMNS) == "recipe,seed,test,validation,paper,parameters,epochs,seconds,"
        "images_per_s,peak_mib,modified,dirty,commit,gpu,torch,date,weights_sha256,command"
    )


def test_rows_come_back_as_they_went_in_and_nothing_is_rewritten(tmp_path: Path) -> None:
    path = tmp_path / "results" / "accuracy.csv"
    awkward = 'torchcaps train "a, b" --set \'x="1"\''
    rows = [row(), row(seed=1, validation=None, paper=None, peak_mib=None, command=awkward)]
    append_row(path, rows[0])
    first = path.read_bytes()
    append_row(path, rows[1])
    assert path.read_bytes().startswith(first)
    assert read_rows(path) == rows


def test_line_breaks_and_bytes_that_are_no_text_stay_inside_their_line(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    append_row(path, row(command="a\nb\r\nc\udcff"))
    append_row(path, row(seed=1))
    assert len(path.read_text().splitlines()) == 3
    assert [r.command for r in read_rows(path)] == ["a b c?", row().command]


def test_numbers_are_kept_to_four_places(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    append_row(path, row(test=99.123456789, seconds=0.00001))
    (back,) = read_rows(path)
    assert back.test == 99.1235
    assert back.seconds == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"test": 100.5}, "test must be between 0 and 100 percent, not 100.5"),
        ({"test": float("nan")}, "test must be between 0 and 100 percent, not nan"),
        ({"validation": -1.0}, "validation must be between"),
        ({"seconds": float("inf")}, "seconds must be a number of at least 0, not inf"),
        ({"seed": -1}, "seed must be a number of at least 0, not -1"),
        ({"recipe": " "}, "a row must name its recipe"),
    ],
)
def test_a_row_that_cannot_be_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        row(**changes)


def test_broken_files_get_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    with pytest.raises(ValueError, match=r"cannot read .*: No such file"):
        read_rows(path)
    append_row(path, row())
    good = path.read_bytes()
    header, line = good.splitlines(keepends=True)
    for content, message in (
        (b"", "must begin with the known columns"),
        (b"case,device\n1,2\n", "must begin with the known columns"),
        (header + line[:40] + b"\n", r"row 2 has \d of 18 fields; remove it"),
        (header + line + line.replace(b"99.7,", b"good,"), "row 3: test must be a number, not"),
        (header + line.replace(b"no,no", b"no,perhaps"), "dirty must be yes or no"),
        (header + line.replace(b"99.7,", b"999,"), "row 2: test must be between 0 and 100"),
        (header + b"\xff" + line, "is not a table of results"),
        (header + b'"' + line, "is not a table of results"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=message) as caught:
            read_rows(path)
        assert "\n" not in str(caught.value)
    path.write_bytes(b"case,device\n1,2\n")
    with pytest.raises(ValueError, match="must begin with the known columns"):
        append_row(path, row())
    assert path.read_bytes() == b"case,device\n1,2\n"


@given(st.binary(max_size=300), st.integers(0, 400))
@settings(deadline=None)
def test_any_bytes_give_rows_or_one_sentence(
    tmp_path_factory: pytest.TempPathFactory, junk: bytes, where: int
) -> None:
    path = tmp_path_factory.mktemp("rows") / "accuracy.csv"
    append_row(path, row())
    good = path.read_bytes()
    path.write_bytes(good[:where] + junk + good[where + len(junk) :])
    said = str(path)
    try:
        rows = read_rows(path)
    except ValueError as error:
        rows, said = [], str(error)
    assert str(path) in said
    assert all(each.recipe and 0 <= each.test <= 100 for each in rows)


def test_an_unfinished_line_does_not_swallow_the_next_row(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    append_row(path, row())
    whole = path.read_bytes()
    path.write_bytes(whole + b"sabour2017/mn")
    append_row(path, row(seed=1))
    lines = path.read_bytes().splitlines(keepends=True)
    assert b"".join(lines[:2]) == whole
    assert lines[2] == b"sabour2017/mn\n"
    path.write_bytes(b"".join(lines[:2] + lines[3:]))
    assert [r.seed for r in read_rows(path)] == [0, 1]


ADD = """
import dataclasses, resource, sys
from torchcaps.results import append_row, read_rows
path, first, count, limit = sys.argv[1], *map(int, sys.argv[2:])
(row,) = read_rows(path)[:1]
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
for seed in range(first, first + count):
    append_row(path, dataclasses.replace(row, seed=seed))
"""


def add(path: Path, first: int, count: int, limit: int = 0) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ADD, str(path), str(first), str(count), str(limit)]
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)


def test_processes_that_finish_together_lose_no_row(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    append_row(path, row())
    started = [add(path, first, 20) for first in (100, 200, 300)]
    for process in started:
        _, errors = process.communicate()
        assert process.returncode == 0, errors
    seeds = sorted(r.seed for r in read_rows(path))
    assert seeds == [0, *range(100, 120), *range(200, 220), *range(300, 320)]


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "accuracy.csv"
    append_row(path, row())
    before = path.read_bytes()
    process = add(path, 1, 1, limit=len(before) + 50)
    _, errors = process.communicate()
    assert process.returncode == 1
    assert "bytes and" in errors.splitlines()[-1]
    assert str(path) in errors.splitlines()[-1]
    assert path.read_bytes() == before


def test_mean_spread_and_n_are_over_seeds_of_the_unchanged_recipe() -> None:
    rows = [
        row(seed=0, test=99.0),
        row(seed=0, test=99.6),
        row(seed=1, test=99.8),
        row(seed=2, test=50.0, modified=True),
        row(seed=3, test=50.0, dirty=True),
        row("demo/strokes-em", test=95.0, paper=None, gpu="a CPU"),
        row("another/set", test=1.0),
        row("tsai2020/cifar10-resnet", test=95.0, paper=95.14),
    ]
    found = summarise(rows)
    assert [s.recipe for s in found] == [
        "sabour2017/mnist",
        "tsai2020/cifar10-resnet",
        "demo/strokes-em",
        "another/set",
    ]
    mnist = found[0]
    assert mnist.n == 2
    assert mnist.mean == pytest.approx(99.7)
    assert mnist.spread == pytest.approx(0.02**0.5)
    assert found[1].spread is None
    assert summarise([row(modified=True)]) == []


def test_the_tables_show_ours_beside_the_papers() -> None:
    rows = [row(test=99.6), row(seed=1, test=99.8), row("demo/strokes-em", paper=None)]
    assert markdown(rows) == (
        "### Sabour 2017\n"
        "\n"
        "| recipe | ours | seeds | paper | parameters | epochs | seconds | device |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| sabour2017/mnist | 99.70 ± 0.14 | 2 | 99.75 | 8,215,728 | 640 | 300 | NVIDIA H200 |\n"
        "\n"
        "### Demo\n"
        "\n"
        "| recipe | ours | seeds | paper | parameters | epochs | seconds | device |\n"
        "|---|---|---|---|---|---|---|---|\n"
        "| demo/strokes-em | 99.70 | 1 | - | 8,215,728 | 640 | 300 | NVIDIA H200 |\n"
    )
    shown = text(rows).splitlines()
    assert shown[0] == "Sabour 2017"
    assert " ".join(shown[2].split()) == (
        "sabour2017/mnist 99.70 ± 0.14 2 99.75 8,215,728 640 300 NVIDIA H200"
    )
    assert shown[1].index("paper") == shown[2].index("99.75")
    assert text([]) == markdown([]) == "No finished run is recorded yet.\n"


def test_a_readme_is_written_between_its_marks_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    assert write_readme(readme, [row()])
    written = readme.read_text()
    assert written == f"before\n<!-- results -->\n{markdown([row()])}<!-- /results -->\nafter\n"
    assert not write_readme(readme, [row()])
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="has no <!-- results -->"):
        write_readme(readme, [])
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_the_readme_is_in_step_with_the_record(tmp_path: Path) -> None:
    copy = tmp_path / "README.md"
    copy.write_text((ROOT / "README.md").read_text())
    assert not write_readme(copy, read_rows(ROOT / ACCURACY))
