"""The command line, called from tests."""

from pathlib import Path

from typer.testing import CliRunner, Result

from torchcaps.cli import app

__all__ = ["invoke", "one_sentence", "refused"]


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def one_sentence(result: Result, code: int) -> str:
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    lines = [line for line in result.stderr.splitlines() if line]
    assert len(lines) == 1
    return lines[0]


def refused(*arguments: str | Path) -> str:
    result = invoke(*arguments)
    assert result.exit_code != 0
    return one_sentence(result, result.exit_code)
