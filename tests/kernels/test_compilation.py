"""Kernels compiled for a GPU of compute capability 9.0, on any machine."""

import sys
from pathlib import Path

import pytest

from helpers.processes import run_python

SCRIPT = str(Path(__file__).parents[1] / "helpers/kernels/compilation.py")
pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="Triton has no build for this system"
)


@pytest.mark.parametrize("what", ["small", pytest.param("all", marks=pytest.mark.slow)])
def test_every_kernel_compiles(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    assert run_python(SCRIPT, what).count("wgmma") >= 8
