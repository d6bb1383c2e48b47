"""The record of finished runs: rows that stay whole, tables that are in step."""

import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from hypothesis import given, settings, strategies as st

from helpers.runs.rows import row
from torchcaps.results import (
    AccuracyRow,
    CurvePoint,
    append_row,
    check_record,
    curve_path,
    keep_curve,
    markdown,
    merge,
    read_rows,
    summarize,
    write_curve,
    write_page,
    write_readme,
    write_runs,
)

ROOT = Path(__file__).parents[2]


def test_the_columns_are_those_agreed() -> None:
    assert (
        ",".join(AccuracyRow.columns()) == "recipe,seed,test,validation,paper,parameters,epochs,"
        "recipe_epochs,changes,seconds,images_per_s,peak_mib,dirty,commit,gpu,torch,date,"
        "weights_sha256,command"
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
        (header + line[:40] + b"\n", r"row 2 has \d of 19 fields; remove it"),
        (header + line + line.replace(b"99.7,", b"good,"), "row 3: test must be a number, not"),
        (header + line.replace(b",no,", b",perhaps,"), "dirty must be yes or no"),
        (header + line.replace(b"640,,", b"640,[],"), "changes must be a JSON object of settings"),
        (header + line.replace(b"640,,", b"640,{1},"), "changes must be a JSON object of settings"),
        (header + line.replace(b"99.7,", b","), "row 2: test must be a number, not ''"),
        (header.replace(b"seed", b"test"), "must begin with the known columns"),
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
    assert all(each.recipe and 0 <= (each.test or 0) <= 100 for each in rows)


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
        row(seed=2, test=50.0, changes={"lr": 0.1}),
        row(seed=3, test=50.0, dirty=True),
        row("demo/strokes-em", test=95.0, paper=None, gpu="a CPU"),
        row("another/set", test=1.0),
        row("tsai2020/cifar10-resnet", test=95.0, paper=95.14),
    ]
    found = summarize(rows)
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
    assert summarize([row(epochs=3, changes={"lr": 0.1})]) == []


def test_runs_of_fewer_epochs_say_so_and_stay_apart() -> None:
    short: dict[str, Any] = {"epochs": 60, "recipe_epochs": 640}
    rows = [row(test=99.7), row(seed=1, test=99.0, **short), row(seed=2, test=99.2, **short)]
    whole, part = summarize(rows)
    assert (whole.n, whole.mean, whole.of_epochs) == (1, 99.7, None)
    assert (part.n, part.best, part.epochs, part.of_epochs) == (2, 99.2, 60, 640)
    assert "| 99.10 ± 0.14 | 99.20 | 2 | 60 of 640 |" in markdown(rows)
    longer = [row(seed=seed, test=99.8) for seed in range(2)]
    assert "of 640" not in markdown([*rows, *longer]), "shorter, and of no more seeds"


def test_one_page_shows_the_headlines_and_one_every_run(tmp_path: Path) -> None:
    page = tmp_path / "results.md"
    page.write_text("mine\n<!-- results -->\n<!-- /results -->\n")
    rows = [row(), row(seed=1, epochs=60, changes={"lr": 0.1}, dirty=True)]
    weights = {"sabour2017/mnist": {"test": 99.7, "seed": 0, "store": "int8", "bytes": 8_558_720}}
    assert write_page(page, rows, weights)
    written = page.read_text()
    assert written.startswith("mine\n<!-- results -->\nNo network is recorded both")
    assert "| sabour2017/mnist | 99.70 | 0 | int8 | 8,558,720 |\n<!-- /results -->" in written
    assert not write_page(page, rows, weights)
    assert write_runs(page, rows)
    written = page.read_text()
    assert written.startswith(f"mine\n<!-- results -->\n{markdown(rows)}\n### Every run\n")
    assert "| 60 of 640 | 300 | 900 | lr=0.1, uncommitted code | abc1234 |" in written
    assert not write_runs(page, rows)


