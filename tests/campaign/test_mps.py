"""NVIDIA MPS: who gets its environment, and that its daemon quits however the campaign ends."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.commands import invoke, refused
from helpers.registry import copy_recipe, restored_zoo
from torchcaps.campaign import mps_daemon
from torchcaps.errors import UsageError

FAKE = """#!/bin/sh
case "$1" in
-d) line="start $CUDA_MPS_PIPE_DIRECTORY $CUDA_MPS_LOG_DIRECTORY $CUDA_VISIBLE_DEVICES" ;;
*) line="$(cat) $CUDA_MPS_PIPE_DIRECTORY" ;;
esac
echo "$line" >> {calls}
"""
PIPE, LOG = "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
HOLD = "from torchcaps.campaign import mps_daemon\nwith mps_daemon(): print(flush=True); input()\n"
REPORT = """
import os

with open({path!r}, "a") as file:
    file.write(os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "none") + "\\n")
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], Path]:
    """Return a function that puts a script on the PATH, and returns the file of its calls."""

    def write(script: str) -> Path:
        folder = tmp_path / "programs"
        folder.mkdir()
        program = folder / "nvidia-cuda-mps-control"
        program.write_text(script.format(calls=tmp_path / "calls"))
        program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
        return tmp_path / "calls"

    return write


def test_the_daemon_has_its_own_folders_and_quits(
    install: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = install(FAKE)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    with mps_daemon() as environment:
        assert set(environment) == {PIPE, LOG}
        assert all(Path(folder).is_dir() for folder in environment.values())
        assert PIPE not in os.environ
        pipe, log = environment[PIPE], environment[LOG]
        assert calls.read_text().splitlines() == [f"start {pipe} {log} "]
    assert calls.read_text().splitlines()[1:] == [f"quit {pipe}"]
    assert not Path(pipe).parent.exists()


def test_the_daemon_quits_after_an_error(install: Callable[[str], Path]) -> None:
    calls = install(FAKE)
    with pytest.raises(KeyError), mps_daemon():
        raise KeyError
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["start", "quit"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_daemon_quits_when_its_process_is_killed(
    number: signal.Signals, install: Callable[[str], Path]
) -> None:
    calls = install(FAKE)
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"\n"
    process.send_signal(number)
    process.communicate()
    end = time.monotonic() + 20
    while "quit" not in calls.read_text() and time.monotonic() < end:
        time.sleep(0.05)
    assert [line.split()[0] for line in calls.read_text().splitlines()] == ["start", "quit"]


def test_without_the_option_nothing_starts(install: Callable[[str], Path]) -> None:
    calls = install(FAKE)
    with mps_daemon(wanted=False) as environment:
        assert environment == {}
    assert not calls.exists()


def test_a_missing_program_gets_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    path = tmp_path / "list.txt"
    path.write_text("demo/strokes-dynamic limit=64\n")
    message = refused("campaign", path, "--device", "cpu", "--mps")
    assert "--mps needs the program nvidia-cuda-mps-control" in message
    assert "not on the PATH" in message


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("#!/bin/sh\n[ $# = 0 ] && exit\necho A daemon is running >&2\nexit 1\n", "A daemon is"),
        ("#!/bin/sh\n[ $# = 0 ] && exit\nexit 3\n", "code 3"),
    ],
)
def test_a_daemon_that_does_not_start_gets_one_sentence(
    script: str, reason: str, install: Callable[[str], Path]
) -> None:
    install(script)
    message = rf"did not start \({reason}.*\): leave out --mps"
    with pytest.raises(UsageError, match=message), mps_daemon():
        pytest.fail("the daemon did not start")


def test_training_and_measuring_processes_get_the_environment(
    tmp_path: Path, install: Callable[[str], Path]
) -> None:
    calls, seen = install(FAKE), tmp_path / "seen"
    own = copy_recipe(tmp_path, more=REPORT.format(path=str(seen)))
    words = ["compare", "smoke", "--head", "dynamic", "--routing", f"{own}:MeanRouting"]
    words += ["--out", str(tmp_path / "runs"), "--results", str(tmp_path / "rows.csv")]
    with restored_zoo():
        result = invoke(*words, "--device", "cpu", "--mps")
    assert result.exit_code == 0, result.output
    start, quit_ = (line.split() for line in calls.read_text().splitlines())
    assert (start[0], quit_[0]) == ("start", "quit")
    # the process of the command reads the file too, and is no client
    assert {*seen.read_text().splitlines()} == {"none", start[1]}
    assert seen.read_text().splitlines().count(start[1]) == 2
