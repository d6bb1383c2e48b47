"""Errors meant for the user share one base class."""

import importlib
import inspect
import pkgutil

import pytest

import torchcaps
from torchcaps.errors import InputError, MissingFileError, TorchcapsError, UsageError

INTERNAL = {"EncodingError", "NonFiniteError", "MirrorError"}
"""Errors that the package always catches itself."""


def test_every_error_of_the_package_is_one_for_the_user_or_never_leaves_it() -> None:
    internal = set()
    for module in pkgutil.walk_packages(torchcaps.__path__, "torchcaps."):
        if module.name == "torchcaps.__main__":
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            if inspect.isclass(value) and issubclass(value, Exception):
                ours = value.__module__.startswith("torchcaps.")
                if ours and not issubclass(value, TorchcapsError):
                    internal.add(name)
    assert internal == INTERNAL


@pytest.mark.parametrize(
    ("error", "builtin", "code"),
    [
        (TorchcapsError, Exception, 1),
        (UsageError, ValueError, 2),
        (InputError, ValueError, 1),
        (MissingFileError, FileNotFoundError, 1),
    ],
)
def test_an_error_is_a_built_in_one_too_and_has_an_exit_code(
    error: type[TorchcapsError], builtin: type[Exception], code: int
) -> None:
    assert issubclass(error, builtin)
    assert error.exit_code == code
    assert str(error("a sentence")) == "a sentence"
