"""Errors meant for the user: one sentence that says what is wrong and what to do."""

__all__ = ["InputError", "MissingFileError", "TorchcapsError", "UsageError"]


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


class MissingFileError(TorchcapsError, FileNotFoundError):
    """A file or folder that is not there."""
