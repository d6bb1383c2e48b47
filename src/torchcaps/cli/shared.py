"""What commands share: options, bars, errors of one sentence and their exit codes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

__all__ = ["DataDir", "Device", "Json", "counting", "make_folder", "one_sentence"]

DataDir = Annotated[Path | None, typer.Option(help="Data folder; default $TORCHCAPS_DATA.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda or cuda:N.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


def make_folder(path: Path, option: str) -> None:
    """Make a folder before the work whose outcome it shall hold."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"the folder {path} cannot be made ({error.strerror}); choose another with {option}"
        ) from None


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Bars on a terminal that are gone at the end; told a name, how many in all and how many more.

    They go to standard error, so that what is printed can be piped.
    """
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:

        def tell(name: str, of: int, more: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=of)
            bars.advance(tasks[name], more)

        yield tell


@contextmanager
def one_sentence(
    *, wrong_use: bool = False, relief: str = "take smaller images or a smaller network"
) -> Iterator[None]:
    """Show an expected error as its message and leave with the right status.

    1 is a failure, 2 wrong use, 130 and 143 a run that was stopped and has saved.

    Args:
        wrong_use: what is refused in here is a mistake in the command.
        relief: what to do where memory does not suffice.
    """
    try:
        yield
    except (ValueError, OSError, RuntimeError, MemoryError) as error:
        if _out_of_memory(error):
            typer.echo(f"there is not enough memory: {relief}", err=True)
            raise typer.Exit(1) from None
        if not _expected(error):
            raise
        typer.echo(_said(error), err=True)
        raise typer.Exit(_code(error, wrong_use)) from None


def _out_of_memory(error: Exception) -> bool:
    from torch import OutOfMemoryError

    cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate" in str(error)
    return cpu or isinstance(error, MemoryError | OutOfMemoryError)


def _expected(error: Exception) -> bool:
    """Whether an error is one of ours, and not a mistake in the code."""
    from torchcaps.train.run import TrainingError
    from torchcaps.train.signals import InterruptedRunError

    if isinstance(error, RuntimeError):
        return isinstance(error, TrainingError | InterruptedRunError)
    return True


def _said(error: Exception) -> str:
    """The message of an error; one of the system's own names no remedy."""
    if isinstance(error, OSError) and error.strerror and error.filename is not None:
        return (
            f"{error.filename} cannot be used ({error.strerror}): see that it is there and yours "
            "to read and write, or name another"
        )
    return str(error)


def _code(error: Exception, wrong_use: bool) -> int:
    from torchcaps.train.process import UseError
    from torchcaps.train.signals import InterruptedRunError

    if isinstance(error, InterruptedRunError):
        return error.code
    return 2 if wrong_use or isinstance(error, UseError) else 1
