"""Triton's interpreter for the tests of kernels, on machines without a GPU.

Triton decides on import whether kernels are interpreted, so it is imported here with the
interpreter on. Outside the fixture the interpreter is off, and the package sees no device.
"""

import importlib
import os
import pkgutil
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
import torch

from torchcaps import kernels

if TYPE_CHECKING:
    from helpers.kernels.interpreter import Launch

REASON = ""
if sys.platform != "linux":
    REASON = "Triton has no build for this system"
elif torch.cuda.is_available():
    REASON = "there is a GPU, on which the tests in gpu/ run the kernels"
else:
    assert "triton" not in sys.modules, "Triton was imported before its interpreter was on"
    os.environ["TRITON_INTERPRET"] = "1"
    for module in pkgutil.walk_packages(kernels.__path__, f"{kernels.__name__}."):
        importlib.import_module(module.name)
    from helpers.kernels.interpreter import refuse_strays, watch_launches

    del os.environ["TRITON_INTERPRET"]


@pytest.fixture
def interpreter(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run kernels in the interpreter, within their tensors and in memory that is NaN at first."""
    if REASON:
        pytest.skip(REASON)
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    refuse_strays(monkeypatch)
    torch.use_deterministic_algorithms(True)
    assert torch.empty(3).isnan().all()
    yield
    torch.use_deterministic_algorithms(False)


@pytest.fixture
def launches(interpreter: None, monkeypatch: pytest.MonkeyPatch) -> "list[Launch]":
    """Return a list that grows by every kernel that is launched from now on."""
    return watch_launches(monkeypatch)
