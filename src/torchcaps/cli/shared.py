"""Shared options and progress bars of the commands, and how they report errors."""

import errno
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from torchcaps.errors import InputError, TorchcapsError

if TYPE_CHECKING:
    from torchcaps.recipes import Recipe

DataDir = Annotated[
    Path | None,
    typer.Option("--data-dir", "--root", help="Data folder; default $TORCHCAPS_DATA."),
]
SkipBad = Annotated[
    bool, typer.Option("--skip-bad", help="Go on without files that are no images.")
]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:N or mps.")]
Markdown = Annotated[bool, typer.Option("--markdown", help="Print a Markdown table.")]
Pattern = Annotated[
    str, typer.Argument(metavar="[PATTERN]", help="Only names that match, such as '*cifar10*'.")
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON, for scripts.")]


OwnRecipe = Annotated[
    str | None,
    typer.Option("--recipe", metavar="FILE.py:NAME", help="The recipe of a network of your own."),
]


class Commands(TyperGroup):
    """A group that reports the errors of all its commands.

    An error meant for the user becomes one sentence and its exit code: 1 for a failure, 2 for
    wrong usage, 130 and 143 for an interrupted run that has saved. A bug keeps its traceback.
    With ``--debug`` every error shows its traceback.
    """

    def main(self, *args: Any, **options: Any) -> Any:
        """Read the command line and run it; help that cannot be written is a sentence too."""
        try:
            return super().main(*args, **options)
        except OSError as error:
            if error.errno is None:
                raise
            typer.echo(_system_message(error), err=True)
            raise SystemExit(1) from None

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was named."""
        try:
            with memory_advice("take smaller images or a smaller network"):
                return super().invoke(ctx)
        except (TorchcapsError, OSError) as error:
            message, code = str(error), 1
            if isinstance(error, TorchcapsError):
                code = error.exit_code
            elif error.errno is None or error.errno == errno.EPIPE:  # click handles broken pipes
                raise
            else:
                message = _system_message(error)
            if ctx.params.get("debug"):
                traceback.print_exc()
            else:
                typer.echo(message, err=True)
            raise typer.Exit(code) from None


def _system_message(error: OSError) -> str:
    """Add a remedy to an error of the operating system."""
    if error.filename is None:
        return str(error)
    return (
        f"{error.filename} cannot be used ({error.strerror}): check that it exists and that you "
        "may read and write it, or name another"
    )


@contextmanager
def memory_advice(advice: str) -> Iterator[None]:
    """Replace an out-of-memory error by one sentence that ends in this advice."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not _is_out_of_memory(error):
            raise
        raise TorchcapsError(f"there is not enough memory: {advice}") from error


def _is_out_of_memory(error: Exception) -> bool:
    from torch import OutOfMemoryError

    on_cpu = isinstance(error, RuntimeError) and "DefaultCPUAllocator: can't allocate" in str(error)
    return on_cpu or isinstance(error, MemoryError | OutOfMemoryError)


def load_own(recipe: str | None) -> "Recipe | None":
    """Return the recipe that a user names; its file registers their networks."""
    from torchcaps.recipes.tools.loading import find_recipe

    return None if recipe is None else find_recipe(recipe)


def make_folder(path: Path, option: str) -> None:
    """Create an output folder before the work starts."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the folder {path} cannot be created ({error.strerror}); choose another with {option}"
        ) from None


@contextmanager
def counting() -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function of a name, a total and an increment that shows a progress bar per name.

    The bars go to standard error, so that standard output can be piped, and vanish at the end.
    """
    from rich.console import Console
    from rich.progress import Progress, TaskID

    console = Console(stderr=True)
    tasks: dict[str, TaskID] = {}
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bars:

        def advance(name: str, total: int, count: int) -> None:
            if name not in tasks:
                tasks[name] = bars.add_task(name, total=total)
            bars.advance(tasks[name], count)

        yield advance
