"""Wrong input to any command ends at once, in words, with an exit code and without a traceback."""

import shlex
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import NoReturn

import pytest

from helpers.commands import invoke
from helpers.repetitions import mark_slow_except
from helpers.wrong_commands import COMMANDS, write_files

TIMEOUT_S = 60


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wrong")
    write_files(folder)
    return folder


@pytest.fixture
def clock() -> Iterator[None]:
    """Fail what hangs."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        raise TimeoutError(f"no answer within {TIMEOUT_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(TIMEOUT_S)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_there_are_many_different_wrong_commands() -> None:
    assert len(set(COMMANDS)) == len(COMMANDS) > 150


@pytest.mark.usefixtures("clock")
@pytest.mark.parametrize("line", mark_slow_except(COMMANDS, *COMMANDS[::7]))
def test_a_wrong_command_is_refused_in_words(
    line: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(files)
    monkeypatch.setenv("TORCHCAPS_DATA", str(files / "no-data"))
    result = invoke(*shlex.split(line))
    assert result.exit_code in (1, 2)
    assert isinstance(result.exception, SystemExit), result.exc_info
    assert "Traceback" not in result.output
    assert result.stdout == ""
    lines = [text for text in result.stderr.splitlines() if text]
    assert len(lines) == 1 or lines[0].lstrip().startswith("Usage:"), result.stderr
