"""Reports of the command line on user mistakes, failures and bugs."""

import errno
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

import pytest

from helpers.commands import invoke, one_sentence

BUG = """
from torchcaps.models import zoo

def broken(name):
    raise ValueError("a bug of the package")

zoo.count_parameters = broken
from torchcaps.cli import app
app(["list", "--networks"])
"""


def test_a_bug_keeps_its_traceback() -> None:
    done = subprocess.run([sys.executable, "-c", BUG], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "Traceback (most recent call last)" in done.stderr
    assert done.stderr.rstrip().endswith("ValueError: a bug of the package")


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["train", "sabour2017/mnst"], 2, "did you mean 'sabour2017/mnist'?"),
        (["evaluate", "nowhere"], 1, "there is no run folder or weight file nowhere"),
    ],
)
def test_a_mistake_is_one_sentence_and_a_traceback_only_with_debug(
    arguments: list[str], code: int, message: str
) -> None:
    assert message in one_sentence(invoke(*arguments), code)
    done = invoke("--debug", *arguments)
    assert done.exit_code == code
    assert "Traceback (most recent call last)" in done.stderr
    assert message in done.stderr


def test_a_full_disk_is_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path) -> NoReturn:
        raise OSError(errno.ENOSPC, "No space left on device", str(path))

    monkeypatch.setattr(Path, "is_dir", full)
    assert "No space left on device" in one_sentence(invoke("evaluate", "nowhere"), 1)


def test_a_closed_pipe_ends_a_command_without_a_word() -> None:
    command = f"'{sys.executable}' -m torchcaps data list | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="/dev/full is a device of Linux")
@pytest.mark.parametrize("words", ["--help", "data list"])
def test_a_full_standard_output_is_one_sentence(words: str) -> None:
    command = f"'{sys.executable}' -m torchcaps {words} > /dev/full"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert done.stderr.splitlines() == ["[Errno 28] No space left on device"]


def test_a_closed_standard_output_is_no_error() -> None:
    command = f"'{sys.executable}' -m torchcaps data list >&-"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
