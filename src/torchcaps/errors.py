"""Errors meant for the user: one sentence that says what is wrong and what to do."""

import difflib
from collections.abc import Iterable
from fnmatch import fnmatchcase


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


def select(pattern: str, known: Iterable[str]) -> list[str]:
    """Return the names that match a pattern, such as ``*cifar10*``; refuse one without a match.

    A pattern without a wildcard selects the names that contain it.
    """
    if not isinstance(pattern, str):
        raise UsageError(f"a pattern is a string such as '*cifar10*', not {pattern!r}")
    names = list(known)
    wild = pattern if set(pattern) & set("*?[") else f"*{pattern}*"
    if matching := [name for name in names if fnmatchcase(name, wild)]:
        return matching
    hint = suggest(pattern, names, otherwise="try a shorter pattern, such as '*cifar10*'")
    raise UsageError(f"no name matches {pattern!r}: {hint}")