def test_a_curve_is_short_and_keeps_its_ends_and_its_best(tmp_path: Path) -> None:
    path = curve_path(tmp_path / "accuracy.csv", row(seed=3))
    assert path == tmp_path / "curves" / "sabour2017-mnist-seed3.csv"
    epochs = [
        CurvePoint(epoch=n, step=10 * n, lr=1 / 3, loss=2 / n, validation=50.0, seconds=n)
        for n in range(1, 1000)
    ]
    epochs[776] = replace(epochs[776], validation=99.4444)
    write_curve(path, epochs)
    lines = path.read_text().splitlines()
    assert len(lines) <= 1 + 200
    assert lines[0] == "epoch,step,lr,loss,train,validation,seconds"
    assert lines[1] == "1,10,0.3333,2,,50.000,1.0"
    assert "777,7770,0.3333,0.002574,,99.444,777.0" in lines
    assert lines[-1].startswith("999,")
    write_curve(path, epochs[:200])
    assert len(path.read_text().splitlines()) == 1 + 200
    epochs[555] = replace(epochs[555], test=99.5)
    write_curve(path, epochs)
    lines = path.read_text().splitlines()
    assert len(lines) <= 1 + 200
    assert lines[0] == "epoch,step,lr,loss,train,validation,seconds,test"
    assert "556,5560,0.3333,0.0035971,,50.000,556.0,99.500" in lines
    assert any(line.startswith("777,") for line in lines)
    write_curve(path, [CurvePoint(epoch=1, step=5)])
    assert path.read_text().splitlines()[1:] == ["1,5,,,,,"]


def test_runs_of_other_settings_have_curves_of_their_own(tmp_path: Path) -> None:
    short = row(epochs=60, changes={"lr": 0.1})
    assert curve_path("r/a.csv", short).name == "sabour2017-mnist-seed0-epochs-60-of-640-lr-0.1.csv"


def test_a_record_from_elsewhere_is_added_once_with_its_curves(tmp_path: Path) -> None:
    here, there = tmp_path / "accuracy.csv", tmp_path / "there" / "accuracy.csv"
    append_row(here, row())
    for each in (row(), row(seed=1, date="2026-12-02")):
        append_row(there, each)
        write_curve(curve_path(there, each), [CurvePoint(epoch=1, step=1)])
    assert merge(here, there) == 1
    assert merge(here, there) == 0
    assert [each.seed for each in read_rows(here)] == [0, 1]
    curves = sorted(path.name for path in (tmp_path / "curves").iterdir())
    assert curves == ["sabour2017-mnist-seed0.csv", "sabour2017-mnist-seed1.csv"]


def test_the_tables_show_ours_beside_the_papers() -> None:
    rows = [row(test=99.6), row(seed=1, test=99.8), row("demo/strokes-em", paper=None)]
    assert markdown(rows) == (
        "### Sabour 2017\n"
        "\n"
        "| recipe | paper | ours | best | seeds | epochs | seconds | images/s | device |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| sabour2017/mnist | 99.75 | 99.70 ± 0.14 | 99.80 | 2 | 640 | 300 | 120,000 | H200 |\n"
        "\n"
        "### Demo\n"
        "\n"
        "| recipe | paper | ours | best | seeds | epochs | seconds | images/s | device |\n"
        "|---|---|---|---|---|---|---|---|---|\n"
        "| demo/strokes-em | - | 99.70 | 99.70 | 1 | 640 | 300 | 120,000 | H200 |\n"
    )
    assert markdown([]) == "No finished run is recorded yet.\n"


