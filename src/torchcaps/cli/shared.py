"""What every command shares: errors of one sentence, and their exit codes."""

from collections.abc import Iterator
from contextlib import contextmanager

import typer

__all__ = ["one_sentence"]


@contextmanager
def one_sentence(*, wrong_use: bool = False) -> Iterator[None]:
    """Show an expected error as its message and leave with the right status.

    1 is a failure, 2 wrong use, 130 and 143 a run that was stopped and has saved.

    Args:
        wrong_use: what is refused in here is a mistake in the command.
    """
    try:
        yield
    except (ValueError, OSError, RuntimeError) as error:
        if not _expected(error):
            raise
        typer.echo(str(error), err=True)
        raise typer.Exit(_code(error, wrong_use)) from None


def _expected(error: Exception) -> bool:
    """Whether an error is one of ours, and not a mistake in the code."""
    from torchcaps.train.run import TrainingError
    from torchcaps.train.signals import InterruptedRunError

    if isinstance(error, RuntimeError):
        return isinstance(error, TrainingError | InterruptedRunError)
    return True


def _code(error: Exception, wrong_use: bool) -> int:
    from torchcaps.train.process import UseError
    from torchcaps.train.signals import InterruptedRunError

    if isinstance(error, InterruptedRunError):
        return error.code
    return 2 if wrong_use or isinstance(error, UseError) else 1
