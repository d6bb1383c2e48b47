"""Errors meant for the user: one sentence that says what is wrong and what to do."""

import difflib
from collections.abc import Iterable


class TorchcapsError(Exception):
    """Base class of every error meant for the user.

    The command line prints its message and exits with ``exit_code``. Any other exception is a bug
    of the package and keeps its traceback.
    """

    exit_code: int = 1


class UsageError(TorchcapsError, ValueError):
    """An argument, option or setting that cannot be used."""

    exit_code = 2


class InputError(TorchcapsError, ValueError):
    """A file, folder, data set or network that does not fit what it is used for."""


class FileFormatError(TorchcapsError, ValueError):
    """A data file that is truncated, corrupt or of another format."""


class MissingFileError(TorchcapsError, FileNotFoundError):
    """A file or folder that is not there."""


def suggest(name: str, known: Iterable[str], *, otherwise: str | None = None) -> str:
    """Return "did you mean 'x'?" with the known name most like this one.

    Args:
        name: the name that is not known.
        known: the names that are.
        otherwise: the hint when no known name is like this one; None lists all of them.
    """
    names = list(known)
    if similar := difflib.get_close_matches(name, names, n=1):
        return f"did you mean {similar[0]!r}?"
    return f"there are {', '.join(names)}" if otherwise is None else otherwise