def test_a_readme_is_written_between_its_marks_alone(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("before\n<!-- results -->\nold\n<!-- /results -->\nafter\n")
    rows = [row(), row("sabour2017/mnist-modern"), row("choi2019/mnist")]
    assert write_readme(readme, rows)
    assert readme.read_text() == (
        "before\n<!-- results -->\n"
        "| network | parameters | paper | ours, as published | ours, modern training |\n"
        "|---|---|---|---|---|\n"
        "| sabour2017/mnist | 8,215,728 | 99.75 | 99.70 (n = 1) | 99.70 (n = 1) |\n"
        "<!-- /results -->\nafter\n"
    )
    assert not write_readme(readme, rows)
    readme.write_text("no marks")
    with pytest.raises(ValueError, match="has no <!-- results -->"):
        write_readme(readme, [])
    assert [path.name for path in tmp_path.iterdir()] == ["README.md"]


def test_of_two_runs_of_a_seed_the_later_counts_in_whatever_order_they_come(tmp_path: Path) -> None:
    old = row(test=90.0, date="2026-01-01", weights_sha256="1" * 64)
    new = row(test=91.0, date="2026-02-01", weights_sha256="2" * 64)
    assert [one.mean for one in summarize([new, old])] == [91.0]
    mine, theirs = tmp_path / "mine.csv", tmp_path / "theirs" / "accuracy.csv"
    for record, one, loss in ((mine, new, 1.0), (theirs, old, 2.0)):
        append_row(record, one)
        keep_curve(record, one, [CurvePoint(epoch=1, step=1, loss=loss)])
    curve = curve_path(mine, new)
    before = curve.read_bytes()
    assert merge(mine, theirs) == 1
    keep_curve(mine, old, [CurvePoint(epoch=1, step=1, loss=2.0)])
    assert curve.read_bytes() == before
    assert merge(theirs, mine) == 1
    assert curve_path(theirs, old).read_bytes() == before


def test_long_changes_have_curves_of_their_own() -> None:
    for letter in ("x", "图"):  # a file's name may have 255 bytes
        names = {curve_path("", row(changes={letter * 90: n})).name for n in range(2)}
        assert len(names) == 2
        assert max(len(name.encode()) for name in names) < 150


def test_a_bar_in_a_change_does_not_divide_a_table(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- results -->\n<!-- /results -->\n")
    write_runs(page, [row(changes={"data": "/a|b"})])
    (line,) = (line for line in page.read_text().splitlines() if "data=" in line)
    assert r"data=/a\|b" in line


def test_a_run_that_many_processes_add_is_there_once(tmp_path: Path) -> None:
    record, other = tmp_path / "accuracy.csv", tmp_path / "other.csv"
    for seed in range(5):
        append_row(other, row(seed=seed, weights_sha256=str(seed) * 64))
    code = "import sys; from torchcaps.results import merge; merge(*sys.argv[1:])"
    words = [sys.executable, "-c", code, str(record), str(other)]
    running = [subprocess.Popen(words) for _ in range(4)]
    assert [process.wait(60) for process in running] == [0] * 4
    assert sorted(one.seed for one in read_rows(record)) == list(range(5))


def test_a_record_that_cannot_be_written_gets_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for place in (tmp_path / "file" / "accuracy.csv", tmp_path):
        with pytest.raises(OSError, match=r"cannot be added to .* name another file"):
            append_row(place, row())


def test_a_lock_that_cannot_be_had_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torchcaps.results.csv_file.LOCK_TIMEOUT_S", 0.1)
    held = FileLock(tmp_path / ".accuracy.csv.lock")
    with held, pytest.raises(OSError, match=r"added to \(The file lock .* --results"):
        append_row(tmp_path / "accuracy.csv", row())


@pytest.mark.skipif(not Path("/proc").is_dir(), reason="only Linux has /proc")
def test_a_folder_that_takes_no_files_is_refused_before_the_work(tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(ValueError, match=r"/proc is not a writable folder\); name another file"):
        check_record("/proc/record.csv")
    assert time.monotonic() - started < 5
    check_record(tmp_path / "new" / "record.csv")
    assert [*tmp_path.iterdir()] == []
